//! A streaming chat client that notes when each token came.

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::StreamExt;
use serde_json::{Value, json};
use tokio::time::Instant;

/// Longest time that one request may take.
const REQUEST_LIMIT: Duration = Duration::from_mins(1);

/// What one request brought.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reply {
    /// Name of the engine that answered (header `x-engine`); empty when none said so.
    pub engine: String,
    /// Text of the answer.
    pub text: String,
    /// Time from sending to the first token.
    pub ttft: Duration,
    /// Time from the first to the last token.
    pub decode: Duration,
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens of the prompt that the engine had in cache.
    pub cached_tokens: u64,
    /// Tokens of the answer.
    pub completion_tokens: u64,
}

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum ReplyError {
    /// No answer, or it broke off.
    #[error("the request failed")]
    Http(#[from] reqwest::Error),
    /// An answer with another status than 200.
    #[error("status {status}: {body}")]
    Status {
        /// HTTP status.
        status: u16,
        /// The answer's body, cut to 200 characters.
        body: String,
    },
    /// The stream ended before its `[DONE]`, or carried no usage.
    #[error("the answer ended early")]
    Cut,
    /// It took longer than a minute.
    #[error("no end of the answer within {REQUEST_LIMIT:?}")]
    Slow,
}

/// A client of one gateway.
#[derive(Clone, Debug)]
pub struct Client {
    http: reqwest::Client,
    url: String,
    model: String,
}

impl Client {
    /// A client for the gateway at `address` that asks for `model`.
    pub fn new(address: SocketAddr, model: &str) -> Self {
        Self {
            http: reqwest::Client::new(),
            url: format!("http://{address}/v1/chat/completions"),
            model: model.to_owned(),
        }
    }

    /// Sends one streaming chat request with `headers` besides the usual ones.
    ///
    /// # Errors
    /// [`ReplyError`]: every answer that is not a whole stream with status 200.
    pub async fn chat(
        &self,
        messages: &[Value],
        max_tokens: u32,
        headers: &[(&str, &str)],
    ) -> Result<Reply, ReplyError> {
        let body = json!({
            "model": self.model, "messages": messages, "max_tokens": max_tokens, "temperature": 0,
            "stream": true, "stream_options": {"include_usage": true},
        });
        let mut request = self.http.post(&self.url).json(&body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        tokio::time::timeout(REQUEST_LIMIT, read(request))
            .await
            .unwrap_or(Err(ReplyError::Slow))
    }
}

async fn read(request: reqwest::RequestBuilder) -> Result<Reply, ReplyError> {
    let sent = Instant::now();
    let response = request.send().await?;
    if response.status() != reqwest::StatusCode::OK {
        let status = response.status().as_u16();
        let body = response
            .text()
            .await
            .unwrap_or_default()
            .chars()
            .take(200)
            .collect();
        return Err(ReplyError::Status { status, body });
    }
    let engine = response.headers().get("x-engine");
    let mut stream = Events {
        reply: Reply {
            engine: engine
                .and_then(|name| name.to_str().ok())
                .unwrap_or_default()
                .to_owned(),
            ..Reply::default()
        },
        ..Events::default()
    };
    let mut bytes = response.bytes_stream();
    while let Some(part) = bytes.next().await {
        stream.feed(&part?, sent.elapsed());
    }
    stream.finish()
}

/// The server-sent events of one answer.
#[derive(Debug, Default)]
struct Events {
    reply: Reply,
    pending: Vec<u8>,
    first: Option<Duration>,
    last: Duration,
    usage: bool,
    done: bool,
}

impl Events {
    /// Takes the bytes that came `at` after sending; an event may be spread over several parts.
    fn feed(&mut self, part: &[u8], at: Duration) {
        self.pending.extend_from_slice(part);
        while let Some(end) = self.pending.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.pending.drain(..=end).collect();
            if let Some(data) = line.trim_ascii().strip_prefix(b"data:") {
                self.event(data.trim_ascii_start(), at);
            }
        }
    }

    fn event(&mut self, data: &[u8], at: Duration) {
        if data == b"[DONE]" {
            self.done = true;
            return;
        }
        let Ok(event) = serde_json::from_slice::<Value>(data) else {
            return;
        };
        if let Some(text) = event
            .pointer("/choices/0/delta/content")
            .and_then(Value::as_str)
            && !text.is_empty()
        {
            self.reply.text.push_str(text);
            self.first.get_or_insert(at);
            self.last = at;
        }
        if let Some(usage) = event.get("usage").filter(|usage| usage.is_object()) {
            let number = |path: &str| {
                usage
                    .pointer(path)
                    .and_then(Value::as_u64)
                    .unwrap_or_default()
            };
            self.reply.prompt_tokens = number("/prompt_tokens");
            self.reply.completion_tokens = number("/completion_tokens");
            self.reply.cached_tokens = number("/prompt_tokens_details/cached_tokens");
            self.usage = true;
        }
    }

    fn finish(mut self) -> Result<Reply, ReplyError> {
        let Some(first) = self.first.filter(|_| self.done && self.usage) else {
            return Err(ReplyError::Cut);
        };
        self.reply.ttft = first;
        self.reply.decode = self.last.saturating_sub(first);
        Ok(self.reply)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n\
        data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"b\"}}]}\n\n\
        data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2,\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\n\
        data: [DONE]\n\n";

    #[test]
    fn events_may_be_cut_anywhere() {
        for size in 1..ANSWER.len() {
            let mut events = Events::default();
            for part in ANSWER.as_bytes().chunks(size) {
                events.feed(part, Duration::from_millis(5));
            }
            let reply = events.finish().unwrap();
            assert_eq!(
                (
                    reply.text.as_str(),
                    reply.prompt_tokens,
                    reply.cached_tokens
                ),
                ("ab", 9, 4)
            );
        }
    }

    #[test]
    fn the_first_token_with_text_counts_as_the_first() {
        let mut events = Events::default();
        for (i, line) in ANSWER.lines().enumerate() {
            events.feed(
                format!("{line}\n").as_bytes(),
                Duration::from_millis(i as u64),
            );
        }
        let reply = events.finish().unwrap();
        assert_eq!((reply.ttft.as_millis(), reply.decode.as_millis()), (2, 2));
    }

    #[test]
    fn a_stream_without_its_end_is_an_error() {
        let mut events = Events::default();
        events.feed(
            ANSWER.strip_suffix("data: [DONE]\n\n").unwrap().as_bytes(),
            Duration::ZERO,
        );
        assert!(matches!(events.finish(), Err(ReplyError::Cut)));
    }
}
