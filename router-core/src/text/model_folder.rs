//! From a model's folder and its server's flags to ways in which prompts may be spelled.

use super::canonical::{Canonicalisation, surrounding, surrounding_by_flags};
use super::dialect::Dialect;
use super::engine_renderer::{check_jinja, has_built_in_template};
use super::error::ProfileError;
use super::messages::ContentFormat;
use super::profile::{ModelFiles, PromptProfile, Template};
use super::tokenizer::Tokenizer;
use super::tokenizer_file::{ModelConfig, TokenizerConfig, TokenizerFile};

/// A model's folder and how its server was started.
#[derive(Clone, Copy, Debug)]
pub struct ModelFolder<'a> {
    /// Tokenizer and template.
    pub files: ModelFiles<'a>,
    /// `config.json`; it tells the tokenizer's class and the renderer. Without it the class comes from `tokenizer_config.json` alone.
    pub config_json: Option<&'a str>,
    /// `chat_template.json`, the template of a multimodal model's processor, for requests without tools.
    pub processor_template_json: Option<&'a str>,
    /// Names of all files in the folder; empty where they are not known.
    pub names: &'a [&'a str],
    /// The server's flags.
    pub server: ServerFlags<'a>,
}

/// Flags of the server that change prompts.
#[derive(Clone, Copy, Debug, Default)]
pub struct ServerFlags<'a> {
    /// `--tokenizer-mode`.
    pub tokenizer_mode: Option<&'a str>,
    /// `--chat-template-content-format`, unless it is `auto`.
    pub content_format: Option<ContentFormat>,
    /// `--default-chat-template-kwargs`: the text of a JSON object.
    pub default_kwargs: Option<&'a str>,
    /// `--exclude-tools-when-tool-choice-none`.
    pub exclude_tools_when_tool_choice_none: bool,
}

/// One way in which a model's prompts may be spelled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variant {
    /// The profile that spells them so.
    pub profile: PromptProfile,
    /// What it assumes, in a few words.
    pub assumes: &'static str,
}

/// Most variants of one model.
pub const MAX_VARIANTS: usize = 12;

impl<'a> From<ModelFiles<'a>> for ModelFolder<'a> {
    fn from(files: ModelFiles<'a>) -> Self {
        Self {
            files,
            config_json: None,
            processor_template_json: None,
            names: &[],
            server: ServerFlags::default(),
        }
    }
}

impl ModelFolder<'_> {
    /// Ways to spell prompts, at least one and at most [`MAX_VARIANTS`], all different. The first is what the files say to an engine of
    /// today; the others follow releases that read the same files otherwise. A live engine tells which one holds.
    ///
    /// # Errors
    ///
    /// A file can't be read, prompts can't be followed byte by byte through this tokenizer or template, or the engine doesn't render
    /// the model through its template. Only the outline of a chat is then known ([`PromptProfile::outline`]).
    pub fn variants(&self) -> Result<Vec<Variant>, ProfileError> {
        let model = self
            .config_json
            .map_or(Ok(ModelConfig::default()), ModelConfig::read)?;
        check_jinja(&model, self.names, self.server.tokenizer_mode)?;
        let file = TokenizerFile::read(self.files.tokenizer_json)?;
        let config = TokenizerConfig::read(self.files.tokenizer_config_json)?;
        let (template, tool_template) = self.templates(&config, &model)?;
        let spell = |tokenizer: &Tokenizer<'_>, around: [String; 2]| -> Result<_, ProfileError> {
            let profile = PromptProfile {
                dialect: Dialect::Jinja,
                template: template.clone(),
                tool_template: tool_template.clone(),
                special_tokens: tokenizer.special_tokens.clone(),
                default_kwargs: None,
                exclude_tools_when_tool_choice_none: self
                    .server
                    .exclude_tools_when_tool_choice_none,
                canonicalisation: Canonicalisation::derive(tokenizer)?,
                surrounding: around,
            };
            match self.server.default_kwargs {
                Some(json) => profile.with_default_kwargs(json),
                None => Ok(profile),
            }
        };
        let loaded = Tokenizer::load(&file, &config, &model)?;
        let mut variants = Variants::default();
        let around = surrounding(&loaded)?;
        let assumes = "the tokenizer class of transformers 5";
        variants.add(spell(&loaded, around.clone())?, assumes);
        // What follows are guesses at other releases; one that can't be followed is left out.
        let other_space = loaded.with_other_leading_space();
        let as_file = Tokenizer::from_file(&file, &config).ok();
        let pipelines = [
            (Some(&loaded), assumes),
            (other_space.as_ref(), "the other default of `legacy`"),
            (as_file.as_ref(), "tokenizer.json as it stands"),
        ];
        let mut arounds = vec![around];
        arounds.extend(as_file.as_ref().and_then(|file| surrounding(file).ok()));
        arounds.extend(surrounding_by_flags(&loaded));
        arounds.push([String::new(), String::new()]);
        if let Some(begin) = loaded.special_tokens.get("bos_token") {
            arounds.push([begin.clone(), String::new()]);
        }
        for around in &arounds {
            for (tokenizer, assumes) in pipelines {
                if let Some(Ok(profile)) =
                    tokenizer.map(|tokenizer| spell(tokenizer, around.clone()))
                {
                    variants.add(profile, assumes);
                }
            }
        }
        Ok(variants.0)
    }

    /// The first of [`ModelFolder::variants`].
    ///
    /// # Errors
    ///
    /// As there.
    pub fn profile(&self) -> Result<PromptProfile, ProfileError> {
        let first = self.variants()?.into_iter().next();
        // There is always a first one.
        Ok(first.map_or_else(PromptProfile::outline, |variant| variant.profile))
    }

    /// The templates for requests without and with tools; the second only where it differs.
    fn templates(
        &self,
        config: &TokenizerConfig,
        model: &ModelConfig,
    ) -> Result<(Option<Template>, Option<Template>), ProfileError> {
        let format = self.server.content_format;
        let compile = |source: &str| Template::detect(source, format);
        // A template file, and all the more one that the server was given, takes the place of every other.
        if let Some(source) = self.files.chat_template {
            return Ok((Some(compile(source)?), None));
        }
        let own = config.template("default");
        let processor = self.processor_template_json.map(processor_template);
        let with_tools = config.template("tool_use");
        let (without, with) = match processor.transpose()? {
            Some(source) => (Some(compile(&source)?), with_tools.or(own)),
            None => (own.map(compile).transpose()?, with_tools),
        };
        if without.is_none() && with.is_none() && has_built_in_template(model) {
            return Err(ProfileError::Renderer {
                renderer: "jinja".into(),
                why: "the engine uses a template of its own, since the model brings none",
            });
        }
        let with = with.map(compile).transpose()?;
        let with = with.filter(|with| without.as_ref() != Some(with));
        Ok((without, with))
    }
}

fn processor_template(json: &str) -> Result<String, ProfileError> {
    #[derive(serde::Deserialize)]
    struct File {
        chat_template: String,
    }
    serde_json::from_str::<File>(json)
        .map(|file| file.chat_template)
        .map_err(|source| ProfileError::File {
            file: "chat_template.json",
            source,
        })
}

/// Different variants, in order.
#[derive(Default)]
struct Variants(Vec<Variant>);

impl Variants {
    fn add(&mut self, profile: PromptProfile, assumes: &'static str) {
        let is_new = self.0.iter().all(|variant| variant.profile != profile);
        if is_new && self.0.len() < MAX_VARIANTS {
            self.0.push(Variant { profile, assumes });
        }
    }
}

#[cfg(test)]
mod tests;
