//! Chat requests at random: the shapes that clients send, with texts that are hard on a renderer.

use crate::tree::{Rng, Tree};
use crate::values::{json, limit, object, schema, text};

fn tool(rng: &mut Rng) -> Tree {
    let mut entries = vec![("name".to_owned(), Tree::text(format!("f{}", rng.below(9))))];
    if !rng.one_in(4) {
        entries.push((
            "description".into(),
            if rng.one_in(6) {
                Tree::null()
            } else {
                Tree::Text(text(rng))
            },
        ));
    }
    if !rng.one_in(5) {
        let parameters = if rng.one_in(8) {
            object(rng, 2)
        } else {
            schema(rng, 3)
        };
        entries.push((
            "parameters".into(),
            if matches!(parameters, Tree::Object(_)) {
                parameters
            } else {
                Tree::null()
            },
        ));
    }
    if rng.one_in(6) {
        entries.push(("strict".into(), Tree::flag(rng.one_in(2))));
    }
    if rng.one_in(8) {
        entries.push(("unknown".into(), json(rng, 1)));
    }
    if rng.one_in(3) {
        entries.reverse();
    }
    let mut tool = Tree::object([
        ("type", Tree::text("function")),
        ("function", Tree::Object(entries)),
    ]);
    if rng.one_in(12) {
        tool.set("defer_loading", Tree::flag(rng.one_in(2)));
    }
    tool
}

fn call(rng: &mut Rng) -> Tree {
    let arguments = match rng.below(10) {
        0 => String::new(),
        1 => text(rng),
        2 => json(rng, 1).json(),
        _ => object(rng, 3).json(),
    };
    let mut function = vec![
        ("name".to_owned(), Tree::text(format!("f{}", rng.below(9)))),
        ("arguments".to_owned(), Tree::Text(arguments)),
    ];
    if rng.one_in(2) {
        function.reverse();
    }
    if rng.one_in(12) {
        function.push(("extra".into(), json(rng, 0)));
    }
    let mut entries = vec![
        (
            "id".to_owned(),
            Tree::text(format!("call_{}", rng.below(100))),
        ),
        ("type".to_owned(), Tree::text("function")),
        ("function".to_owned(), Tree::Object(function)),
    ];
    if rng.one_in(3) {
        entries.reverse();
    }
    if rng.one_in(8) {
        entries.push(("index".into(), Tree::Word(rng.below(3).to_string())));
    }
    Tree::Object(entries)
}

fn part(rng: &mut Rng, role: &str, media: bool) -> Tree {
    let mut part = match rng.below(10) {
        0 if role == "assistant" => Tree::object([
            ("type", Tree::text("refusal")),
            ("refusal", Tree::Text(text(rng))),
        ]),
        1 if media => Tree::object([
            ("type", Tree::text("image_url")),
            (
                "image_url",
                Tree::object([("url", Tree::text("data:image/png;base64,AA"))]),
            ),
        ]),
        _ => Tree::object([
            ("type", Tree::text("text")),
            ("text", Tree::Text(text(rng))),
        ]),
    };
    if rng.one_in(10) {
        part.set(
            "cache_control",
            Tree::object([("type", Tree::text("ephemeral"))]),
        );
    }
    part
}

fn content(rng: &mut Rng, role: &str, media: bool) -> Tree {
    if rng.one_in(4) {
        let length = rng.below(4);
        Tree::List((0..length).map(|_| part(rng, role, media)).collect())
    } else if rng.one_in(6) {
        Tree::Text(format!("<think>{}</think>{}", text(rng), text(rng)))
    } else {
        Tree::Text(text(rng))
    }
}

fn message(rng: &mut Rng, role: &str, media: bool) -> Tree {
    let mut message = Tree::object([("role", Tree::text(role))]);
    match role {
        "assistant" => {
            match rng.below(6) {
                0 => message.set("content", Tree::null()),
                1 => {}
                _ => message.set("content", content(rng, role, false)),
            }
            if rng.one_in(3) {
                message.set(
                    "tool_calls",
                    Tree::List((0..rng.below(4)).map(|_| call(rng)).collect()),
                );
            }
            if rng.one_in(3) {
                let key = rng.pick(&["reasoning", "reasoning_content"]);
                message.set(
                    key,
                    if rng.one_in(5) {
                        Tree::null()
                    } else {
                        Tree::Text(text(rng))
                    },
                );
            }
            if rng.one_in(6) {
                message.set("refusal", Tree::null());
            }
        }
        "tool" => {
            message.set("content", content(rng, role, false));
            message.set(
                "tool_call_id",
                Tree::text(format!("call_{}", rng.below(100))),
            );
        }
        _ => message.set("content", content(rng, role, media && role == "user")),
    }
    if rng.one_in(10) {
        message.set("name", Tree::text(rng.pick(&["ann", "Bob", "f1", "é"])));
    }
    if role == "developer" && rng.one_in(3) {
        message.set("tools", Tree::List(vec![tool(rng)]));
    }
    if rng.one_in(15) {
        message.set("unknown", json(rng, 1));
    }
    message
}

fn kwargs(rng: &mut Rng) -> Tree {
    const NAMES: [&str; 24] = [
        "enable_thinking",
        "keep_thinking",
        "show_roles",
        "today",
        "date_string",
        "builtin",
        "builtin_tools",
        "custom_functions",
        "functions_in_user",
        "tools_in_user_message",
        "default_opening",
        "number_images",
        "limit",
        "citation_mode",
        "fail_on",
        "bos_token",
        "documents",
        "tools",
        "reasoning_effort",
        "add_generation_prompt",
        "range",
        "namespace",
        "unused",
        "system_message",
    ];
    let mut kwargs: Vec<(String, Tree)> = Vec::new();
    for _ in 0..=rng.below(3) {
        let name = rng.pick(&NAMES).to_owned();
        let value = match name.as_str() {
            "builtin" | "builtin_tools" => {
                Tree::List(vec![Tree::text("interpreter"), Tree::Text(text(rng))])
            }
            "limit" => Tree::Word(limit(rng)),
            "fail_on" => Tree::text(rng.pick(&[
                "attribute",
                "item",
                "call",
                "plus",
                "none",
                "concat",
                "filter",
                "json",
                "raise",
                "zero",
                "method",
                "append",
                "private",
                "loop",
                "unpack",
                "index",
                "length",
            ])),
            "today" | "date_string" | "bos_token" => Tree::Text(text(rng)),
            "documents" | "tools" | "custom_functions" if !rng.one_in(4) => {
                Tree::List(vec![object(rng, 2)])
            }
            "documents" | "tools" => continue,
            "add_generation_prompt" => Tree::flag(rng.one_in(2)),
            "citation_mode" => Tree::text(rng.pick(&["fast", "accurate", "auto"])),
            _ if rng.one_in(3) => json(rng, 1),
            _ => Tree::flag(rng.one_in(2)),
        };
        if kwargs.iter().all(|(other, _)| *other != name) {
            kwargs.push((name, value));
        }
    }
    Tree::Object(kwargs)
}

/// The body of a chat request; `media`: for a template that knows images.
pub(crate) fn body(rng: &mut Rng, media: bool) -> Tree {
    let media = media && rng.one_in(4);
    let mut messages = Vec::new();
    if rng.one_in(2) {
        messages.push(message(rng, "system", false));
    }
    let orderly = !rng.one_in(3);
    for i in 0..=rng.below(6) {
        let role = if orderly {
            if i % 2 == 0 { "user" } else { "assistant" }
        } else {
            rng.pick(&[
                "user",
                "user",
                "assistant",
                "assistant",
                "tool",
                "system",
                "developer",
                "critic",
            ])
        };
        messages.push(message(rng, role, media));
        if orderly && role == "assistant" && rng.one_in(3) {
            messages.push(message(rng, "tool", false));
        }
    }
    let mut body = Tree::object([
        ("model", Tree::text("m")),
        ("messages", Tree::List(messages)),
    ]);
    if rng.one_in(3) {
        body.set(
            "tools",
            Tree::List((0..=rng.below(3)).map(|_| tool(rng)).collect()),
        );
    }
    if rng.one_in(4) {
        body.set("chat_template_kwargs", kwargs(rng));
    }
    if rng.one_in(8) {
        let mut documents = Vec::new();
        for _ in 0..=rng.below(3) {
            let mut document = Tree::object([("text", Tree::Text(text(rng)))]);
            if rng.one_in(2) {
                document.set("title", Tree::Text(text(rng)));
            }
            documents.push(document);
        }
        body.set("documents", Tree::List(documents));
    }
    if rng.one_in(10) {
        body.set(
            "reasoning_effort",
            Tree::text(rng.pick(&["none", "low", "medium", "high"])),
        );
    }
    match rng.below(8) {
        // Where the text to continue stands before an image, the engine has no place for the image.
        0 if !media => {
            body.set("add_generation_prompt", Tree::flag(false));
            body.set("continue_final_message", Tree::flag(true));
        }
        1 => body.set("add_generation_prompt", Tree::flag(rng.one_in(2))),
        2 if rng.one_in(6) => body.set("continue_final_message", Tree::flag(true)),
        _ => {}
    }
    body
}
