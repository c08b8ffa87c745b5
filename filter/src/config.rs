//! The plugin's configuration: JSON, every key optional except `indexers`.

use prefixway_core::admission::FailureMode;
use prefixway_core::mode::Mode;
use serde_json::{Map, Value};
use thiserror::Error;

/// Request bodies longer than this are routed by load alone; the listener's own limit is usually lower.
pub(crate) const DEFAULT_MAX_BODY_BYTES: usize = 16 << 20;
/// Memory that tables may take in one VM; Envoy caps a VM at 1 GiB and memory never shrinks.
pub(crate) const DEFAULT_MAX_VM_BYTES: usize = 512 << 20;
/// Scope of plugins that name none.
pub(crate) const DEFAULT_SCOPE: &str = "default";
/// Tick period: how fast VMs see each other and the leader's news.
pub(crate) const DEFAULT_TICK_MS: u32 = 10;

/// Why a configuration is refused.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum ConfigError {
    /// Not JSON, or no object.
    #[error("configuration is not a JSON object: {0}")]
    NotAnObject(String),
    /// A key nobody reads.
    #[error("unknown key `{path}`; known here: {known}")]
    UnknownKey {
        /// Path from the root.
        path: String,
        /// Keys of the object, for the hint.
        known: String,
    },
    /// A value of another kind or range.
    #[error("`{path}` must be {expected}, not {value}")]
    Invalid {
        /// Path from the root.
        path: String,
        /// Allowed kind and range.
        expected: &'static str,
        /// The value as JSON, cut to a sensible length.
        value: String,
    },
    /// A key without default is absent.
    #[error("`{path}` is required: {expected}")]
    Missing {
        /// Path from the root.
        path: String,
        /// Allowed kind and range.
        expected: &'static str,
    },
}

/// Where a request is held until its body is whole, which decides how the choice reaches Envoy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HoldAt {
    /// At its headers: the choice is a request header. Needs `allow_on_headers_stop_iteration`.
    Headers,
    /// At its body: the headers have gone on by then, so the choice is filter state, which stock filters turn into the header.
    Body,
}

impl HoldAt {
    fn from_name(name: &str) -> Option<Self> {
        match name {
            "headers" => Some(Self::Headers),
            "body" => Some(Self::Body),
            _ => None,
        }
    }
}

/// Checked configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    /// Envoy clusters of the indexer shards, one table each; at least one.
    pub(crate) indexers: Vec<String>,
    /// Pools whose endpoints this gateway serves; empty: all.
    pub(crate) pools: Vec<String>,
    /// Separates filters that must not share data.
    pub(crate) scope: String,
    /// Upper bound of the mode.
    pub(crate) mode: Mode,
    /// Where requests are held.
    pub(crate) hold_at: HoldAt,
    /// What becomes of requests that nothing is known for, unless the policy says otherwise.
    pub(crate) failure_mode: FailureMode,
    /// Allow the explain response header.
    pub(crate) explain: bool,
    /// Tell access logs of each decision.
    pub(crate) access_log: bool,
    /// Count the copies of the tables anew each time that their checksums are told.
    pub(crate) audit: bool,
    /// Tick period in milliseconds.
    pub(crate) tick_ms: u32,
    /// Longest request body that is read.
    pub(crate) max_body_bytes: usize,
    /// Memory for tables in one VM.
    pub(crate) max_vm_bytes: usize,
}

impl Config {
    /// Reads a configuration.
    ///
    /// # Errors
    /// Names the key path, the value and what is allowed.
    pub(crate) fn from_json(json: &[u8]) -> Result<Self, ConfigError> {
        let value = serde_json::from_slice(json)
            .map_err(|error| ConfigError::NotAnObject(error.to_string()))?;
        let mut root = Object::from_value("", value)?;
        let mut limits = match root.fields.remove("limits") {
            Some(value) => Object::from_value("limits", value)?,
            None => Object::default(),
        };
        let config = Self {
            indexers: root.names("indexers")?.ok_or(ConfigError::Missing {
                path: "indexers".to_owned(),
                expected: "a list of Envoy clusters",
            })?,
            pools: root.names("pools")?.unwrap_or_default(),
            scope: root
                .text("scope")?
                .unwrap_or_else(|| DEFAULT_SCOPE.to_owned()),
            mode: root.mode()?,
            hold_at: root.hold_at()?,
            failure_mode: root.failure_mode()?,
            explain: root.flag("explain")?.unwrap_or(false),
            access_log: root.flag("access_log")?.unwrap_or(false),
            audit: root.flag("audit")?.unwrap_or(false),
            tick_ms: root.tick()?,
            max_body_bytes: limits.bytes("max_body_bytes", DEFAULT_MAX_BODY_BYTES)?,
            max_vm_bytes: limits.bytes("max_vm_bytes", DEFAULT_MAX_VM_BYTES)?,
        };
        if config.indexers.is_empty() {
            return Err(invalid(
                "indexers",
                "a list of Envoy clusters, at least one",
                &Value::Array(Vec::new()),
            ));
        }
        limits.finish("max_body_bytes, max_vm_bytes")?;
        root.finish(
            "indexers, pools, scope, mode, hold_at, failure_mode, explain, access_log, audit, tick_ms, limits",
        )?;
        Ok(config)
    }
}

/// One JSON object whose keys are taken one by one; what is left is unknown.
#[derive(Default)]
struct Object {
    path: &'static str,
    fields: Map<String, Value>,
}

fn invalid(path: &str, expected: &'static str, value: &Value) -> ConfigError {
    let text: String = value.to_string().chars().take(60).collect();
    ConfigError::Invalid {
        path: path.to_owned(),
        expected,
        value: text,
    }
}

impl Object {
    fn from_value(path: &'static str, value: Value) -> Result<Self, ConfigError> {
        match value {
            Value::Object(fields) => Ok(Self { path, fields }),
            other if path.is_empty() => Err(ConfigError::NotAnObject(
                other.to_string().chars().take(60).collect(),
            )),
            other => Err(invalid(path, "an object", &other)),
        }
    }

    fn key(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    fn take<T>(
        &mut self,
        key: &str,
        expected: &'static str,
        read: impl FnOnce(&Value) -> Option<T>,
    ) -> Result<Option<T>, ConfigError> {
        match self.fields.remove(key) {
            None => Ok(None),
            Some(value) => match read(&value) {
                Some(read) => Ok(Some(read)),
                None => Err(invalid(&self.key(key), expected, &value)),
            },
        }
    }

    fn text(&mut self, key: &str) -> Result<Option<String>, ConfigError> {
        self.take(key, "a non-empty string", |value| {
            value.as_str().filter(|s| !s.is_empty()).map(str::to_owned)
        })
    }

    fn names(&mut self, key: &str) -> Result<Option<Vec<String>>, ConfigError> {
        self.take(key, "a list of non-empty strings", |value| {
            value
                .as_array()?
                .iter()
                .map(|v| v.as_str().filter(|s| !s.is_empty()).map(str::to_owned))
                .collect()
        })
    }

    fn flag(&mut self, key: &str) -> Result<Option<bool>, ConfigError> {
        self.take(key, "true or false", Value::as_bool)
    }

    fn mode(&mut self) -> Result<Mode, ConfigError> {
        let mode = self.take("mode", "\"on\", \"shadow\" or \"off\"", |value| {
            let mode = Mode::from_name(value.as_str()?, 0)?;
            // A percentage is the policy's to set.
            (!matches!(mode, Mode::Split { .. })).then_some(mode)
        })?;
        Ok(mode.unwrap_or(Mode::On))
    }

    fn hold_at(&mut self) -> Result<HoldAt, ConfigError> {
        let place = self.take("hold_at", "\"headers\" or \"body\"", |value| {
            HoldAt::from_name(value.as_str()?)
        })?;
        Ok(place.unwrap_or(HoldAt::Headers))
    }

    fn failure_mode(&mut self) -> Result<FailureMode, ConfigError> {
        let mode = self.take("failure_mode", "\"open\" or \"closed\"", |value| {
            FailureMode::from_name(value.as_str()?)
        })?;
        Ok(mode.unwrap_or_default())
    }

    fn tick(&mut self) -> Result<u32, ConfigError> {
        let tick = self.take("tick_ms", "a number from 1 to 100", |value| {
            let ms = u32::try_from(value.as_u64()?).ok()?;
            (1..=100).contains(&ms).then_some(ms)
        })?;
        Ok(tick.unwrap_or(DEFAULT_TICK_MS))
    }

    fn bytes(&mut self, key: &str, default: usize) -> Result<usize, ConfigError> {
        let bytes = self.take(key, "a number of bytes from 1 to 1073741824", |value| {
            let bytes = usize::try_from(value.as_u64()?).ok()?;
            (1..=1 << 30).contains(&bytes).then_some(bytes)
        })?;
        Ok(bytes.unwrap_or(default))
    }

    fn finish(self, known: &str) -> Result<(), ConfigError> {
        match self.fields.keys().next() {
            None => Ok(()),
            Some(key) => Err(ConfigError::UnknownKey {
                path: self.key(key),
                known: known.to_owned(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_read() {
        let config = Config::from_json(
            br#"{"indexers":["a","b"],"pools":["p"],"scope":"s","mode":"shadow","hold_at":"body","failure_mode":"closed","explain":true,"access_log":true,"audit":true,"tick_ms":5,
                "limits":{"max_body_bytes":1000,"max_vm_bytes":2000}}"#,
        );
        let expected = Config {
            indexers: vec!["a".to_owned(), "b".to_owned()],
            pools: vec!["p".to_owned()],
            scope: "s".to_owned(),
            mode: Mode::Shadow,
            hold_at: HoldAt::Body,
            failure_mode: FailureMode::Closed,
            explain: true,
            access_log: true,
            audit: true,
            tick_ms: 5,
            max_body_bytes: 1000,
            max_vm_bytes: 2000,
        };
        assert_eq!(config, Ok(expected));
    }

    #[test]
    fn defaults_fill_everything_but_the_indexers() {
        let config = Config::from_json(br#"{"indexers":["a"]}"#).unwrap();
        assert_eq!((config.mode, config.tick_ms), (Mode::On, DEFAULT_TICK_MS));
        assert_eq!(config.hold_at, HoldAt::Headers);
        assert_eq!(config.scope, "default");
    }

    #[test]
    fn errors_name_the_path_the_value_and_what_is_allowed() {
        for (json, text) in [
            ("[1]", "configuration is not a JSON object: [1]"),
            ("{}", "`indexers` is required: a list of Envoy clusters"),
            (
                r#"{"indexers":[]}"#,
                "`indexers` must be a list of Envoy clusters, at least one, not []",
            ),
            (
                r#"{"indexers":["a"],"mode":"split"}"#,
                "`mode` must be \"on\", \"shadow\" or \"off\", not \"split\"",
            ),
            (
                r#"{"indexers":["a"],"mode":"maybe"}"#,
                "`mode` must be \"on\", \"shadow\" or \"off\", not \"maybe\"",
            ),
            (
                r#"{"indexers":["a"],"limits":{"max_body_bytes":-1}}"#,
                "`limits.max_body_bytes` must be a number of bytes from 1 to 1073741824, not -1",
            ),
            (
                r#"{"indexers":["a"],"limits":{"max_bodies":1}}"#,
                "unknown key `limits.max_bodies`; known here: max_body_bytes, max_vm_bytes",
            ),
            (
                r#"{"indexers":["a"],"indexer":1}"#,
                "unknown key `indexer`; known here: indexers, pools, scope, mode, hold_at, failure_mode, explain, access_log, audit, tick_ms, limits",
            ),
        ] {
            let error = Config::from_json(json.as_bytes()).unwrap_err();
            assert_eq!(error.to_string(), text);
        }
    }
}
