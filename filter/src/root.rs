//! The plugin's root context: configuration, ticks and streams.

use std::cell::RefCell;
use std::rc::Rc;

use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::ContextType;

use crate::config::Config;
use crate::host::{self, Buffer};
use crate::http::HttpFilter;
use crate::plugin::Plugin;

/// One configured plugin in one VM.
pub(crate) struct RootFilter {
    id: u32,
    plugin: Option<Rc<RefCell<Plugin>>>,
}

impl RootFilter {
    /// The root context of this number, not configured yet.
    pub(crate) fn new(id: u32) -> Self {
        Self { id, plugin: None }
    }

    /// Lets requests go on that have waited for an endpoint.
    fn resume_waiting(&self) {
        let now_ns = host::now_ns();
        let mut resumed = Vec::new();
        self.with(|plugin| resumed = plugin.resume(now_ns));
        for of in resumed {
            let Some(exchange) = of.exchange.upgrade() else {
                continue;
            };
            let resumed = host::for_request(of.context, self.id, || {
                if let Ok(mut exchange) = exchange.try_borrow_mut() {
                    exchange.resume(of.judged, now_ns);
                }
            });
            if let Err(error) = resumed {
                self.with(|plugin| plugin.host_error(error));
            }
        }
    }

    fn with(&self, work: impl FnOnce(&mut Plugin)) {
        if let Some(plugin) = &self.plugin
            && let Ok(mut plugin) = plugin.try_borrow_mut()
        {
            work(&mut plugin);
        }
    }
}

impl Context for RootFilter {
    fn on_grpc_stream_message(&mut self, token: u32, size: usize) {
        self.with(|plugin| plugin.message(token, size, host::now_ms()));
    }

    fn on_grpc_stream_close(&mut self, token: u32, status: u32) {
        self.with(|plugin| plugin.stream_ended(token, status, host::now_ms()));
    }

    /// The plugin is taken away: its configuration was replaced, or the proxy ends.
    fn on_done(&mut self) -> bool {
        self.with(|plugin| plugin.end(host::now_ms()));
        true
    }
}

impl RootContext for RootFilter {
    fn on_configure(&mut self, size: usize) -> bool {
        let configured = host::buffer(Buffer::Configuration, 0, size)
            .map_err(|error| error.to_string())
            .and_then(|json| Config::from_json(&json).map_err(|error| error.to_string()));
        match configured {
            Ok(config) => {
                if let Err(error) = host::set_tick_period_ms(config.tick_ms) {
                    log::error!("no ticks, so nothing will be learned: {error}");
                }
                let plugin = Plugin::new(config);
                self.plugin = Some(Rc::new(RefCell::new(plugin)));
                true
            }
            Err(error) => {
                log::error!("configuration is refused: {error}");
                false
            }
        }
    }

    fn on_tick(&mut self) {
        let mut released = Vec::new();
        self.with(|plugin| released = plugin.tick(host::now_ms()));
        for context in released {
            if let Err(error) = host::resume_request(context, self.id) {
                self.with(|plugin| plugin.host_error(error));
            }
        }
        self.resume_waiting();
    }

    fn create_http_context(&self, context_id: u32) -> Option<Box<dyn HttpContext>> {
        match &self.plugin {
            Some(plugin) => Some(Box::new(HttpFilter::new(context_id, plugin))),
            // Without configuration nothing is touched; the SDK would panic on `None`.
            None => Some(Box::new(Untouched)),
        }
    }

    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }
}

/// An exchange of a plugin that has no configuration.
struct Untouched;

impl Context for Untouched {}
impl HttpContext for Untouched {}
