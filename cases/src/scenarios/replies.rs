//! Replies cut anywhere: what is read of them, and what the client gets.

use std::time::Duration;

use prefixway_core::lifecycle::{HEAD_BYTES, TAIL_BYTES};
use prefixway_core::proto::Outcome;
use prefixway_wasm_tests::Ending;
use prefixway_wasm_tests::indexer::MODEL;
use prefixway_wasm_tests::rig::destination;
use serde::Deserialize;
use serde_json::json;

use super::pods::Pod;
#[cfg(feature = "envoy")]
use super::real::{Parts, Plan, Planned, Play, Stand, block_on, pod};
use super::world::{PATH, Setup, World};
use super::{Notes, Scenario};
use crate::error::CaseError;

/// Bytes of a piece where a case says how lines end, and not where they are cut.
const PIECE_BYTES: usize = 7;
/// Ends a stream.
const END: &str = "[DONE]";

/// The case.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Replies {
    response: Reply,
    variants: Vec<Variant>,
    expect: Expect,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reply {
    status: u16,
    content_type: String,
    chunks: Vec<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Variant {
    cut: Option<Cut>,
    line_ends: Option<LineEnds>,
    space_after_colon: Option<Space>,
    content_type: Option<String>,
    status: Option<u16>,
    api: Option<OtherApi>,
    chunks: Option<Vec<String>>,
    expect: Option<VariantExpect>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
enum Cut {
    #[serde(rename = "every single byte its own chunk")]
    Bytewise,
}

#[derive(Clone, Copy, Debug, Deserialize)]
enum LineEnds {
    #[serde(rename = "CRLF")]
    CrLf,
}

#[derive(Clone, Copy, Debug, Deserialize)]
enum Space {
    #[serde(rename = "none")]
    None,
}

#[derive(Clone, Copy, Debug, Deserialize)]
enum OtherApi {
    #[serde(rename = "messages")]
    Messages,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(
    clippy::struct_field_names,
    reason = "as the files and engines spell them"
)]
struct Usage {
    prompt_tokens: u32,
    completion_tokens: u32,
    cached_tokens: u32,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct VariantExpect {
    /// Nothing: there is none to be seen.
    usage: Option<Usage>,
    parse_errors: Option<u32>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    usage: Usage,
    stream_end_seen_at: StreamEnd,
    bytes_to_client: Bytes,
    carry_over_bound_bytes: usize,
}

#[derive(Clone, Copy, Debug, Deserialize)]
enum StreamEnd {
    #[serde(rename = "the last event, not at the text that quotes the marker")]
    LastEvent,
}

#[derive(Clone, Copy, Debug, Deserialize)]
enum Bytes {
    #[serde(rename = "identical and not delayed")]
    Identical,
}

/// A reply to be sent, and what has to be seen of it.
#[derive(Clone, Debug)]
pub(super) struct Input {
    pub(super) path: &'static str,
    pub(super) is_streamed: bool,
    pub(super) status: u16,
    pub(super) content_type: String,
    pub(super) pieces: Vec<Vec<u8>>,
    usage: Option<Usage>,
}

impl Replies {
    /// The case itself and its variants.
    fn inputs(&self) -> Result<Vec<Input>, CaseError> {
        let all = [Variant::default()].into_iter();
        all.chain(self.variants.iter().cloned())
            .map(|variant| self.input(&variant))
            .collect()
    }

    fn input(&self, variant: &Variant) -> Result<Input, CaseError> {
        let base = &self.response;
        let chunks = variant.chunks.as_ref().unwrap_or(&base.chunks);
        let mut text = chunks.concat();
        let mut content_type = base.content_type.clone();
        let mut pieces: Vec<Vec<u8>> = chunks.iter().map(|text| text.clone().into()).collect();
        let mut is_streamed = true;
        if let Some(said) = &variant.content_type {
            // `application/json (not streamed), one chunk`
            let mut words = said.split([' ', ',']);
            words
                .next()
                .unwrap_or_default()
                .clone_into(&mut content_type);
            if said.contains("not streamed") {
                is_streamed = false;
                text = self.whole_body()?;
                pieces = vec![text.clone().into()];
            }
        }
        if let Some(LineEnds::CrLf) = variant.line_ends {
            text = text.replace('\n', "\r\n");
            pieces = text
                .as_bytes()
                .chunks(PIECE_BYTES)
                .map(<[u8]>::to_vec)
                .collect();
        }
        if let Some(Space::None) = variant.space_after_colon {
            let lines = text
                .split('\n')
                .map(|line| match line.strip_prefix("data: ") {
                    Some(data) => format!("data:{data}"),
                    None => line.to_owned(),
                });
            text = lines.collect::<Vec<_>>().join("\n");
            pieces = text
                .as_bytes()
                .chunks(PIECE_BYTES)
                .map(<[u8]>::to_vec)
                .collect();
        }
        if let Some(Cut::Bytewise) = variant.cut {
            pieces = text.bytes().map(|byte| vec![byte]).collect();
        }
        let usage = match &variant.expect {
            Some(expect) => {
                if expect.parse_errors.is_some_and(|errors| errors != 0) {
                    return Err(CaseError::not_understood("parse errors"));
                }
                expect.usage
            }
            None => Some(self.expect.usage),
        };
        Ok(Input {
            path: match variant.api {
                Some(OtherApi::Messages) => "/v1/messages",
                None => PATH,
            },
            is_streamed,
            status: variant.status.unwrap_or(base.status),
            content_type,
            pieces,
            usage,
        })
    }

    /// The same reply in one piece: the event that has the usage.
    fn whole_body(&self) -> Result<String, CaseError> {
        let text = self.response.chunks.concat();
        let mut events = text.lines().filter_map(|line| line.strip_prefix("data: "));
        let body = events.find(|data| data.contains("\"usage\""));
        body.map(str::to_owned)
            .ok_or_else(|| CaseError::not_understood("a reply without usage"))
    }
}

impl Input {
    /// The request that it answers.
    pub(super) fn request(&self) -> String {
        let text = "what is answered does not matter here";
        let mut body = match self.path {
            PATH => json!({"model": MODEL, "prompt": text}),
            _ => {
                json!({"model": MODEL, "max_tokens": 9, "messages": [{"role": "user", "content": text}]})
            }
        };
        if let Some(keys) = body.as_object_mut().filter(|_| self.is_streamed) {
            keys.insert("stream".to_owned(), true.into());
        }
        body.to_string()
    }

    fn text(&self) -> Vec<u8> {
        self.pieces.concat()
    }

    fn check(&self, outcome: &Outcome) -> Result<(), CaseError> {
        let seen = (
            outcome.prompt_tokens,
            outcome.completion_tokens,
            outcome.cached_tokens,
        );
        let wanted = match self.usage {
            None => (None, None, None),
            Some(usage) => (
                Some(usage.prompt_tokens),
                Some(usage.completion_tokens),
                Some(usage.cached_tokens),
            ),
        };
        if seen == wanted {
            return Ok(());
        }
        let [wanted, seen] = [wanted, seen].map(|usage| format!("{usage:?}"));
        Err(CaseError::mismatch("usage", &wanted, &seen))
    }
}

impl Scenario for Replies {
    fn wasm(&self) -> Result<Notes, CaseError> {
        let (StreamEnd::LastEvent, Bytes::Identical) =
            (self.expect.stream_end_seen_at, self.expect.bytes_to_client);
        if HEAD_BYTES + 2 * TAIL_BYTES > self.expect.carry_over_bound_bytes {
            let held = HEAD_BYTES + 2 * TAIL_BYTES;
            let bound = self.expect.carry_over_bound_bytes;
            return Err(CaseError::mismatch("bytes carried over", &bound, &held));
        }
        let mut world = World::start(&[Pod::idle("a")], &Setup::default())?;
        for input in self.inputs()? {
            let outcome = play(&mut world, &input, Ending::Complete, usize::MAX)?;
            input.check(&outcome)?;
            let text = String::from_utf8_lossy(&input.text()).into_owned();
            if !text.contains(END) {
                continue;
            }
            // Whoever leaves at the last event has missed nothing; at the text that quotes the mark the stream has not ended.
            let outcome = play(&mut world, &input, Ending::ClientAbort, usize::MAX)?;
            let quoted = text.find(END).unwrap_or(0) + END.len();
            let early = play(&mut world, &input, Ending::ClientAbort, quoted)?;
            if outcome.failed || !early.failed {
                let got = format!(
                    "after all {:?}, after {quoted} bytes {:?}",
                    outcome.failed, early.failed
                );
                return Err(CaseError::mismatch(
                    "end of the stream",
                    &"at the last event",
                    &got,
                ));
            }
        }
        let errors = world.rig.host.metric("prefixway_host_errors_total");
        if errors != 0 {
            return Err(CaseError::mismatch("errors", &0, &errors));
        }
        world.check()?;
        Ok(Notes::new())
    }

    #[cfg(feature = "envoy")]
    fn envoy(&self, parts: &Parts) -> Result<Notes, CaseError> {
        let inputs = self.inputs()?;
        let plan = Plan::new(vec![Planned::idle("a")], 2);
        block_on(async {
            let mut stand = Stand::start(parts, &plan).await?;
            for input in &inputs {
                input.real(&stand).await?;
            }
            let errors = stand.gauge("prefixway_host_errors_total").await;
            anyhow::ensure!(errors.unwrap_or(0) == 0, "{errors:?} errors");
            stand.check()
        })?;
        Ok(vec!["of usage only cached tokens are seen".to_owned()])
    }
}

#[cfg(feature = "envoy")]
impl Input {
    /// Sends the reply piece by piece, each when the client has the one before.
    async fn real(&self, stand: &Stand) -> anyhow::Result<()> {
        *pod::lock(&stand.stage.script) = pod::Script {
            status: self.status,
            content_type: self.content_type.clone(),
            pieces: self.pieces.clone(),
        };
        let counter = "prefixway_cached_tokens_total";
        let before = stand.gauge(counter).await.unwrap_or(0);
        // What Envoy itself retries comes from the next pod; there is none here, so the same one is asked again.
        let client = stand.client();
        let mut open = client
            .send(self.path, &self.request(), Play::Scripted, 0)
            .await?;
        let status = open.head().await?;
        anyhow::ensure!(status == self.status, "status {status}");
        for piece in &self.pieces {
            stand.stage.gate.add_permits(1);
            let mut came = Vec::new();
            while came.len() < piece.len() {
                came.extend(open.piece().await?.unwrap_or_default());
            }
            anyhow::ensure!(came == *piece, "{came:?} for {piece:?}");
        }
        anyhow::ensure!(open.rest().await?.is_empty(), "more came than was sent");
        let wanted = self.usage.map_or(0, |usage| u64::from(usage.cached_tokens));
        prefixway::demo::process::wait_for("cached tokens", super::real::LIMIT, async || {
            let now = stand.gauge(counter).await.unwrap_or(0);
            (now == before + wanted).then_some(())
        })
        .await?;
        Ok(())
    }
}

/// Sends a request and up to `bytes` bytes of the reply; gives what the indexer hears of it.
fn play(
    world: &mut World,
    input: &Input,
    ending: Ending,
    bytes: usize,
) -> Result<Outcome, CaseError> {
    let vm = 1;
    let sent = world.rig.post(vm, input.path, &input.request());
    let upstream = destination(&sent).unwrap_or_default().to_owned();
    let before = world.rig.host.vm(vm).held_back();
    let mut response = world
        .rig
        .host
        .vm(vm)
        .response(sent.id)
        .status(input.status)
        .header("content-type", &input.content_type)
        .upstream(&upstream);
    let mut wanted = Vec::new();
    for piece in &input.pieces {
        let room = bytes.saturating_sub(wanted.len()).min(piece.len());
        let piece = piece.get(..room).unwrap_or_default();
        if !piece.is_empty() {
            wanted.extend_from_slice(piece);
            response = response.chunk(piece);
        }
    }
    let (_, body) = match ending {
        Ending::Complete => response.end(),
        other => response.break_off(other),
    };
    let held_back = world.rig.host.vm(vm).held_back() - before;
    if body != wanted || held_back != 0 {
        let got = format!("{} bytes, {held_back} pieces held back", body.len());
        let all = format!("{} bytes, none held back", wanted.len());
        return Err(CaseError::mismatch("bytes to the client", &all, &got));
    }
    world.rig.run(Duration::from_millis(300));
    let outcome = world.rig.indexer.heard.outcomes.last();
    outcome
        .copied()
        .ok_or_else(|| CaseError::mismatch("outcome", &"one", &"none"))
}
