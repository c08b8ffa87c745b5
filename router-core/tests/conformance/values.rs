//! JSON at random: texts, numbers and schemas that are hard on a renderer.

use crate::tree::{Rng, Tree};

const PIECES: [&str; 64] = [
    "Hello",
    "world",
    " ",
    "  ",
    "\n",
    "\n\n",
    "\r\n",
    "\r",
    "\t",
    "\u{a0}",
    "\u{3000}",
    "\u{2003}",
    "\u{200b}",
    "\u{85}",
    "\u{2028}",
    "\u{1c}",
    "\u{1f}",
    "\u{b}",
    "\u{c}",
    "\u{feff}",
    "é",
    "e\u{301}",
    "ß",
    "İ",
    "ı",
    "ǆ",
    "ﬁ",
    "Σ",
    "ς",
    "世界",
    "مرحبا",
    "नमस्ते",
    "👩‍👩‍👧",
    "😀",
    "²",
    "½",
    "Ⅷ",
    "<think>",
    "</think>",
    "<|im_start|>",
    "<|im_end|>",
    "</s>",
    "<s>",
    "[IN]",
    "<result>",
    "</result>",
    "{{ x }}",
    "{% raw %}",
    "{# c #}",
    "'",
    "\"",
    "\\",
    "\\n",
    "<a href='x'>&amp;",
    "%s",
    "%",
    "{}",
    "\u{0}",
    "\u{7f}",
    ".",
    "!",
    "?",
    "42",
    "-",
];

const NUMBERS: [&str; 30] = [
    "0",
    "1",
    "-1",
    "7",
    "42",
    "-0",
    "0.0",
    "-0.0",
    "1.0",
    "2.5",
    "-3.75",
    "0.1",
    "1e3",
    "1E-7",
    "1e16",
    "1e15",
    "123456789.125",
    "1e22",
    "1e300",
    "5e-324",
    "9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775809",
    "18446744073709551616",
    "170141183460469231731687303715884105728",
    "340282366920938463463374607431768211456",
    "123456789012345678901234567890123456789012345678901234567890",
    "-123456789012345678901234567890123456789012345",
    "100",
];

const KEYS: [&str; 26] = [
    "a",
    "b",
    "x",
    "type",
    "properties",
    "items",
    "description",
    "required",
    "enum",
    "anyOf",
    "name",
    "keys",
    "values",
    "get",
    "content",
    "role",
    "é",
    "with space",
    "query",
    "city",
    "default",
    "text",
    "",
    "update",
    "pop",
    "Z",
];

const TYPES: [&str; 7] = [
    "string", "integer", "number", "object", "array", "boolean", "null",
];

pub(crate) fn text(rng: &mut Rng) -> String {
    let length = match rng.below(8) {
        0 => 0,
        1..=4 => 1 + rng.below(3),
        _ => rng.below(10),
    };
    (0..length).map(|_| rng.pick(&PIECES)).collect()
}

/// Any JSON.
pub(crate) fn json(rng: &mut Rng, depth: usize) -> Tree {
    match rng.below(if depth == 0 { 7 } else { 10 }) {
        0 => Tree::null(),
        1 => Tree::flag(rng.one_in(2)),
        2 | 3 => Tree::Word(rng.pick(&NUMBERS).to_owned()),
        4..=6 => Tree::Text(text(rng)),
        7 => {
            let length = rng.below(4);
            Tree::List((0..length).map(|_| json(rng, depth - 1)).collect())
        }
        _ => object(rng, depth),
    }
}

/// An object with distinct keys.
pub(crate) fn object(rng: &mut Rng, depth: usize) -> Tree {
    let mut entries: Vec<(String, Tree)> = Vec::new();
    let length = if rng.one_in(40) { 30 } else { rng.below(5) };
    for i in 0..length {
        let key = if rng.one_in(6) {
            format!("{}{i}", text(rng))
        } else {
            rng.pick(&KEYS).to_owned()
        };
        if entries.iter().all(|(other, _)| *other != key) {
            entries.push((key, json(rng, depth.saturating_sub(1))));
        }
    }
    Tree::Object(entries)
}

/// A schema as tools have it, now and then an odd one.
pub(crate) fn schema(rng: &mut Rng, depth: usize) -> Tree {
    if rng.one_in(12) {
        return json(rng, 1);
    }
    let mut schema = Tree::Object(Vec::new());
    let kind = if depth == 0 {
        rng.pick(&TYPES[..3])
    } else {
        rng.pick(&TYPES)
    };
    match rng.below(8) {
        0 => schema.set(
            "type",
            Tree::List(vec![Tree::text(kind), Tree::text("null")]),
        ),
        1 if depth > 0 => schema.set(
            "anyOf",
            Tree::List((0..2).map(|_| self::schema(rng, depth - 1)).collect()),
        ),
        _ => schema.set("type", Tree::text(kind)),
    }
    if kind == "object" || depth > 1 {
        let mut properties = Vec::new();
        for i in 0..rng.below(4) {
            properties.push((
                format!("{}{i}", rng.pick(&KEYS)),
                self::schema(rng, depth.saturating_sub(1)),
            ));
        }
        let names: Vec<Tree> = properties
            .iter()
            .take(rng.below(3))
            .map(|(name, _)| Tree::text(name.as_str()))
            .collect();
        schema.set("properties", Tree::Object(properties));
        if rng.one_in(2) {
            schema.set("required", Tree::List(names));
        }
    }
    if kind == "array" {
        schema.set("items", self::schema(rng, depth.saturating_sub(1)));
    }
    if rng.one_in(3) {
        schema.set("description", Tree::Text(text(rng)));
    }
    if rng.one_in(5) {
        schema.set(
            "enum",
            Tree::List((0..=rng.below(3)).map(|_| json(rng, 0)).collect()),
        );
    }
    if rng.one_in(6) {
        schema.set("default", json(rng, 1));
    }
    schema
}

/// A number that templates compute with.
pub(crate) fn limit(rng: &mut Rng) -> String {
    loop {
        let number = rng.pick(&NUMBERS);
        if number.len() < 25 {
            return number.to_owned();
        }
    }
}
