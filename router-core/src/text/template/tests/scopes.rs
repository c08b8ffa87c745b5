//! What names mean in scopes.

use super::*;

#[test]
fn names_mean_what_they_mean_in_jinja2() {
    // Each right side was printed by Jinja2 3.1.6 with the engine's settings.
    for (source, expected) in [
        (
            "{% for i in [1] %}{{ s is defined }}{{ s }}{% endfor %}{% set s = 1 %}{{ s }}",
            "False1",
        ),
        ("{% with %}{{ s }}{% endwith %}{% set s = 1 %}{{ s }}", "1"),
        (
            "{% set v %}{{ s }}{% endset %}{% set s = 1 %}{{ v }}|{{ s }}",
            "|1",
        ),
        (
            "{% filter upper %}{{ s }}{% endfilter %}{% set s = 1 %}{{ s }}",
            "1",
        ),
        ("{% set s %}<{{ s }}>{% endset %}{{ s }}", "<>"),
        (
            "{% macro f() %}{{ s }}{% endmacro %}{{ f() }}{% set s = 1 %}{{ f() }}",
            "1",
        ),
        (
            "{% for i in [1] %}{{ range is defined }}{% endfor %}{% set range = 1 %}",
            "False",
        ),
        (
            "{% for i in [1] %}{{ t is defined }}{% endfor %}{% macro t() %}{% endmacro %}",
            "False",
        ),
        (
            "{% for i in [1] if s is defined %}{{ i }}{% endfor %}{% set s = 1 %}",
            "",
        ),
        (
            "{% for i in [1] %}{% else %}{% endfor %}{% for i in [] %}{% else %}{{ s }}{% endfor %}{% set s = 1 %}",
            "",
        ),
        (
            "{% for i in [1, 2] %}{% for k in [1] %}{{ s }}{% endfor %}{% set s = i %}{{ s }}{% endfor %}{{ s }}",
            "given1given2given",
        ),
        (
            "{% for i in [1] %}{% if true %}{{ s }}{% endif %}{% endfor %}{% set a, s = 1, 2 %}",
            "",
        ),
        (
            "{{ s }}{% for i in [1] %}{{ s }}{% endfor %}{% set s = 1 %}{{ s }}",
            "givengiven1",
        ),
        (
            "{% for i in [1] %}{{ s }}{% endfor %}{% if false %}{% set s = 1 %}{% endif %}{{ s }}",
            "givengiven",
        ),
        (
            "{% for i in [1] %}{{ s }}{% endfor %}{% if true %}{% set s = 1 %}{% endif %}{{ s }}",
            "given1",
        ),
        (
            "{% for i in [1] %}{{ s }}{% endfor %}{% if false %}{% elif true %}{% set s = 1 %}{% endif %}{% set s = 2 %}{{ s }}",
            "given2",
        ),
        (
            "{% if nope %}{{ s }}{% endif %}{% for i in [1] %}{{ s }}{% endfor %}{% set s = 1 %}{{ s }}",
            "given1",
        ),
        (
            "{% set s = 'o' %}{% for i in [1] %}{% for k in [1] %}{{ s }}{% endfor %}{% set s = 2 %}{{ s }}{% endfor %}{{ s }}",
            "o2o",
        ),
        (
            "{% for i in [1] %}{% for k in [1] %}{{ s }}{% endfor %}{% set s = 2 %}{{ s }}{% endfor %}{{ s }}",
            "given2given",
        ),
        (
            "{% for i in [1] %}{% for k in [1] %}{{ s }}{% endfor %}{% set s = 2 %}{{ s }}{% endfor %}",
            "2",
        ),
        (
            "{% macro f(s) %}{% for i in [1] %}{{ s }}{% endfor %}{% set s = 1 %}{{ s }}{% endmacro %}{{ f('p') }}",
            "p1",
        ),
        (
            "{% macro f() %}{% for i in [1] %}{{ s }}{% endfor %}{% set s = 1 %}{{ s }}{% endmacro %}{{ f() }}",
            "1",
        ),
        (
            "{% with s = 4 %}{% for i in [1] %}{{ s }}{% endfor %}{% set s = 1 %}{{ s }}{% endwith %}{{ s }}",
            "41given",
        ),
        (
            "{% for i in [1, 2] %}{{ q }}{% set q = i %}{% endfor %}",
            "",
        ),
        (
            "{% for i in [1, 2] %}{% if i == 1 %}{% set q = 'q' %}{% endif %}{% macro f() %}{{ q }}{{ i }}{% endmacro %}{{ f() }}{% endfor %}",
            "q12",
        ),
        (
            "{% macro w() %}[{{ caller() }}]{% endmacro %}{% for i in [1, 2] %}{% if i == 1 %}{% set q = 'q' %}{% endif %}{% call w() %}{{ q }}{{ i }}{% endcall %}{% endfor %}",
            "[q1][2]",
        ),
        (
            "{% macro w() %}[{{ caller() }}]{% endmacro %}{% set q = 'o' %}{% for i in [1, 2] %}{% if i == 1 %}{% set q = 'q' %}{% endif %}{% call w() %}{{ q }}{{ i }}{% endcall %}{% endfor %}{{ q }}",
            "[q1][o2]o",
        ),
        (
            "{% for i in [] %}{% else %}{% set q = 1 %}{{ q }}{% endfor %}{{ q }}|",
            "1|",
        ),
        (
            "{% set q = 0 %}{% for i in [] %}{% else %}{% set q = 1 %}{{ q }}{% endfor %}{{ q }}",
            "10",
        ),
        ("{% with a = 1, b = a %}{{ a }}{{ b }}{% endwith %}", "1"),
        (
            "{% set a = 5 %}{% with a = 1, b = a, c = 2 %}{{ a }}{{ b }}{{ c }}{% endwith %}{{ a }}",
            "1525",
        ),
        (
            "{% filter replace('a', q) %}{% set q = 'b' %}xa{% endfilter %}{{ q }}",
            "xb",
        ),
        (
            "{% for i in [1, 2, 3] %}{% for k in [] %}{% else %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endfor %}{% endfor %}",
            "13",
        ),
        (
            "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}b{{ s }}{% endmacro %}{{ a() }}",
            "bgiven",
        ),
        (
            "{% macro a(n) %}{{ n }}{% if n %}{{ a(n - 1) }}{% endif %}{% endmacro %}{{ a(2) }}",
            "210",
        ),
        (
            "{% for i in [1] recursive %}{{ s }}{% set s = 3 %}{{ loop([]) if false }}{% endfor %}{% set s = 4 %}{{ s }}",
            "4",
        ),
        ("{% for s in s %}{{ s }}{% endfor %}{{ s }}", "givengiven"),
        (
            "{% set ns = namespace(x=1) %}{% for i in [1] %}{% set ns.x = 2 %}{% endfor %}{{ ns.x }}",
            "2",
        ),
    ] {
        assert_eq!(
            render_with(source, r#"{"s":"given","t":"T"}"#).as_deref(),
            Ok(expected),
            "{source}"
        );
    }
}

#[test]
fn a_scope_that_ends_with_a_round_is_not_rendered() {
    for body in [
        "{% with %}{% if i == 2 %}@{% endif %}{{ i }}{% endwith %}",
        "{% set x %}{% if i == 2 %}@{% endif %}{{ i }}{% endset %}",
        "{% filter upper %}{% if i == 2 %}@{% endif %}{{ i }}{% endfilter %}",
        "{% generation %}{% if i == 2 %}@{% endif %}{{ i }}{% endgeneration %}",
        "{% for k in [] %}{% else %}{% set q = 1 %}{% if i == 2 %}@{% endif %}{% endfor %}",
        "{% if true %}{% with %}{% with %}@{% endwith %}{% endwith %}{% endif %}",
    ] {
        for leave in ["{% break %}", "{% continue %}"] {
            let body = body.replace('@', leave);
            let source = format!("{{% for i in [1, 2, 3] %}}{body}{{% endfor %}}");
            assert_eq!(
                render_with(&source, "{}"),
                Err(Unscorable::Template),
                "{source}"
            );
        }
    }
    let inside = "{% with %}{% for i in [1, 2] %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}{% endwith %}";
    assert_eq!(render_with(inside, "{}").as_deref(), Ok("1"));
}

#[test]
fn an_argument_that_a_block_assigns_is_not_rendered() {
    let source = "{% set v | replace('a', q) %}{% set q = 'b' %}xa{% endset %}";
    assert_eq!(render_with(source, "{}"), Err(Unscorable::Template));
}
