//! Nobody can serve, or everybody is busy.

use serde::Deserialize;

use super::pods::Pod;
#[cfg(feature = "envoy")]
use super::real::{MODEL, PATH, Parts, Plan, Planned, Play, Stand, block_on};
#[cfg(feature = "envoy")]
use super::spread::planned;
#[cfg(feature = "envoy")]
use super::world::MAX_WAITING;
use super::world::{Setup, World, prompt};
use super::{Notes, Scenario};
use crate::error::CaseError;

/// The case.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Admission {
    variants: Vec<Variant>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Variant {
    pods: Option<Vec<Pod>>,
    admission: Option<Limit>,
    router: Option<Router>,
    expect: Expect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum Limit {
    #[serde(rename = "limit configured")]
    Configured,
    #[serde(rename = "no limit configured")]
    None,
}

#[derive(Clone, Copy, Debug, Deserialize)]
enum Router {
    #[serde(rename = "shutting down")]
    ShuttingDown,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Expect {
    status: u16,
    within_ms: Option<u64>,
    retry_after: Option<RetryAfter>,
    #[serde(default)]
    not: Vec<u16>,
    picked: Option<String>,
    #[serde(rename = "new_requests_refused")]
    _new_requests_refused: Option<bool>,
    #[serde(rename = "running_streams")]
    _running_streams: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RetryAfter {
    Optional,
    Present,
}

impl Scenario for Admission {
    fn wasm(&self) -> Result<Notes, CaseError> {
        let mut notes = Notes::new();
        for variant in &self.variants {
            match (variant.router, &variant.pods) {
                (Some(Router::ShuttingDown), _) => {
                    notes.push("shutting down: the proxy drains, not the filter".to_owned());
                }
                (None, Some(pods)) => variant.wasm(pods)?,
                (None, None) => return Err(CaseError::not_understood("a variant without pods")),
            }
        }
        Ok(notes)
    }

    #[cfg(feature = "envoy")]
    fn envoy(&self, parts: &Parts) -> Result<Notes, CaseError> {
        let mut notes = Notes::new();
        for (number, variant) in self.variants.iter().enumerate() {
            let workers = if number % 2 == 0 { 2 } else { 4 };
            match (variant.router, &variant.pods) {
                (Some(Router::ShuttingDown), _) => {
                    block_on(shuts_down(parts, workers))?;
                    notes.push(
                        "shutting down: Envoy closes its listener, so new connections are refused without a status"
                            .to_owned(),
                    );
                }
                (None, Some(pods)) => block_on(variant.real(parts, pods, workers))??,
                (None, None) => return Err(CaseError::not_understood("a variant without pods")),
            }
        }
        Ok(notes)
    }
}

/// The proxy drains: streams that run finish, new ones don't begin.
#[cfg(feature = "envoy")]
async fn shuts_down(parts: &Parts, workers: u32) -> anyhow::Result<()> {
    let plan = Plan::new(vec![Planned::idle("a")], workers);
    let mut stand = Stand::start(parts, &plan).await?;
    let body = serde_json::json!({"model": MODEL, "prompt": stand.prompt}).to_string();
    let client = stand.client();
    let mut stream = client.send(PATH, &body, Play::Stream, 0).await?;
    stream.head().await?;
    stream.piece().await?;
    let url = format!("http://{}/drain_listeners", stand.envoy.admin());
    reqwest::Client::new()
        .post(url)
        .send()
        .await?
        .error_for_status()?;
    prefixway::demo::process::wait_for("refused connections", super::real::LIMIT, async || {
        let sent = client.send(PATH, &body, Play::Answer, 0).await;
        sent.is_err().then_some(())
    })
    .await?;
    stand.release();
    let rest = stream.rest().await?;
    anyhow::ensure!(rest.ends_with(b"[DONE]\n\n"), "the running stream was cut");
    stand.check()
}

#[cfg(feature = "envoy")]
impl Variant {
    async fn real(
        &self,
        parts: &Parts,
        pods: &[Pod],
        workers: u32,
    ) -> anyhow::Result<Result<(), CaseError>> {
        let mut plan = Plan::new(planned(pods)?, workers);
        if self.admission == Some(Limit::Configured) {
            plan.policy = serde_json::json!({"admission": {"max_waiting": MAX_WAITING}});
        }
        let mut stand = Stand::start(parts, &plan).await?;
        for pod in pods {
            stand.until_healthy(&pod.name, pod.is_healthy()).await?;
        }
        stand.until_scraped().await?;
        let body = serde_json::json!({"model": MODEL, "prompt": "who is there"}).to_string();
        // Connections of their own reach all workers.
        for _ in 0..4 * workers {
            let answer = stand.client().post(PATH, &body, Play::Answer, 0).await?;
            if let Err(error) = self.expect.check_status(answer.status) {
                return Ok(Err(error));
            }
            let waited_ms = u64::try_from(answer.waited.as_millis())?;
            if self.expect.within_ms.is_some_and(|bound| waited_ms > bound) {
                return Ok(Err(CaseError::mismatch(
                    "answer after ms",
                    &"in time",
                    &waited_ms,
                )));
            }
            let checked = match answer.status {
                200 => match &self.expect.picked {
                    Some(pod) if answer.header("x-engine") != Some(pod) => {
                        let got = format!("{:?}", answer.header("x-engine"));
                        Err(CaseError::mismatch("picked", pod, &got))
                    }
                    _ => Ok(()),
                },
                _ => self
                    .expect
                    .check_reply(answer.header("retry-after"), &answer.body),
            };
            if checked.is_err() {
                return Ok(checked);
            }
        }
        stand.check()?;
        Ok(Ok(()))
    }
}

impl Variant {
    fn wasm(&self, pods: &[Pod]) -> Result<(), CaseError> {
        let setup = Setup {
            has_limit: self.admission == Some(Limit::Configured),
            ..Setup::default()
        };
        let mut world = World::start(pods, &setup)?;
        for vm in 1..=setup.workers {
            let started_ns = world.rig.host.process().now_ns;
            let sent = world.send_to(vm, &super::world::body(&prompt(100)));
            let waited_ms = (world.rig.host.process().now_ns - started_ns) / 1_000_000;
            if self.expect.within_ms.is_some_and(|bound| waited_ms > bound) {
                let wanted = format!("within {:?} ms", self.expect.within_ms);
                return Err(CaseError::mismatch("answer", &wanted, &waited_ms));
            }
            match &sent.outcome.reply {
                None => {
                    // What goes on is answered by its pod.
                    let picked = world.picked(&sent)?;
                    self.expect.check_status(200)?;
                    if self
                        .expect
                        .picked
                        .as_ref()
                        .is_some_and(|pod| *pod != picked)
                    {
                        let wanted = format!("{:?}", self.expect.picked);
                        return Err(CaseError::mismatch("picked", &wanted, &picked));
                    }
                }
                Some(reply) => {
                    let status = u16::try_from(reply.status).unwrap_or(0);
                    self.expect.check_status(status)?;
                    self.expect
                        .check_reply(reply.headers.get("retry-after"), &reply.body)?;
                }
            }
        }
        world.check()
    }
}

impl Expect {
    fn check_status(&self, status: u16) -> Result<(), CaseError> {
        if status == self.status && !self.not.contains(&status) {
            return Ok(());
        }
        Err(CaseError::mismatch("status", &self.status, &status))
    }

    fn check_reply(&self, retry_after: Option<&str>, body: &[u8]) -> Result<(), CaseError> {
        let seconds = retry_after.map(str::parse::<u32>);
        let is_good = match (self.retry_after, seconds) {
            (Some(RetryAfter::Present), seconds) => matches!(seconds, Some(Ok(1..))),
            (_, seconds) => !matches!(seconds, Some(Err(_))),
        };
        if !is_good {
            let got = format!("{retry_after:?}");
            return Err(CaseError::mismatch("retry-after", &"a number", &got));
        }
        let error: serde_json::Value = serde_json::from_slice(body)?;
        let text = |key: &str| {
            let value = error.pointer(&format!("/error/{key}"));
            value.is_some_and(serde_json::Value::is_string)
        };
        if ["message", "type", "code"].into_iter().all(text) {
            return Ok(());
        }
        let got = String::from_utf8_lossy(body).into_owned();
        Err(CaseError::mismatch("body", &"an error object", &got))
    }
}
