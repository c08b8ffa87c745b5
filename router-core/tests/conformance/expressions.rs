//! Templates at random: expressions over known variables, in the statements that templates use.

use std::sync::LazyLock;

use prefixway_core::text::{ModelFiles, PromptProfile};

use crate::compare::{self, Outcome};
use crate::tree::{Rng, Tree};
use crate::values;

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
            ("k", Tree::Text(values::text(rng))),
            ("n", Tree::Word(rng.below(9).to_string())),
        ]);
        if rng.one_in(2) {
            record.set("o", values::json(rng, 1));
        }
        record
    };
    let kwargs = Tree::object([
        ("s", Tree::Text(values::text(rng))),
        ("t", Tree::Text(values::text(rng))),
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
        ("w", list(rng, |rng| Tree::Text(values::text(rng)))),
        (
            "r",
            Tree::List((0..=rng.below(4)).map(|_| record(rng)).collect()),
        ),
        ("j", list(rng, |rng| values::json(rng, 1))),
        (
            "d",
            Tree::object([
                ("a", Tree::Text(values::text(rng))),
                ("b", int(rng)),
                ("items", Tree::List(vec![])),
                ("z", values::json(rng, 1)),
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
    for _ in 0..=rng.below(3) {
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
            out.extend(["{{ ", name, " }}"]);
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
            out.push_str("{{ p }}{{ q }}");
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
            let call = call
                .replace('P', &format!("({p})"))
                .replace('Q', &format!("({q})"));
            out.extend(["{{ ", &call, " }}"]);
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
            let second = rng.pick(&["3", "3", "v", "n", "q"]);
            tag(rng, out, &format!("with v = {value}, n = {second}"));
            statements(rng, out, inner);
            out.push_str("{{ n }}");
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
            out.extend(["{{ loop.", name, " }}"]);
        }
        _ => {}
    }
    out.push_str("{{ v }}");
    statements(rng, out, depth);
    if rng.one_in(4) {
        tag(rng, out, "else");
        out.push_str("none");
        if rng.one_in(2) {
            tag(rng, out, "set q = 'q'");
            statements(rng, out, depth);
        }
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
    let shapes = shapes(kind);
    let shape = shapes[rng.below(shapes.len())];
    fill(rng, shape, depth - 1)
}

/// The shapes of expressions of a kind. Capital letters in them stand for expressions: `S` for text, `I`, `F`,
/// `B` for a flag, `L`, `D`, `A` for anything.
fn shapes(kind: Kind) -> Vec<&'static str> {
    let name = match kind {
        Kind::Text => "# text",
        Kind::Int => "# int",
        Kind::Float => "# float",
        Kind::Flag => "# flag",
        Kind::List => "# list",
        Kind::Dict => "# dict",
        Kind::Any => "# any",
    };
    let lines = include_str!("expressions.txt").lines();
    lines
        .skip_while(|line| *line != name)
        .skip(1)
        .take_while(|line| !line.starts_with('#'))
        .collect()
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
            out.extend(["(", &inner, ")"]);
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
            "nope", "q", "v", "none", "d.z", "j[0]", "s", "n", "f", "l", "d", "b", "d.nope",
            "l[99]", "r[-1].o",
        ],
    };
    rng.pick(leaves).to_owned()
}
