//! The host's callbacks of an exchange, which also those reach that let it go on when it has waited.

use std::cell::{RefCell, RefMut};
use std::rc::Rc;

use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;

use super::Exchange;
use crate::plugin::Plugin;

/// What the SDK calls.
pub(crate) struct HttpFilter(Rc<RefCell<Exchange>>);

impl HttpFilter {
    pub(crate) fn new(context: u32, plugin: &Rc<RefCell<Plugin>>) -> Self {
        let exchange =
            |me: &_| RefCell::new(Exchange::new(Clone::clone(me), context, Rc::clone(plugin)));
        Self(Rc::new_cyclic(exchange))
    }

    /// The exchange. Callbacks don't nest, so it is always free; if it were not, whatever is told would be passed over.
    fn exchange(&self) -> Option<RefMut<'_, Exchange>> {
        self.0.try_borrow_mut().ok()
    }

    fn action(&self, callback: impl FnOnce(&mut Exchange) -> Action) -> Action {
        let exchange = self.exchange();
        exchange.map_or(Action::Continue, |mut exchange| callback(&mut exchange))
    }

    fn tell(&self, callback: impl FnOnce(&mut Exchange)) -> Action {
        if let Some(mut exchange) = self.exchange() {
            callback(&mut exchange);
        }
        Action::Continue
    }
}

impl Context for HttpFilter {
    fn on_done(&mut self) -> bool {
        self.tell(Exchange::done);
        true
    }
}

impl HttpContext for HttpFilter {
    fn on_http_request_headers(&mut self, _count: usize, end_of_stream: bool) -> Action {
        self.action(|exchange| exchange.request_headers(end_of_stream))
    }

    fn on_http_request_body(&mut self, size: usize, end_of_stream: bool) -> Action {
        self.action(|exchange| exchange.request_body(size, end_of_stream))
    }

    fn on_http_request_trailers(&mut self, _count: usize) -> Action {
        self.action(Exchange::request_trailers)
    }

    fn on_http_response_headers(&mut self, _count: usize, end_of_stream: bool) -> Action {
        self.tell(|exchange| exchange.response_headers(end_of_stream))
    }

    fn on_http_response_body(&mut self, size: usize, end_of_stream: bool) -> Action {
        self.tell(|exchange| exchange.response_body(size, end_of_stream))
    }

    fn on_http_response_trailers(&mut self, _count: usize) -> Action {
        self.tell(Exchange::response_trailers)
    }

    fn on_log(&mut self) {
        self.tell(Exchange::end);
    }
}
