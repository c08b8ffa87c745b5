//! Our side of a comparison, and what counts as a difference.

use prefixway_core::text::{
    Api, ContentFormat, LocalTime, ModelFiles, ProfileError, PromptProfile, Prompter, Template,
    Unscorable, parse,
};

/// What a side makes of a request.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Outcome {
    Text(String),
    /// Text up to the first media item; more follows.
    Start(String),
    /// Why the template has no text.
    Refuses(String),
    /// Why the engine refuses the request whatever the template: what we make of such a request matters to nobody.
    Invalid(String),
    /// Nothing was found out.
    Skips(String),
}

/// The special tokens that templates are given on both sides.
pub(crate) const SPECIAL_TOKENS: [(&str, &str); 2] = [("bos_token", "<s>"), ("eos_token", "</s>")];

/// What the time is on both sides.
pub(crate) fn now() -> LocalTime {
    LocalTime::from_date(2026, 1, 1)
}

/// `now` as the other side reads it.
pub(crate) const NOW: &str = "2026-01-01T00:00:00";

/// A tokenizer file that leaves text alone.
pub(crate) const TOKENIZER: &str = r#"{"added_tokens":[],"pre_tokenizer":{"type":"ByteLevel"},"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{},"merges":[]}}"#;

/// A prompter for a template, or why it can't be compiled.
pub(crate) fn prompter(source: &str) -> Result<Prompter, ProfileError> {
    let mut profile = PromptProfile::from_model_files(&ModelFiles {
        tokenizer_json: TOKENIZER,
        tokenizer_config_json: "{}",
        chat_template: Some(source),
    })?;
    profile.special_tokens = SPECIAL_TOKENS
        .iter()
        .map(|&(name, token)| (name.to_owned(), token.to_owned()))
        .collect();
    Ok(Prompter::try_new(profile)?.keep_rendered())
}

/// A prompter like `other` for a template that takes strings.
pub(crate) fn prompter_for_strings(
    profile: &PromptProfile,
    source: &str,
) -> Result<Prompter, ProfileError> {
    let mut profile = profile.clone();
    profile.template = Some(Template {
        source: source.to_owned(),
        content_format: ContentFormat::String,
    });
    Ok(Prompter::try_new(profile)?.keep_rendered())
}

/// Renders a chat request.
pub(crate) fn render(prompter: &Prompter, body: &str) -> Outcome {
    let request = match parse(Api::Chat, body.as_bytes()) {
        Ok(request) => request,
        Err(error) => return Outcome::Refuses(error.to_string()),
    };
    match prompter.prompt(&request, now()) {
        Ok(prompt) if prompt.truncated => Outcome::Start(prompt.rendered.unwrap()),
        Ok(prompt) => Outcome::Text(prompt.rendered.unwrap()),
        Err(reason @ (Unscorable::Limit | Unscorable::LoneSurrogate)) => {
            Outcome::Skips(reason.to_string())
        }
        Err(reason) => Outcome::Refuses(reason.to_string()),
    }
}

/// Whether both sides agree.
pub(crate) fn agree(ours: &Outcome, theirs: &Outcome) -> bool {
    match (ours, theirs) {
        (Outcome::Skips(_), _)
        | (_, Outcome::Skips(_) | Outcome::Invalid(_))
        | (Outcome::Refuses(_), Outcome::Refuses(_)) => true,
        (Outcome::Text(ours), Outcome::Text(theirs)) => ours == theirs,
        (Outcome::Start(ours), Outcome::Text(theirs)) => theirs.starts_with(ours),
        _ => false,
    }
}

/// Where two outcomes part, for people.
pub(crate) fn describe(ours: &Outcome, theirs: &Outcome) -> String {
    match (ours, theirs) {
        (Outcome::Text(a) | Outcome::Start(a), Outcome::Text(b)) => {
            let at = a
                .char_indices()
                .zip(b.chars())
                .find(|((_, x), y)| x != y)
                .map_or(a.len().min(b.len()), |((at, _), _)| at);
            let around = |text: &str| {
                let from = text.floor_char_boundary(at.saturating_sub(60));
                let to = text.floor_char_boundary(at.saturating_add(60));
                text[from..to].to_owned()
            };
            format!(
                "at byte {at}:\n  ours   {:?}\n  theirs {:?}",
                around(a),
                around(b)
            )
        }
        _ => format!("\n  ours   {ours:?}\n  theirs {theirs:?}"),
    }
}
