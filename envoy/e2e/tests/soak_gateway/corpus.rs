//! What is asked: conversations that share beginnings, in several sizes and by several APIs, and requests that are wrong.

use std::time::Duration;

use bytes::Bytes;
use prefixway::random::Random;
use prefixway_e2e::rig::MODEL;
use serde_json::{Value, json};

use crate::client::{Ask, Conduct, Protocol};

/// Words of the system prompts.
const SYSTEMS: [usize; 6] = [12, 80, 400, 1_500, 5_000, 16_000];
/// Conversations below each of them that are remembered.
const CONVERSATIONS: usize = 6;
/// Turns after which a conversation starts over.
const MAX_TURNS: usize = 8;
/// Longest body that the filter is told to read, and the length of one that is longer.
pub(crate) const MAX_BODY_BYTES: usize = 1 << 20;
const TOO_LARGE: usize = MAX_BODY_BYTES + (100 << 10);

/// What a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Chat,
    StreamedChat,
    Completion,
    StreamedCompletion,
    TokenIds,
    Batch,
    Get,
    BadJson,
    UnknownModel,
    TooLarge,
}

impl Kind {
    /// Its name in the summary.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::StreamedChat => "chat, streamed",
            Self::Completion => "completion",
            Self::StreamedCompletion => "completion, streamed",
            Self::TokenIds => "token ids",
            Self::Batch => "batch of prompts",
            Self::Get => "GET",
            Self::BadJson => "no JSON",
            Self::UnknownModel => "unknown model",
            Self::TooLarge => "too large",
        }
    }

    /// Statuses that are right. A body that is too long is one the filter answers; while it knows no policy, the engine does.
    pub(crate) fn statuses(self) -> &'static [u16] {
        match self {
            Self::BadJson => &[400],
            Self::UnknownModel => &[404],
            Self::TooLarge => &[413, 400],
            _ => &[200],
        }
    }

    /// Whether a body is all of an answer with status 200.
    pub(crate) fn is_whole(self, body: &[u8]) -> bool {
        match self {
            Self::StreamedChat | Self::StreamedCompletion => {
                body.ends_with(b"data: [DONE]\n\n") || body.ends_with(b"data: [DONE]\r\n\r\n")
            }
            Self::Get => !body.is_empty(),
            _ => serde_json::from_slice::<Value>(body)
                .is_ok_and(|body| body.get("choices").is_some()),
        }
    }
}

#[derive(Debug, Default)]
struct Conversation {
    turns: Vec<String>,
}

/// Draws requests; each client has one of its own, and all share the system prompts.
#[derive(Debug)]
pub(crate) struct Corpus {
    random: Random,
    systems: Vec<String>,
    conversations: Vec<Conversation>,
}

fn words(random: &mut Random, count: usize) -> String {
    let words = (0..count).map(|_| format!("w{}", random.below(3_000)));
    words.collect::<Vec<_>>().join(" ")
}

impl Corpus {
    /// `seed` is the run's, `client` the client's number.
    pub(crate) fn new(seed: u64, client: u64) -> Self {
        let mut shared = Random::new(seed);
        let systems = SYSTEMS.map(|count| words(&mut shared, count));
        let conversations = SYSTEMS.len() * CONVERSATIONS;
        Self {
            random: Random::new(seed ^ (client + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            systems: systems.to_vec(),
            conversations: (0..conversations)
                .map(|_| Conversation::default())
                .collect(),
        }
    }

    /// A pause before the next request.
    pub(crate) fn pause(&mut self) -> Duration {
        let mean = Duration::from_millis(40);
        self.random.exponential(mean).min(Duration::from_secs(1))
    }

    /// The next request.
    pub(crate) fn draw(&mut self) -> (Kind, Ask) {
        let kind = self.kind();
        let (path, body) = self.request(kind);
        let conduct = self.conduct(kind);
        let protocol = match self.random.below(5) {
            0 | 1 => Protocol::Http1,
            2 => Protocol::Http1Chunked,
            _ => Protocol::Http2,
        };
        let ask = Ask {
            path,
            body,
            protocol,
            conduct,
        };
        (kind, ask)
    }

    fn kind(&mut self) -> Kind {
        match self.random.below(100) {
            0..25 => Kind::Chat,
            25..55 => Kind::StreamedChat,
            55..65 => Kind::Completion,
            65..75 => Kind::StreamedCompletion,
            75..82 => Kind::TokenIds,
            82..87 => Kind::Batch,
            87..91 => Kind::Get,
            91..95 => Kind::BadJson,
            95..99 => Kind::UnknownModel,
            _ => Kind::TooLarge,
        }
    }

    fn conduct(&mut self, kind: Kind) -> Conduct {
        let ms = |random: &mut Random, bound| Duration::from_millis(random.below(bound) as u64);
        // Those that are refused are to be answered.
        let is_right = kind.statuses() == [200] && kind != Kind::Get;
        match self.random.below(20) {
            0 if is_right => Conduct::LeavesSending(ms(&mut self.random, 30)),
            1 if is_right => Conduct::LeavesAfter(ms(&mut self.random, 60)),
            2 if is_right => Conduct::LeavesAfter(ms(&mut self.random, 600)),
            3 if is_right => Conduct::LeavesAtPiece(1 + self.random.below(8)),
            4 | 5 => Conduct::Slow,
            _ => Conduct::Patient,
        }
    }

    fn request(&mut self, kind: Kind) -> (&'static str, Option<Bytes>) {
        const CHAT: &str = "/v1/chat/completions";
        const COMPLETION: &str = "/v1/completions";
        // Streams end before an old listener does.
        let max_tokens = 1 + self.random.below(60);
        let body = |value: Value| Some(Bytes::from(value.to_string()));
        match kind {
            Kind::Chat | Kind::StreamedChat => {
                let messages = self.turn();
                let mut chat = json!({
                    "model": MODEL, "messages": messages, "max_tokens": max_tokens,
                    "stream": kind == Kind::StreamedChat,
                });
                if kind == Kind::StreamedChat {
                    set(&mut chat, "stream_options", json!({"include_usage": true}));
                }
                if self.random.below(10) == 0 {
                    set(&mut chat, "n", 2.into());
                }
                (CHAT, body(chat))
            }
            Kind::Completion | Kind::StreamedCompletion => {
                let prompt = self.prompt();
                let asked = json!({
                    "model": MODEL, "prompt": prompt, "max_tokens": max_tokens, "stream": kind == Kind::StreamedCompletion,
                });
                (COMPLETION, body(asked))
            }
            Kind::TokenIds => {
                let ids = self.token_ids();
                let asked = json!({"model": MODEL, "prompt": ids, "max_tokens": max_tokens});
                (COMPLETION, body(asked))
            }
            Kind::Batch => {
                let prompts: Vec<String> = (0..3).map(|_| self.prompt()).collect();
                let asked = json!({"model": MODEL, "prompt": prompts, "max_tokens": max_tokens});
                (COMPLETION, body(asked))
            }
            Kind::Get => ("/v1/models", None),
            Kind::BadJson => (CHAT, Some(Bytes::from_static(b"{\"model\": \"tiny\", "))),
            Kind::UnknownModel => {
                let asked = json!({"model": "nobody", "prompt": "x", "max_tokens": 1});
                (COMPLETION, body(asked))
            }
            Kind::TooLarge => {
                let prompt = "x ".repeat(TOO_LARGE / 2);
                (COMPLETION, body(json!({"model": MODEL, "prompt": prompt})))
            }
        }
    }

    /// Goes on with a conversation.
    fn turn(&mut self) -> Vec<Value> {
        let number = self.random.below(self.conversations.len());
        let question = words(&mut self.random, 20);
        let answer = words(&mut self.random, 30);
        let Some(conversation) = self.conversations.get_mut(number) else {
            return Vec::new();
        };
        if conversation.turns.len() >= 2 * MAX_TURNS {
            conversation.turns.clear();
        }
        conversation.turns.push(question);
        let system = self.systems.get(self.random.below(100_000) % SYSTEMS.len());
        // Long ones are rarer, as they are in life.
        let system = match self.random.below(4) {
            0 => system,
            _ => self.systems.get(number % (SYSTEMS.len() - 2)),
        };
        let mut messages = vec![json!({"role": "system", "content": system})];
        let roles = ["user", "assistant"].into_iter().cycle();
        let turns = roles.zip(&conversation.turns);
        messages.extend(turns.map(|(role, content)| json!({"role": role, "content": content})));
        conversation.turns.push(answer);
        messages
    }

    fn prompt(&mut self) -> String {
        let number = self.random.below(SYSTEMS.len() - 1);
        let more = words(&mut self.random, 20);
        format!(
            "{} {more}",
            self.systems.get(number).map_or("", String::as_str)
        )
    }

    fn token_ids(&mut self) -> Vec<u32> {
        let group = u32::try_from(self.random.below(4)).unwrap_or(0);
        let shared = (0..400).map(|at: u32| 300 + (at * 7 + group * 131) % 900);
        let length = 1 + self.random.below(100);
        let own = (0..length).map(|_| 300 + u32::try_from(self.random.below(900)).unwrap_or(0));
        shared.chain(own.collect::<Vec<_>>()).collect()
    }
}

fn set(object: &mut Value, key: &str, value: Value) {
    if let Some(keys) = object.as_object_mut() {
        keys.insert(key.to_owned(), value);
    }
}
