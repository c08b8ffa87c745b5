//! Adapts a template's source to what minijinja reads.

/// Normalises line ends as Jinja2 does, and makes the `generation` tag, which only marks the assistant's text for training, a block
/// with the same scoping.
pub(super) fn adapt(source: &str) -> String {
    let mut adapted = if source.contains('\r') {
        source.replace("\r\n", "\n").replace('\r', "\n")
    } else {
        source.to_owned()
    };
    for (tag, block) in [("generation", "with"), ("endgeneration", "endwith")] {
        if adapted.contains(tag) {
            adapted = replace_tag(&adapted, tag, block);
        }
    }
    adapted
}

/// Replaces `{% tag %}`, with any white space control, by `{% block %}`.
fn replace_tag(source: &str, tag: &str, block: &str) -> String {
    let mut replaced = String::with_capacity(source.len());
    let mut rest = source;
    while let Some((before, after)) = rest.split_once("{%") {
        replaced.push_str(before);
        replaced.push_str("{%");
        rest = after;
        let Some((inner, _)) = after.split_once("%}") else {
            break;
        };
        let name = inner.trim_start_matches(['-', '+']);
        let (open, name) = inner.split_at(inner.len() - name.len());
        let bare = name.trim_end_matches(['-', '+']);
        let (name, close) = name.split_at(bare.len());
        if name.trim() == tag {
            replaced.extend([open, " ", block, " ", close]);
            rest = after.get(inner.len()..).unwrap_or_default();
        }
    }
    replaced.push_str(rest);
    replaced
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_generation_tags_are_replaced() {
        assert_eq!(
            adapt(
                "{%- generation -%}a{% endgeneration %}\r\n{% if generation %}{{ '{% x' }}{% endif %}"
            ),
            "{%- with -%}a{% endwith %}\n{% if generation %}{{ '{% x' }}{% endif %}"
        );
    }
}
