//! Templates at random: expressions over known variables, in the statements that templates use.

use std::sync::LazyLock;

use prefixway_core::text::{ModelFiles, PromptProfile};

use crate::chats;
use crate::compare::{self, Outcome};
use crate::tree::{Rng, Tree};

/// What an expression is meant to give.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Text,
    Int,
    Float,
    Flag,
    List,
    Dict,
    Any,
}

const KINDS: [Kind; 7] = [
    Kind::Text,
    Kind::Int,
    Kind::Float,
    Kind::Flag,
    Kind::List,
    Kind::Dict,
    Kind::Any,
];

/// A chat whose template arguments are the variables of [`template`].
pub(crate) fn body(rng: &mut Rng) -> Tree {
    let int = |rng: &mut Rng| {
        Tree::Word(
            rng.pick(&[
                "0",
                "1",
                "2",
                "-1",
                "3",
                "5",
                "10",
                "-7",
                "100",
                "12345678901234567890",
            ])
            .to_owned(),
        )
    };
    let float = |rng: &mut Rng| {
        Tree::Word(
            rng.pick(&[
                "0.5", "1.0", "-2.5", "3.14159", "1e16", "1e-5", "2.0", "0.1",
            ])
            .to_owned(),
        )
    };
    let list = |rng: &mut Rng, item: fn(&mut Rng) -> Tree| {
        Tree::List((0..rng.below(5)).map(|_| item(rng)).collect())
    };
    let record = |rng: &mut Rng| {
        let mut record = Tree::object([
            ("k", Tree::Text(chats::text(rng))),
            ("n", Tree::Word(rng.below(9).to_string())),
        ]);
        if rng.one_in(2) {
            record.set("o", chats::json(rng, 1));
        }
        record
    };
    let kwargs = Tree::object([
        ("s", Tree::Text(chats::text(rng))),
        ("t", Tree::Text(chats::text(rng))),
        (
            "u",
            Tree::text("The quick brown fox, it's\nover-the-lazy dog. "),
        ),
        ("n", int(rng)),
        ("m", int(rng)),
        ("f", float(rng)),
        ("g", float(rng)),
        ("b", Tree::flag(rng.one_in(2))),
        ("c", Tree::flag(true)),
        ("l", list(rng, |rng| Tree::Word(rng.below(10).to_string()))),
        ("w", list(rng, |rng| Tree::Text(chats::text(rng)))),
        (
            "r",
            Tree::List((0..1 + rng.below(4)).map(|_| record(rng)).collect()),
        ),
        ("j", list(rng, |rng| chats::json(rng, 1))),
        (
            "d",
            Tree::object([
                ("a", Tree::Text(chats::text(rng))),
                ("b", int(rng)),
                ("items", Tree::List(vec![])),
                ("z", chats::json(rng, 1)),
            ]),
        ),
        ("e", Tree::Object(vec![])),
    ]);
    Tree::object([
        (
            "messages",
            Tree::List(vec![Tree::object([
                ("role", Tree::text("user")),
                ("content", Tree::text("hi")),
            ])]),
        ),
        ("chat_template_kwargs", kwargs),
    ])
}

/// Our text of a template.
pub(crate) fn render(source: &str, body: &str) -> Outcome {
    static PROFILE: LazyLock<PromptProfile> = LazyLock::new(|| {
        PromptProfile::from_model_files(&ModelFiles {
            tokenizer_json: compare::TOKENIZER,
            tokenizer_config_json: "{}",
            chat_template: None,
        })
        .unwrap()
    });
    match compare::prompter_for_strings(&PROFILE, source) {
        Ok(prompter) => compare::render(&prompter, body),
        Err(error) => Outcome::Refuses(format!("{error}")),
    }
}

/// A template.
pub(crate) fn template(rng: &mut Rng) -> String {
    let mut out = String::new();
    for _ in 0..1 + rng.below(3) {
        statement(rng, &mut out, 2);
    }
    out
}

fn words(rng: &mut Rng) -> &'static str {
    const WORDS: [&str; 16] = [
        "", "", "", "text", " ", "\n", "  \n", "\n  ", "a b", "\t", "\n\n", " x\n", "{", "}", "'",
        "# ",
    ];
    WORDS[rng.below(WORDS.len())]
}

fn open(rng: &mut Rng) -> &'static str {
    const TAGS: [&str; 6] = ["{%", "{%", "{%-", "{%-", "{%+", "{%"];
    TAGS[rng.below(TAGS.len())]
}

fn close(rng: &mut Rng) -> &'static str {
    const TAGS: [&str; 6] = ["%}", "%}", "-%}", "-%}", "+%}", "%}"];
    TAGS[rng.below(TAGS.len())]
}

fn print(rng: &mut Rng, out: &mut String, depth: usize) {
    let kind = KINDS[rng.below(KINDS.len())];
    let expr = expr(rng, kind, depth);
    out.push_str(if rng.one_in(4) { "{{- " } else { "{{ " });
    out.push_str(&expr);
    out.push_str(if rng.one_in(4) { " -}}" } else { " }}" });
}

fn tag(rng: &mut Rng, out: &mut String, inner: &str) {
    out.push_str(open(rng));
    out.push(' ');
    out.push_str(inner);
    out.push(' ');
    out.push_str(close(rng));
}

fn statements(rng: &mut Rng, out: &mut String, depth: usize) {
    for _ in 0..rng.below(3) {
        statement(rng, out, depth);
    }
    out.push_str(words(rng));
}

fn statement(rng: &mut Rng, out: &mut String, depth: usize) {
    out.push_str(words(rng));
    if depth == 0 || rng.one_in(2) {
        print(rng, out, 3);
        out.push_str(words(rng));
        return;
    }
    let inner = depth - 1;
    match rng.below(14) {
        0 | 1 => {
            let condition = expr(rng, Kind::Flag, 2);
            tag(rng, out, &format!("if {condition}"));
            statements(rng, out, inner);
            if rng.one_in(3) {
                let condition = expr(rng, Kind::Flag, 2);
                tag(rng, out, &format!("elif {condition}"));
                statements(rng, out, inner);
            }
            if rng.one_in(2) {
                tag(rng, out, "else");
                statements(rng, out, inner);
            }
            tag(rng, out, "endif");
        }
        2..=4 => for_loop(rng, out, inner),
        5 | 6 => {
            let kind = KINDS[rng.below(KINDS.len())];
            let value = expr(rng, kind, 3);
            let name = rng.pick(&["s", "n", "v", "q", "l"]);
            tag(rng, out, &format!("set {name} = {value}"));
            out.push_str(words(rng));
            out.push_str(&format!("{{{{ {name} }}}}"));
        }
        7 => {
            let filter = if rng.one_in(2) { " | trim | upper" } else { "" };
            tag(rng, out, &format!("set v{filter}"));
            statements(rng, out, inner);
            tag(rng, out, "endset");
            out.push_str("[{{ v }}]");
        }
        8 => {
            let default = expr(rng, Kind::Any, 1);
            tag(rng, out, &format!("macro mac(p, q={default})"));
            out.push_str("{{ p }}{{ q }}{{ varargs }}");
            statements(rng, out, inner);
            tag(rng, out, "endmacro");
            let (p, q) = (expr(rng, Kind::Any, 1), expr(rng, Kind::Text, 1));
            let call = rng.pick(&[
                "mac(P)",
                "mac(P, Q)",
                "mac(q=Q)",
                "mac(P, q=Q)",
                "mac() | length",
                "mac(P) ~ Q",
                "mac(P, Q, 1)",
            ]);
            out.push_str(&format!(
                "{{{{ {} }}}}",
                call.replace('P', &format!("({p})"))
                    .replace('Q', &format!("({q})"))
            ));
        }
        9 => {
            let value = expr(rng, Kind::Int, 1);
            tag(rng, out, &format!("set ns = namespace(n={value}, t='')"));
            tag(rng, out, "for i in l");
            tag(rng, out, "set ns.n = ns.n + i");
            tag(rng, out, "set ns.t = ns.t ~ i");
            tag(rng, out, "endfor");
            out.push_str("{{ ns.n }}|{{ ns.t }}|{{ ns.nope }}");
        }
        10 => {
            let value = expr(rng, Kind::Any, 2);
            tag(rng, out, &format!("with v = {value}, n = 3"));
            statements(rng, out, inner);
            tag(rng, out, "endwith");
            out.push_str("{{ v is defined }}");
        }
        11 => {
            tag(
                rng,
                out,
                rng.clone().pick(&[
                    "generation",
                    "filter upper",
                    "filter trim",
                    "filter replace('a', 'b')",
                    "raw",
                ]),
            );
            let name = out
                .rsplit("{%")
                .next()
                .unwrap_or_default()
                .trim_matches(['-', '+', ' ', '}', '%'])
                .to_owned();
            let name = name.split(' ').next().unwrap_or_default().to_owned();
            if name == "raw" {
                out.push_str(" {{ x }} ");
            } else {
                statements(rng, out, inner);
            }
            tag(rng, out, &format!("end{name}"));
        }
        12 => {
            let comment = rng.pick(&[
                "{# c #}",
                "{#- c -#}",
                "{# {{ x }} #}",
                "  {#- c #}\n",
                "{#+ c #}",
                "{# c +#}\n",
            ]);
            out.push_str(comment);
        }
        _ => {
            let (a, b) = (expr(rng, Kind::Int, 1), expr(rng, Kind::Text, 1));
            tag(rng, out, &format!("set v, q = {a}, {b}"));
            out.push_str("{{ v }}{{ q }}");
        }
    }
    out.push_str(words(rng));
}

fn for_loop(rng: &mut Rng, out: &mut String, depth: usize) {
    let list = match rng.below(6) {
        0 => expr(rng, Kind::List, 2),
        1 => expr(rng, Kind::Any, 1),
        2 => "d.items()".to_owned(),
        3 => expr(rng, Kind::Dict, 1),
        _ => rng
            .pick(&[
                "l", "w", "r", "j", "range(3)", "r[::-1]", "l[1:]", "s", "d", "nope",
            ])
            .to_owned(),
    };
    let target = if list == "d.items()" || rng.one_in(12) {
        "k, v"
    } else {
        "v"
    };
    let condition = if rng.one_in(5) {
        format!(" if {}", expr(rng, Kind::Flag, 1))
    } else {
        String::new()
    };
    tag(rng, out, &format!("for {target} in {list}{condition}"));
    match rng.below(4) {
        0 => {
            let end = rng.pick(&["break", "continue"]);
            let when = rng.pick(&[
                "loop.first",
                "loop.index == 2",
                "loop.last",
                "v",
                "loop.index0 % 2 == 0",
            ]);
            tag(rng, out, &format!("if {when}"));
            tag(rng, out, end);
            tag(rng, out, "endif");
        }
        1 => {
            let name = rng.pick(&[
                "index",
                "index0",
                "revindex",
                "revindex0",
                "first",
                "last",
                "length",
                "depth",
                "depth0",
                "previtem",
                "nextitem",
                "cycle('a', 'b')",
                "changed(v)",
                "nope",
            ]);
            out.push_str(&format!("{{{{ loop.{name} }}}}"));
        }
        _ => {}
    }
    out.push_str("{{ v }}");
    statements(rng, out, depth);
    if rng.one_in(4) {
        tag(rng, out, "else");
        out.push_str("none");
    }
    tag(rng, out, "endfor");
}

/// An expression that should give `kind`, now and then another.
fn expr(rng: &mut Rng, kind: Kind, depth: usize) -> String {
    let kind = if rng.one_in(25) {
        KINDS[rng.below(KINDS.len())]
    } else {
        kind
    };
    if depth == 0 || rng.one_in(6) {
        return leaf(rng, kind);
    }
    let shape = match kind {
        Kind::Text => rng.pick(&TEXTS),
        Kind::Int => rng.pick(&INTS),
        Kind::Float => rng.pick(&FLOATS),
        Kind::Flag => rng.pick(&FLAGS),
        Kind::List => rng.pick(&LISTS),
        Kind::Dict => rng.pick(&DICTS),
        Kind::Any => rng.pick(&ANYS),
    };
    fill(rng, shape, depth - 1)
}

/// Replaces the capital letters of a shape by expressions of their kinds.
fn fill(rng: &mut Rng, shape: &str, depth: usize) -> String {
    let mut out = String::new();
    for letter in shape.chars() {
        let kind = match letter {
            'S' => Kind::Text,
            'I' => Kind::Int,
            'F' => Kind::Float,
            'B' => Kind::Flag,
            'L' => Kind::List,
            'D' => Kind::Dict,
            'A' => Kind::Any,
            _ => {
                out.push(letter);
                continue;
            }
        };
        let inner = expr(rng, kind, depth);
        if depth > 0 && inner.contains(' ') && !rng.one_in(5) {
            out.push_str(&format!("({inner})"));
        } else {
            out.push_str(&inner);
        }
    }
    out
}

fn leaf(rng: &mut Rng, kind: Kind) -> String {
    let leaves: &[&str] = match kind {
        Kind::Text => &[
            "s",
            "t",
            "u",
            "'abc'",
            "''",
            "\" x \"",
            "'a-b-c'",
            "'\\n'",
            "'é'",
            "'Ab cD'",
            "d.a",
            "w[0]",
            "'12'",
            "'-3.50'",
            "messages[0].role",
        ],
        Kind::Int => &[
            "n", "m", "0", "1", "2", "3", "-1", "10", "7", "l[0]", "d.b", "r[0].n",
        ],
        Kind::Float => &["f", "g", "1.5", "2.0", "0.1", "-0.5", "1e3", "3.0"],
        Kind::Flag => &["true", "false", "b", "c", "True", "False", "none"],
        Kind::List => &[
            "l",
            "w",
            "r",
            "j",
            "[]",
            "[1, 2, 3]",
            "['b', 'a']",
            "(1, 'x')",
            "range(4)",
            "messages",
        ],
        Kind::Dict => &["d", "e", "r[0]", "{'a': 1, 'b': 'x'}", "{}", "messages[0]"],
        Kind::Any => &[
            "nope", "none", "d.z", "j[0]", "s", "n", "f", "l", "d", "b", "d.nope", "l[99]",
            "r[-1].o",
        ],
    };
    rng.pick(leaves).to_owned()
}

const TEXTS: [&str; 98] = [
    "S + S",
    "S ~ S",
    "S ~ A",
    "S * I",
    "S[I]",
    "S[I:]",
    "S[:I]",
    "S[I:I]",
    "S[::-1]",
    "S[::I]",
    "S[-1]",
    "S.upper()",
    "S.lower()",
    "S.title()",
    "S.capitalize()",
    "S.swapcase()",
    "S.casefold()",
    "S.strip()",
    "S.lstrip()",
    "S.rstrip()",
    "S.strip(S)",
    "S.lstrip(S)",
    "S.rstrip(S)",
    "S.replace(S, S)",
    "S.replace(S, S, I)",
    "S.join(L)",
    "S.join(w)",
    "S.split(S)[0]",
    "S.split(S, 1)[-1]",
    "S.rsplit(S, 1)[0]",
    "S.zfill(5)",
    "S.ljust(6)",
    "S.rjust(6, '.')",
    "S.center(7)",
    "S.removeprefix(S)",
    "S.removesuffix(S)",
    "S.format(A, A)",
    "'{} {}'.format(A, A)",
    "'{0}-{1}'.format(A, S)",
    "'%s|%s' % (A, A)",
    "'%d' % I",
    "'%s' % A",
    "'%.2f' % F",
    "S | upper",
    "S | lower",
    "S | trim",
    "S | title",
    "S | capitalize",
    "S | replace(S, S)",
    "S | trim(S)",
    "S | indent(2)",
    "S | indent(2, true)",
    "S | indent(width=3, first=true, blank=true)",
    "L | join(S)",
    "L | join",
    "L | join(', ')",
    "A | string",
    "A | tojson",
    "A | tojson(indent=2)",
    "A | tojson(ensure_ascii=true)",
    "A | tojson(sort_keys=true)",
    "D | tojson(separators=(',', ':'))",
    "A | default(S)",
    "A | default(S, true)",
    "S if B else S",
    "S or S",
    "w | first",
    "w | last",
    "S | first",
    "S | last",
    "S | reverse",
    "A | string | length | string",
    "r | map(attribute='k') | join(S)",
    "S | center(9)",
    "S | truncate(5)",
    "S | wordwrap(6)",
    "S.expandtabs()",
    "S.translate({})",
    "A ~ A",
    "D.get('a', S)",
    "D['a']",
    "D.a",
    "S | e",
    "S | escape | upper",
    "S | safe",
    "S | striptags",
    "S | urlencode",
    "S | string + S",
    "messages[0].content + S",
    "S | format(A)",
    "'%s and %s' | format(A, A)",
    "'{:>5}'.format(S)",
    "'{:.1f}'.format(F)",
    "'{:d}'.format(I)",
    "'{!r}'.format(A)",
    "S.partition(S)[0]",
    "S.rpartition(S)[2]",
    "S | lower | title",
];
const INTS: [&str; 40] = [
    "I + I",
    "I - I",
    "I * I",
    "I // I",
    "I % I",
    "I ** 2",
    "-I",
    "+I",
    "I if B else I",
    "S | length",
    "L | length",
    "D | length",
    "S.find(S)",
    "S.rfind(S)",
    "S.count(S)",
    "S.index(S)",
    "S | int",
    "S | int(7)",
    "F | int",
    "A | int",
    "L | sum",
    "l | max",
    "l | min",
    "l | sum",
    "L.index(I)",
    "L.count(I)",
    "L[I]",
    "I | abs",
    "r | map(attribute='n') | sum",
    "r | sum('n')",
    "S | wordcount",
    "A | length",
    "L | count",
    "I and I",
    "I or I",
    "2 ** I",
    "S.index(S, 1)",
    "B + I",
    "D | count",
    "(F | round) | int",
];
const FLOATS: [&str; 20] = [
    "F + F",
    "F - F",
    "F * F",
    "I / I",
    "F / F",
    "F // F",
    "F % F",
    "-F",
    "F + I",
    "I * F",
    "F | round",
    "F | round(1)",
    "F | round(2, 'floor')",
    "S | float",
    "I | float",
    "F | abs",
    "F if B else F",
    "F ** 2",
    "A | float",
    "F | round(1, 'ceil')",
];
const FLAGS: [&str; 79] = [
    "not B",
    "B and B",
    "B or B",
    "I < I",
    "I <= F",
    "F > I",
    "S == S",
    "S != S",
    "S < S",
    "A == A",
    "A != A",
    "I == F",
    "S in S",
    "S not in S",
    "A in L",
    "S in D",
    "A not in L",
    "I < I < I",
    "L == L",
    "D == D",
    "L < L",
    "A is defined",
    "A is undefined",
    "A is none",
    "A is not none",
    "A is string",
    "A is mapping",
    "A is sequence",
    "A is iterable",
    "A is number",
    "A is integer",
    "A is float",
    "A is boolean",
    "A is true",
    "A is false",
    "A is callable",
    "A is sameas none",
    "A is sameas A",
    "I is odd",
    "I is even",
    "I is divisibleby 3",
    "S is lower",
    "S is upper",
    "A is eq A",
    "A is ne(A)",
    "I is gt I",
    "I is lessthan(I)",
    "A is in L",
    "S is in(S)",
    "A is not string",
    "S.startswith(S)",
    "S.endswith(S)",
    "S.startswith((S, S))",
    "S.startswith(S, 1)",
    "S.isdigit()",
    "S.isalpha()",
    "S.isspace()",
    "S.isupper()",
    "S.islower()",
    "S.isalnum()",
    "S.istitle()",
    "S.isnumeric()",
    "S.isascii()",
    "S.isidentifier()",
    "S.isprintable()",
    "S.isdecimal()",
    "'upper' is filter",
    "'nope' is test",
    "A is escaped",
    "A",
    "L",
    "S",
    "D",
    "A and A",
    "A or A",
    "not A",
    "B == I",
    "L is eq L",
    "(A is none) == B",
];
const LISTS: [&str; 72] = [
    "L + L",
    "L[I:]",
    "L[:I]",
    "L[::-1]",
    "L[I:I]",
    "L[::I]",
    "L[-2:]",
    "L * 2",
    "[A, A]",
    "[S, I]",
    "(A, A)",
    "(A,)",
    "S.split()",
    "S.split(S)",
    "S.split(S, I)",
    "S.rsplit(S, I)",
    "S.split(none, 1)",
    "S.rsplit()",
    "S.splitlines()",
    "S.splitlines(true)",
    "S.partition(S)",
    "S.rpartition(S)",
    "L | list",
    "S | list",
    "D | list",
    "D | items | list",
    "D.items() | list",
    "D.keys() | list",
    "D.values() | list",
    "D | dictsort",
    "L | sort",
    "l | sort(reverse=true)",
    "w | sort",
    "w | sort(case_sensitive=true)",
    "L | reverse | list",
    "L | unique | list",
    "w | map('upper') | list",
    "w | map('trim') | list",
    "l | map('string') | list",
    "r | map(attribute='k') | list",
    "r | map(attribute='o') | list",
    "r | map(attribute='o', default=S) | list",
    "r | selectattr('o') | list",
    "r | selectattr('n', 'gt', 4) | list",
    "r | rejectattr('o', 'defined') | list",
    "r | selectattr('k', 'equalto', S) | list",
    "l | select('odd') | list",
    "j | reject('none') | list",
    "L | select | list",
    "L | batch(2) | list",
    "L | slice(2) | list",
    "L | batch(3, 'x') | list",
    "r | groupby('n') | list",
    "r | sort(attribute='k')",
    "r | sort(attribute='n', reverse=true)",
    "range(I) | list",
    "range(1, I) | list",
    "range(5, 0, -2) | list",
    "L if B else L",
    "A | list",
    "j | map('tojson') | list",
    "r | map('length') | list",
    "w | select('string') | list",
    "l | map('float') | list",
    "D | dictsort(by='value')",
    "D | dictsort(true)",
    "D | dictsort(reverse=true)",
    "[L, D]",
    "j | select('mapping') | list",
    "w | map('replace', 'a', 'b') | list",
    "w | map('length') | sort",
    "L.copy()",
];
const DICTS: [&str; 14] = [
    "{'k': A}",
    "{S: A, 'b': I}",
    "dict(a=A)",
    "{'a': S, 'b': {'c': L}}",
    "D if B else D",
    "r | first",
    "r | last",
    "dict(D)",
    "dict(D, x=1)",
    "{'z': 1, 'a': A}",
    "{I: S}",
    "messages[0]",
    "D.copy()",
    "{'x': [A, F]}",
];
const ANYS: [&str; 26] = [
    "S",
    "I",
    "F",
    "B",
    "L",
    "D",
    "D.nope",
    "D['nope']",
    "D.get('a')",
    "D.get('nope')",
    "L[I]",
    "L | first",
    "L | last",
    "A if B else A",
    "A or A",
    "A and A",
    "D.a",
    "r[0].k",
    "A | default(A)",
    "nope",
    "(A)",
    "A if B",
    "L | random if false else none",
    "l | max",
    "w | min",
];
