//! In which order things are computed, and how often. Where the template engine's order is another one, there is no text.

use super::*;

const VALUES: &str = r#"{"n":3,"o":false,"l":[{"a":{"b":1}},{}],"d":{"update":"v","pop":1,"k":2}}"#;
const BUMP: &str = "{% macro bump() %}{% set ns.n = ns.n + 1 %}{{ ns.n }}{% endmacro %}{% set ns = namespace(n=0) %}";

#[test]
fn text_is_that_of_jinja2_or_none() {
    // Each right side was printed by Jinja2 3.1.6 with the engine's settings.
    for (source, expected) in [
        // A loop's filter is asked before each round.
        (
            "{% set ns = namespace(seen='') %}{% for x in ['a','b','a'] if x not in ns.seen %}{% set ns.seen = ns.seen + x %}{{ x }}{% endfor %}",
            "ab",
        ),
        (
            "{% set ns = namespace(n=0) %}{% for x in [1,2,3] if ns.n < 2 %}{% set ns.n = ns.n + 1 %}{{ x }}{% endfor %}",
            "12",
        ),
        (
            "{% for x in l if x.a.b %}{{ x.a.b }}{% break %}{% endfor %}",
            "1",
        ),
        // Arguments are computed once, and also where nobody needs them.
        (
            "{{ ['a','a'] | map('replace', 'a', bump()) | join(',') }}",
            "1,1",
        ),
        (
            "{{ ['1','1','2'] | select('equalto', bump()) | join(',') }}",
            "1,1",
        ),
        ("{{ 'x' | default(bump()) }}{{ ns.n }}", "x1"),
    ] {
        let source = format!("{BUMP}{source}");
        if let Ok(text) = render_with(&source, VALUES) {
            assert_eq!(text, expected, "{source}");
        }
    }
}

#[test]
fn names_that_come_twice_and_names_of_blocks() {
    for (source, expected) in [
        ("{% for a, a in [[1,2]] %}{{ a }}{% endfor %}", "2"),
        ("{% with a=1, a=2 %}{{ a }}{% endwith %}", "2"),
        (
            "{% for i in [1] %}{{ n }}{% endfor %}{% if o %}{% filter replace('a', n) %}{% endfilter %}{% endif %}{% set n = 5 %}{{ n }}",
            "35",
        ),
        (
            "{% macro f() %}{% endmacro %}{% for i in [1] %}{{ n }}{% endfor %}{% if o %}{% call f(n) %}{% endcall %}{% endif %}{% set n = 5 %}",
            "3",
        ),
        // Methods that change a dict can't be reached.
        (
            "{{ 'y' if d.update else 'n' }}{{ d.update is defined }}{{ d.pop is defined }}{{ d.update }}{{ d.keys is defined }}",
            "nFalseFalseTrue",
        ),
    ] {
        assert_eq!(render_with(source, VALUES).unwrap(), expected, "{source}");
    }
    // Classes that no template is known to use.
    for name in ["cycler", "joiner", "lipsum"] {
        render_with(&format!("{{{{ {name} is defined }}}}"), VALUES).unwrap_err();
    }
    let kinds = "{{ ['a','b','c'][-1] }}{{ 'x</t>y</t>z'.split('</t>')[-1] }}{{ -(-3) }}";
    assert_eq!(render_with(kinds, VALUES).unwrap(), "cz3");
}

#[test]
fn a_split_pays_before_it_takes_memory() {
    let values = format!(r#"{{"s":"{}"}}"#, "|".repeat(1_000_000));
    let template = ChatTemplate::compile("{{ s.split('|') | length }}", None).unwrap();
    let (Json::Object(entries), _) = Json::parse(&values).unwrap() else {
        panic!("no object")
    };
    let context = Context(vec![("s", Datum::from_json(&entries[0].1))]);
    let now = LocalTime::from_date(2024, 7, 26);
    let plan = template.plan.as_ref().unwrap();
    assert!(plan.run(&context, now, 0).is_none());
}
