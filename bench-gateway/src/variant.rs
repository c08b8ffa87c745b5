//! What is compared: one Envoy each.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context;
use prefixway::demo::envoy::{Balancing, Envoy, Filter, INDEXER, Settings, render};
use serde_json::json;

const BUFFER: &str = r#"          - name: envoy.filters.http.buffer
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer
              max_request_bytes: 33554432
"#;
/// The least that a picker needs: the whole body, and neither headers nor answers.
const EXT_PROC: &str = r#"          - name: envoy.filters.http.ext_proc
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor
              grpc_service: {envoy_grpc: {cluster_name: ext_proc}}
              message_timeout: 10s
              processing_mode: {request_header_mode: SKIP, response_header_mode: SKIP, request_body_mode: BUFFERED}
"#;
/// Where filters begin and end in the configuration.
const FIRST: &str = "          - name: prefixway\n";
const LAST: &str = "          - name: envoy.filters.http.router\n";

/// What stands between client and engines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing.
    Plain,
    /// A filter that holds the body until it is whole.
    Buffer,
    /// A server that is given the body and names an endpoint.
    ExtProc(SocketAddr),
    /// Our filter; where its indexer is.
    Prefixway(SocketAddr),
    /// Another wasm module in our filter's place, with the same indexer.
    Module(PathBuf, SocketAddr),
}

/// One Envoy.
pub(crate) struct Variant {
    /// Its name in the table.
    pub name: String,
    pub kind: Kind,
    pub envoy: Envoy,
    /// Threads of this process that work for it.
    pub threads: String,
}

/// Starts an Envoy with one worker.
///
/// # Errors
/// When it doesn't start, with the end of its log.
pub(crate) async fn start(
    name: &str,
    kind: Kind,
    threads: &str,
    engines: &[SocketAddr],
    folder: &Path,
) -> anyhow::Result<Variant> {
    let folder = folder.join(name.replace(' ', "-"));
    std::fs::create_dir_all(&folder)?;
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let filter = |cluster: &str, address| Filter {
        module: prefixway_e2e::rig::module().unwrap_or_default(),
        plugin: json!({"indexers": [cluster]}),
        indexers: vec![(cluster.to_owned(), address)],
    };
    let balancing = match kind.clone() {
        Kind::Plain | Kind::Buffer => Balancing::LeastRequest,
        Kind::ExtProc(address) => Balancing::Prefixway(filter("ext_proc", address)),
        Kind::Prefixway(address) => Balancing::Prefixway(filter(INDEXER, address)),
        Kind::Module(module, address) => Balancing::Prefixway(Filter {
            module,
            ..filter(INDEXER, address)
        }),
    };
    let settings = Settings {
        balancing,
        engines: engines.to_vec(),
        concurrency: 1,
    };
    let text = render(&settings, any, any)?;
    let text = match kind {
        Kind::Plain | Kind::Prefixway(_) | Kind::Module(..) => text,
        Kind::Buffer => text.replace(LAST, &format!("{BUFFER}{LAST}")),
        Kind::ExtProc(_) => {
            let (before, rest) = text.split_once(FIRST).context("no filter to replace")?;
            let (_, after) = rest.split_once(LAST).context("no router")?;
            format!("{before}{EXT_PROC}{LAST}{after}")
        }
    };
    let binary = prefixway_e2e::rig::envoy_binary()?;
    let envoy = Envoy::start_with(&binary, &folder, &text, 1).await?;
    Ok(Variant {
        name: name.to_owned(),
        kind,
        envoy,
        threads: threads.to_owned(),
    })
}
