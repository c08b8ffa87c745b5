use std::path::{Path, PathBuf};

use super::super::ChatTemplate;
use super::super::tests::render_twice;
use super::*;
use crate::text::datum::Datum;
use crate::text::json::Json;

const CHAT: &str = r#"{"bos_token":"<s>","eos_token":"</s>","add_generation_prompt":true,"tools":null,"messages":[
    {"role":"system","content":" Be brief. "},{"role":"user","content":"Hi\n"},
    {"role":"assistant","content":"<think>\nhm\n</think>\n\nYes?"},{"role":"user","content":"Say it"}]}"#;

/// Templates of the conformance set and of captures, by name.
fn templates() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let read = |path: PathBuf| std::fs::read_to_string(path).unwrap();
    let folder = std::fs::read_dir(root.join("conformance/templates")).unwrap();
    let mut found: Vec<(String, String)> = folder
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_stem().unwrap().display().to_string(), read(path)))
        .collect();
    for capture in ["tinybpe", "llama3_1"] {
        let path = format!("fixtures/vllm/{capture}/model/chat_template.jinja");
        found.push((capture.to_owned(), read(root.join(path))));
    }
    found
}

fn with_context<T>(json: &str, use_it: impl FnOnce(&Context<'_>) -> T) -> T {
    let (Json::Object(entries), _) = Json::parse(json).unwrap() else {
        panic!("no object")
    };
    let entries = entries
        .iter()
        .map(|(name, value)| (name.as_ref(), Datum::from_json(value)));
    use_it(&Context(entries.collect()))
}

fn now() -> LocalTime {
    LocalTime::from_date(2024, 7, 26)
}

/// What a plan makes of a template, which has to be what the template engine makes of it.
fn plan(source: &str) -> Option<String> {
    let template = ChatTemplate::compile(source, None).unwrap();
    with_context(VALUES, |context| {
        let text = render_twice(&template, context, now());
        let plan = template.plan.as_ref()?;
        let planned = plan.run(context, now(), 0);
        assert!(planned.is_none() || text.is_ok());
        planned
    })
}

const VALUES: &str = r#"{"s":" <a> b ","e":"","n":3,"z":null,"t":true,"o":false,"big":123456789012345678901234567890,"f":2.5,
    "l":[1,"x",null],"w":["b","a"],"d":{"role":"user","k":{"items":[1]},"n":-1},
    "m":[{"role":"system","content":"S"},{"role":"user","content":"q\u00e9"},{"role":"assistant","content":"x</t>y</t>z"}]}"#;

#[test]
fn usual_templates_are_run_to_their_end() {
    // Others use operations that are rare, or write lists as Python does.
    const RARE: [&str; 7] = [
        "arithmetic",
        "documents",
        "filters",
        "macros",
        "strings",
        "tests_undefined",
        "whitespace",
    ];
    let mut given_up = Vec::new();
    for (name, source) in templates() {
        let template = ChatTemplate::compile(&source, None).unwrap();
        with_context(CHAT, |context| {
            let plan = template.plan.as_ref();
            let planned = plan.and_then(|plan| plan.run(context, now(), 0));
            let text = render_twice(&template, context, now());
            if text.is_ok() && planned.is_none() && !RARE.contains(&name.as_str()) {
                given_up.push(name);
            }
        });
    }
    assert_eq!(given_up, [""; 0]);
}

#[test]
fn operations_are_run() {
    let mut given_up = Vec::new();
    for source in [
        "{{ s }}{{ n }}{{ z }}{{ t }}{{ o }}{{ big }}{{ f }}{{ nope }}{{ -n }}{{ 'a' 'b' }}",
        "{{ 'a' + s + 'b' + 'c' }}{{ n + 1 + n }}{{ (s + 'x') | trim }}{{ n ~ s ~ z ~ (t ~ 1) }}",
        "{{ n - 5 }}{{ n * -2 }}{{ -7 // n }}{{ (n - 10) % 4 }}{{ n == 3 != false }}",
        "{{ s.strip() }}|{{ s.lstrip() }}|{{ s.rstrip(' b') }}|{{ s | trim }}|{{ (s ~ '') | trim }}",
        "{{ s.startswith(' <') }}{{ s.endswith('x') }}{{ s.replace(' ', '_') }}{{ s | replace('a', 'bb') }}",
        "{{ s | upper }}{{ s.lower() }}{{ s | length }}{{ m[1].content | length }}{{ l | count }}{{ nope | length }}",
        "{{ m[2].content.split('</t>')[-1] }}{{ m[2].content.split('</t>')[0] }}{{ 'aaa'.split('aa')[-1] }}{{ ('a' ~ 'b').split('b')[0] }}",
        "{{ 'a,b,c'.split(',', 1)[1] }}{{ 'a,b,c'.rsplit(',', 1)[0] }}{{ '-'.join('a,b'.split(',')) }}{{ w | join(', ') }}",
        "{{ m[0].role }}{{ m[-1]['role'] }}{{ m[9] is defined }}{{ z.x }}{{ d['nope'] }}{{ d.get('role') }}{{ d.get('x', 'y') }}{{ d.get('x') }}",
        "{{ m[1:][0].role }}{{ m[::-1][0].role }}{{ m[1:][::-1][0].role }}{{ m[:-1] | length }}{{ m[5:] | length }}{{ s[1:-1] }}{{ m[::-1][1:][0].role }}",
        "{{ n in [1, 3] }}{{ 'x' in l }}{{ 'a' not in s }}{{ 'role' in d }}{{ d.n in (1, -1) }}{{ n in l }}{{ 1 < n <= 3 }}{{ 'a' < 'b' }}",
        "{{ s is string }}{{ d is mapping }}{{ l is sequence }}{{ l is iterable }}{{ n is number }}{{ n is integer }}{{ t is boolean }}{{ t is true }}{{ o is false }}{{ z is none }}{{ n is eq 3 }}{{ nope is undefined }}{{ strftime_now is defined }}",
        "{{ nope or 'x' }}{{ z and 1 }}{{ 'y' if not e }}{{ 'y' if e }}{{ e | default('q', true) }}{{ nope | default(n) }}{{ s | d('') }}",
        "{{ d | tojson }}{{ l | tojson(indent=2) }}{{ {'a': s, 'l': l} | tojson }}{{ [n, m[0]] | tojson | safe }}{{ m | tojson(ensure_ascii=true, separators=(',', ':')) }}",
        "{{ l[0] }}{{ l | first }}{{ w | last }}{{ [] | first }}{{ n | string + '!' }}{{ strftime_now('%d %b') }}",
        "{% for x in m if x.role != 'user' %}{{ loop.index }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.length }}{{ x.role }}{{ loop.nextitem is defined }}{{ loop.previtem is defined }}{% endfor %}",
        "{% for k, v in d.items() %}{{ k }}{{ loop.first }}{% endfor %}{% for k in d %}{{ k }}{% endfor %}{% for v in d.keys() %}{{ v }}{% endfor %}{% for k, v in d | items %}{{ k }}{% endfor %}{% for k in nope | items %}{% endfor %}",
        "{% for i in range(2, -1, -1) %}{{ i }}{% endfor %}{% for i in range(n) %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% if loop.last %}{% break %}{% endif %}{% endfor %}",
        "{% for x in nope %}{% else %}none{% endfor %}{% for x in [] %}{% endfor %}{% for x in l %}{% for y in w %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}",
        "{% set ns = namespace(a=1, b=[]) %}{% for x in m %}{% set ns.a = ns.a + 1 %}{% set ns.b = ns.b + [x.role] %}{% set ns.c = x %}{% endfor %}{{ ns.a }}{{ ns.b | join }}{{ ns.c.role }}",
        "{% set x %}a{% set y = 2 %}{{ y }}{% endset %}{{ x }}{{ y }}{% with q = 1, r = n %}{{ q + r }}{% set q = 5 %}{{ q }}{% endwith %}{{ q }}",
        "{% macro f(a, b='z', c=a) %}<{{ a }}{{ b }}{{ c }}{{ n }}>{% endmacro %}{{ f('x') }}{{ f(1, c=2) ~ f(b=3) }}{% set q = f('y') %}{{ q | length }}",
        "{% macro g(i) %}{% for x in range(2) %}{{ i }}{% if i > 0 %}{{ g(i - 1) }}{% endif %}{{ x }}{{ loop.index }}{% endfor %}{% endmacro %}{{ g(2) }}",
        "{{ m | selectattr('role', 'equalto', 'user') | map(attribute='content') | map('trim') | join('+') }}{{ (m | rejectattr('role', 'in', ['user']) | list)[0].role }}{{ l | select | join(',') if o }}{{ (w | map('upper') | first) }}",
        "{% for x in m | selectattr('content') %}{{ x.role }}{% endfor %}",
    ] {
        if plan(source).is_none() {
            given_up.push(source);
        }
    }
    assert_eq!(given_up, [""; 0]);
}

#[test]
fn names_have_jinja2s_scopes() {
    // Each right side was printed by Jinja2 3.1.6.
    for (source, expected) in [
        ("{% set n = n + 1 %}{{ n }}", "4"),
        (
            "{% for i in [1, 2] %}{% set n = n + i %}{{ n }};{% endfor %}{{ n }}",
            "4;5;3",
        ),
        (
            "{% for i in [1, 2] %}{{ q }}{% set q = i %}{{ q }}{% endfor %}{{ q }}",
            "12",
        ),
        (
            "{% set q = 0 %}{% for i in [1, 2] %}{% if i == 2 %}{% set q = i %}{% endif %}{{ q }}{% endfor %}{{ q }}",
            "020",
        ),
        ("{% if o %}{% set n = 9 %}{% endif %}{{ n }}", "3"),
        ("{% if t %}{% set n = 9 %}{% endif %}{{ n }}", "9"),
        (
            "{% for n in [1, 2] if n > 1 %}{{ n }}{% endfor %}{{ n }}",
            "23",
        ),
        (
            "{% for i in [1] %}{% for j in [1] %}{% set i = 7 %}{{ i }}{% endfor %}{{ i }}{% endfor %}",
            "71",
        ),
        (
            "{% macro f() %}{{ q }}{% set q = 2 %}{{ q }}{% endmacro %}{% set q = 1 %}{{ f() }}{{ q }}",
            "121",
        ),
        (
            "{% macro f(n) %}{{ n }}{% endmacro %}{{ f(8) }}{{ f() }}{{ n }}",
            "83",
        ),
    ] {
        assert_eq!(plan(source).as_deref(), Some(expected), "{source}");
    }
}

#[test]
fn what_is_not_known_is_given_up() {
    for source in [
        "{{ l }}",
        "{{ d }}",
        "{{ 's' + n }}",
        "{{ nope.x }}",
        "{{ s.x }}",
        "{{ s[0] }}",
        "{{ d.items }}",
        "{{ d['items'] }}",
        "{{ n / 2 }}",
        "{{ 1 == 1.0 + f }}",
        "{{ f > 2 }}",
        "{{ 7 // (n - 10) }}",
        "{{ 9223372036854775807 + n }}",
        "{{ s | title }}",
        "{{ s % 1 }}",
        "{{ m[::2] | length }}",
        "{{ s | safe + s }}",
        "{{ nope() }}",
        "{{ raise_exception(s) }}",
        "{% for x in s %}{{ x }}{% endfor %}",
        "{% for x in n %}{% endfor %}",
        "{% for a, b in l %}{% endfor %}",
        "{{ l == l }}",
        "{% macro f(a) %}{% endmacro %}{{ f(1, 2) }}",
        "{% macro f() %}a{% endmacro %}{{ f() }}{% macro f() %}b{% endmacro %}{{ f() }}",
        "{{ f() }}{% macro f() %}{% endmacro %}",
        "{% macro f(a) %}{{ f(a) }}{% endmacro %}{{ f(1) }}",
        "{{ range(3) | tojson }}",
        "{% set range = 1 %}{{ range }}",
        "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
        "{% filter upper %}a{% endfilter %}",
        "{% set s.x = 1 %}",
        "{{ loop.index }}",
        "{{ caller() }}",
    ] {
        assert_eq!(plan(source), None, "{source}");
    }
}

#[test]
fn nesting_takes_little_stack() {
    // Wasm hosts give half a megabyte and more, and take less of it than this build.
    const STACK: usize = 384 << 10;
    let in_macro = |before: &str, call: &str, after: &str| {
        format!("{{% macro f(a) %}}{before}{call}{after}{{% endmacro %}}{{{{ f(1) }}}}")
    };
    let (ifs, ends) = ("{% if n %}".repeat(20), "{% endif %}".repeat(20));
    let around = |open: &str, close: &str| {
        let call = format!("{{{{ {}f(a){} }}}}", open.repeat(20), close.repeat(20));
        in_macro("", &call, "")
    };
    let sources = [
        in_macro("", "{{ f(a) }}", ""),
        in_macro(&ifs, "{{ f(a) }}", &ends),
        in_macro("{% for x in m %}", "{% set y %}{{ f(a) }}{% endset %}", "{% endfor %}"),
        around("(n and ", ")"),
        around("(e or 'x' ~ ", ")"),
        around("(n + [", "])"),
        around("(", " | trim)"),
        around("{'a': ", "}.a"),
        "{% set ns = namespace(x=[]) %}{% for i in range(5000) %}{% set ns.x = [ns.x] %}{% endfor %}"
            .to_owned(),
    ];
    for source in sources {
        let template = ChatTemplate::compile(&source, None).unwrap();
        let plan = template.plan.as_ref().unwrap();
        let run = || with_context(VALUES, |context| plan.run(context, now(), 0));
        let text = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().stack_size(STACK);
            thread.spawn_scoped(scope, run).unwrap().join().unwrap()
        });
        assert_eq!(text, None, "{source}");
    }
}
