mod order;
mod scopes;

use super::*;
use crate::text::datum::Datum;
use crate::text::json::Json;

fn render_with(source: &str, json: &str) -> Result<String, Unscorable> {
    let template = ChatTemplate::compile(source, None).unwrap();
    let (Json::Object(entries), _) = Json::parse(json).unwrap() else {
        panic!("no object")
    };
    let variables = entries
        .iter()
        .map(|(name, value)| (name.as_ref(), Datum::from_json(value)))
        .collect();
    let now = LocalTime::from_date(2024, 7, 26);
    render_twice(&template, &Context(variables), now).map(|bytes| String::from_utf8(bytes).unwrap())
}

/// Renders a template, and makes sure that its plan gives what the template engine gives.
pub(super) fn render_twice(
    template: &ChatTemplate,
    context: &Context<'_>,
    now: LocalTime,
) -> Result<Vec<u8>, Unscorable> {
    let plan = template.plan.as_ref();
    let engine = template.render_by_engine(context, now, 0);
    if let Some(planned) = plan.and_then(|plan| plan.run(context, now, 0)) {
        assert_eq!(Ok(planned.into_bytes()), engine);
    }
    assert_eq!(template.render(context, now, 0), engine);
    engine
}

fn render(source: &str) -> String {
    render_with(source, r#"{"m":[{"role":"user","content":" a "},{"role":"x","items":[1,2.0,null]}],"d":{"b":1,"items":2}}"#).unwrap()
}

#[test]
fn rendering_agrees_with_jinja2() {
    // Each right side was printed by Jinja2 3.1.6 with the engine's settings.
    for (source, expected) in [
        ("{% if true %}\n  a\n  {% endif %}\nb\n", "  a\nb"),
        (
            "{{ m[0].content | trim }}|{{ m[-1].role }}|{{ m[1:][0].role }}|{{ m[::-1][1].role }}",
            "a|x|x|user",
        ),
        (
            "{% for x in m[::-1] %}{{ loop.index0 }}{{ x.role }}{{ loop.last }}{% endfor %}",
            "0xFalse1userTrue",
        ),
        (
            "{{ m[0].nope }}|{{ nope }}|{{ nope is defined }}|{{ m[0].nope is undefined }}",
            "||False|True",
        ),
        (
            "{{ none }} {{ true }} {{ 1.0 }} {{ 1e3 }} {{ [1, 'a'] }} {{ {'k': none} }}",
            "None True 1.0 1000.0 [1, 'a'] {'k': None}",
        ),
        (
            "{{ 'a' is sequence }}{{ d is sequence }}{{ m[1:] is sequence }}{{ 1 is sequence }}",
            "TrueTrueTrueFalse",
        ),
        (
            "{{ none is iterable }}{{ 'a' is iterable }}{{ m is iterable }}",
            "FalseTrueTrue",
        ),
        (
            "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
            "b=1;items=2;",
        ),
        (
            "{{ d['items'] }} {{ d.items is defined }} {{ d.get('b') }} {{ d | length }}",
            "2 True 1 2",
        ),
        ("{{ m[1]['items'] | tojson }}", "[1, 2.0, null]"),
        ("{{ '<&>' | tojson }}{{ '<&>' }}", "\"<&>\"<&>"),
        (
            "{% set ns = namespace(x=0) %}{% for i in range(3) %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}",
            "3",
        ),
        (
            "{% set x = 1 %}{% for i in range(2) %}{% set x = 2 %}{% endfor %}{{ x }}",
            "1",
        ),
        (
            "{% for i in range(5) %}{% if i == 1 %}{% continue %}{% elif i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}",
            "02",
        ),
        (
            "{% macro f(a, b='z') %}<{{ a }}{{ b }}>{% endmacro %}{{ f('x') }}{{ f('x', b='y') }}",
            "<xz><xy>",
        ),
        (
            "{{ m | selectattr('role', 'equalto', 'user') | map(attribute='content') | map('trim') | join('\\n') }}",
            "a",
        ),
        (
            "{{ 'a' ~ 1 ~ none }}{{ 'ab' * 2 }}{{ 7 // 2 }}{{ 7 / 2 }}{{ -7 % 3 }}{{ 2 ** 3 }}",
            "a1Noneabab33.528",
        ),
        (
            "{{ 'b' in 'abc' }}{{ 'b' in d }}{{ 'z' not in d }}{{ 1 in [1] }}",
            "TrueTrueTrueTrue",
        ),
        (
            "{{ not x is defined }}{{ 1 < 2 < 3 }}{{ '1' if none else '2' }}{{ (none or 'q') }}",
            "TrueTrue2q",
        ),
        (
            "{%- generation %}{% set q = 1 %}a{{ q }}{% endgeneration -%}\n b{{ q }}",
            "a1b",
        ),
        ("{{ strftime_now('%d %b %Y') }}", "26 Jul 2024"),
        // A negative constant is part of the Python code, where the power comes first.
        (
            "{{ -2 ** d.b }} {{ (1 - 3) ** (d.b + 1) }} {{ -2 ** 2 }} {{ (-d.b) ** 2 }} {{ ('ab' | length - 4) ** (d.b + 1) }} {{ (-2 | abs) ** d.b }} {{ -2 ** d.b ** 2 }}",
            "-2 -4 4 1 -4 2 4",
        ),
        (
            "{{ [1, 2, 1, 2].index(1, 1) }}{{ [1, 2, 1, 2].index(2, -3, -1) }}{{ (1, 2).index(2) }}",
            "211",
        ),
        // A float is no index, even a whole one.
        (
            "{{ m[1.0] }}|{{ 'abc'[d.b / 1] }}|{{ m[d.b - 1.0] }}|{{ 'abc'[d.b // 1] }}|{{ 'abc'[2 ** d.b] }}",
            "|||b|c",
        ),
        (
            "{{ [{}, {'o': 1}] | map(attribute='o', default=none) | list }}{{ [{}] | map(attribute='o', default=2) | list }}",
            "[Undefined, 1][2]",
        ),
        (
            "{{ \"a\\tb\\x41\\u00e9\\d\" }}{{ 'it\\'s' }}",
            "a\tbAé\\dit's",
        ),
        (
            "{# c #}{{ '{% raw %}' }}{% raw %}{{ x }}{% endraw %}",
            "{% raw %}{{ x }}",
        ),
        (
            "{{ 'x' | default('y') }}{{ nope | default('y') }}{{ none | default('y') }}{{ '' | default('y', true) }}",
            "xyNoney",
        ),
        (
            "{{ [3, 1] | sort }}{{ [1, 2] | first }}{{ [1, 2] | last }}{{ 'aB' | upper }}{{ 5 | string + '' }}",
            "[1, 3]12AB5",
        ),
        (
            "{{ m[0].content.strip() ~ 'x' if m[0].content is string else 'n' }}",
            "ax",
        ),
        (
            "{{ loop is defined }}{% for a in [1] %}{{ loop.previtem is defined }}{% else %}e{% endfor %}",
            "FalseFalse",
        ),
    ] {
        assert_eq!(render(source), expected, "{source}");
    }
}

#[test]
fn what_the_engine_does_in_another_way_agrees_with_jinja2() {
    // Each right side was printed by Jinja2 3.1.6 with the engine's settings.
    for (source, expected) in [
        (
            "{{ 'x' ~ [1e22, nope, 'it\\'s'] ~ 1e22 ~ none }}",
            "x[1e+22, Undefined, \"it's\"]1e+22None",
        ),
        (
            "{% for c in 'ab' %}{{ c }}{{ loop.last }}{{ loop.length }}{% endfor %}",
            "aFalse2bTrue2",
        ),
        (
            "{{ '%s is %d%%' % ('x', 3) }}{{ '%5.1f' % 2.25 }}",
            "x is 3%  2.2",
        ),
        (
            "{{ 'y' if [] | select else 'n' }}{{ [3, 4] | map('string') | first }}",
            "y3",
        ),
        (
            "{% set g = [1, 2] | map('string') %}{{ g | join }}{{ g | join }}",
            "12",
        ),
        (
            "{% macro f(a, b=a, c='z') %}{{ a }}{{ b }}{{ c }};{% endmacro %}{{ f(1) }}{{ f(1, nope, c=none) }}{{ f(1, c=nope) }}",
            "11z;1None;11;",
        ),
        (
            "{% set x %}{% set y = 3 %}{{ y }}{% endset %}{{ x }}{{ y is defined }}",
            "3False",
        ),
        ("{{ 'a\\/b\\v' }}{{ +1 }}{{ -1 | abs }}", "a\\/b\u{b}11"),
        (
            "{{ m[:1] == [m[0]] }}{{ 'héllo'[1:3] }}{{ 'hello'[-3:] }}{{ (1, 2, 3)[::-1] }}{{ none[1:] is defined }}",
            "Trueélllo(3, 2, 1)False",
        ),
        (
            "{{ d.keys() }}{{ range(2) }}{{ [range(1, 6, 2) | list, ()] }}",
            "dict_keys(['b', 'items'])range(0, 2)[[1, 3, 5], ()]",
        ),
        (
            "{{ 'x' | int(7) }}{{ '1_0' | int }}{{ ' 2.5 ' | float }}{{ 3.9 | int }}{{ 'a' | float }}",
            "7102.530.0",
        ),
        (
            "{{ ['b', 'A'] | sort }}{{ {'b': 1, 'A': 2} | dictsort }}{{ ['b', 'A'] | max }}{{ ([] | min) is defined }}",
            "['A', 'b'][('A', 2), ('b', 1)]bFalse",
        ),
        (
            "{{ 'ßeta gamma' | title }}{{ 'ßeta o\\'neil'.title() }}{{ 'a\\rb' | indent(2) }}",
            "SSeta GammaSseta O'Neila\n  b",
        ),
        (
            "{{ [m[0], m[1]] | groupby('role') | map(attribute='grouper') | list }}{{ [{'k': 1}] | groupby('k') }}",
            "['user', 'x'][(1, [{'k': 1}])]",
        ),
        (
            "{{ true is number }}{{ 'aB' is lower }}{{ nope is callable }}{{ d.nope is sameas none }}",
            "TrueFalseTrueFalse",
        ),
    ] {
        assert_eq!(render(source), expected, "{source}");
    }
}

#[test]
fn exceptions_of_the_template_leave_no_text() {
    for source in [
        "{{ raise_exception('no') }}",
        "{{ nope.x }}",
        "{{ 'a' + 1 }}",
        "{{ x() }}",
        "{{ 'a'.nope() }}",
        "{% for x in none %}{% endfor %}",
        "{{ range(3) | tojson }}",
        "{{ [2, 'a'] | sort }}",
        "{{ x[1:] }}",
        "{% for a in [1] %}{% continue %}{% else %}x{% endfor %}",
    ] {
        assert_eq!(
            render_with(source, "{}"),
            Err(Unscorable::Template),
            "{source}"
        );
    }
}

#[test]
fn what_is_added_to_markup_is_escaped() {
    // Each right side was printed by Jinja2 3.1.6.
    for (source, expected) in [
        ("{{ '<' | safe }}{{ '<' ~ ('>' | safe) ~ '&' }}", "<<>&"),
        (
            "{{ '<' | safe + x }}{{ x + (x | e) + '>' }}",
            "<&lt;&lt;&lt;&gt;",
        ),
        (
            "{% set y = '>' | safe %}{{ x + y }}{{ (x + y) ~ x }}",
            "&lt;>&lt;><",
        ),
        (
            "{{ x + 'b' + 'c' | safe }}{{ 1 + 2 }}{{ [1] + [2] }}",
            "&lt;bc3[1, 2]",
        ),
        (
            "{{ [nope, none, 'a'] | replace('a' | e, 'b') }}{{ x | e | replace('&', x) + x }}{{ (x | e | indent) + x }}",
            "[Undefined, None, 'b']<lt;<&lt;&lt;",
        ),
    ] {
        assert_eq!(
            render_with(source, r#"{"x":"<"}"#).unwrap(),
            expected,
            "{source}"
        );
    }
    for source in [
        "{{ [x | safe] }}",
        "{{ [x | safe | indent] }}",
        "{{ [x | safe | center(3)] }}",
        "{{ x | safe | truncate(1) }}",
    ] {
        assert_eq!(
            render_with(source, r#"{"x":"<"}"#),
            Err(Unscorable::Template),
            "{source}"
        );
    }
}

#[test]
fn work_and_output_are_bounded() {
    let endless =
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}";
    assert_eq!(render_with(endless, "{}"), Err(Unscorable::Limit));
    let long = "{% for a in range(40) %}{{ 'xxxxxxxxxx' * 100000 }}{% endfor %}";
    assert_eq!(render_with(long, "{}"), Err(Unscorable::Limit));
    assert_eq!(
        render_with("{{ 'x' * 100000000000 }}", "{}"),
        Err(Unscorable::Limit)
    );
    assert_eq!(
        render_with("{{ ('x' * 1000000).replace('', 'y' * 100000) }}", "{}"),
        Err(Unscorable::Limit)
    );
}

#[test]
fn a_template_with_an_error_does_not_compile() {
    assert!(ChatTemplate::compile("{% for %}", None).is_err());
}
