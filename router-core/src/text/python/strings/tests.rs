use minijinja::Environment;

use super::super::call_method;

fn eval(expression: &str) -> String {
    let mut env = Environment::new();
    env.set_unknown_method_callback(call_method);
    let value = env
        .compile_expression(expression)
        .unwrap()
        .eval(())
        .unwrap();
    let mut out = String::new();
    crate::text::python::write_str(&mut out, &value).unwrap();
    out
}

#[test]
fn methods_answer_as_in_python() {
    // Each right side was printed by CPython 3.11.
    for (expression, expected) in [
        (r"'  a\x1f '.strip()", "a"),
        (r"'xxaxx'.lstrip('x')", "axx"),
        (r"'\n\na\n'.strip('\n')", "a"),
        (
            r"'a</think>b</think>c'.split('</think>')",
            "['a', 'b', 'c']",
        ),
        (r"'a</think>b'.split('</think>')[-1]", "b"),
        (r"'a,b,c'.split(',', 1)", "['a', 'b,c']"),
        (r"'a,b,c'.split(',', maxsplit=1)", "['a', 'b,c']"),
        (r"'a,b,c'.rsplit(',', 1)", "['a,b', 'c']"),
        (r"'  a  b c '.split()", "['a', 'b', 'c']"),
        (r"'  a  b c '.split(none, 1)", "['a', 'b c ']"),
        (r"'  a  b c '.rsplit(none, 1)", "['  a  b', 'c']"),
        (r"''.split()", "[]"),
        (r"''.split(',')", "['']"),
        (r"'a\nb\r\nc\n'.splitlines()", "['a', 'b', 'c']"),
        (r"'a\nb\r\nc'.splitlines(true)", r"['a\n', 'b\r\n', 'c']"),
        (r"'abc'.startswith('ab')", "True"),
        (r"'abc'.endswith(('x', 'c'))", "True"),
        (r"'abc'.removeprefix('a').removesuffix('c')", "b"),
        (r"'aaa'.replace('a', 'b', 2)", "bba"),
        (r"'ab'.replace('', '-')", "-a-b-"),
        (r"', '.join(['a', 'b'])", "a, b"),
        (r"'héllo'.find('l')", "2"),
        (r"'héllo'.rfind('l')", "3"),
        (r"'hello'.find('z')", "-1"),
        (r"'aXbX'.count('X')", "2"),
        (r"'ab'.count('')", "3"),
        (r"'a=b=c'.partition('=')", "('a', '=', 'b=c')"),
        (r"'a=b=c'.rpartition('=')", "('a=b', '=', 'c')"),
        (r"'abc'.partition('=')", "('abc', '', '')"),
        (r"'abc'.rpartition('=')", "('', '', 'abc')"),
        (r"'-42'.zfill(5)", "-0042"),
        (r"'ab'.ljust(4, '.')", "ab.."),
        (r"'ab'.rjust(4)", "  ab"),
        (r"'ab'.center(5, '.')", "..ab."),
        (r"'abc'.center(6, '.')", ".abc.."),
        (r"'hello world'.title()", "Hello World"),
        (r"'they\'re'.title()", "They'Re"),
        (r"'hELLO'.capitalize()", "Hello"),
        (r"'aB'.swapcase()", "Ab"),
        (r"'ß'.upper()", "SS"),
        (r"'12'.isdigit()", "True"),
        (r"''.isdigit()", "False"),
        (r"'aB'.islower()", "False"),
        (r"'{} {x} {{}}'.format(1, x='y')", "1 y {}"),
        (r"'{1}{0}'.format(1, 2)", "21"),
        (r"{'a': 1}.get('b', 2)", "2"),
        (r"{'a': 1}.get('b')", "None"),
        (
            r"{'a': 1, 'b': 2}.items()",
            "dict_items([('a', 1), ('b', 2)])",
        ),
        (r"{'a': 1, 'b': 2}.keys()", "dict_keys(['a', 'b'])"),
        (r"{'a': 1, 'b': 2}.values()", "dict_values([1, 2])"),
        (r"[1, 2, 1].count(1)", "2"),
        (r"[1, 2].index(2)", "1"),
    ] {
        assert_eq!(eval(expression), expected, "{expression}");
    }
}
