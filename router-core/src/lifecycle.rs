//! One request's way through the gateway, and when it counts as load.
//!
//! ```text
//!         Headers(other)
//!  Idle ─────────────────────────────────────────► Passing ──┐
//!    │ Headers(known)                                 ▲      │
//!    ▼             Body(end): decide                  │      │ Ended
//!  Holding ──────────────────────► Deciding ─Unrouted─┘      │
//!    │                                │ Routed: load up      ▼
//!    │ Ended                          ▼         Ended       Done
//!    └──────────────────────────►  Waiting ─────────────────► ▲
//!                                     │ FirstByte: prefill done│
//!                                     ▼         Ended: load down
//!                                  Answering ─────────────────┘
//! ```
//!
//! Load goes up once, with [`Input::Routed`], and down once, with [`Input::Ended`], in whatever order the host reports things.

mod usage;

pub use usage::{HEAD_BYTES, TAIL_BYTES, Tail, Usage, is_readable};

/// One leg of a request: an endpoint that works on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leg<E> {
    /// The endpoint.
    pub endpoint: E,
    /// When the request went on, Unix time.
    pub sent_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State<E> {
    Idle,
    Holding,
    Deciding,
    Passing,
    Waiting(Leg<E>),
    Answering(Leg<E>, u32),
    Done,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input<E> {
    /// Request headers came; `known` says that the request can be routed and has a body.
    Headers {
        /// Whether to hold it.
        known: bool,
    },
    /// A piece of the request body came.
    Body {
        /// Whether it was the last.
        end: bool,
    },
    /// An endpoint was chosen and the request goes on to it.
    Routed(Leg<E>),
    /// No endpoint was chosen; the request goes on as it is.
    Unrouted,
    /// The host says which endpoint really serves the request.
    Served {
        /// That endpoint.
        endpoint: E,
    },
    /// The first byte of the response body came.
    FirstByte {
        /// Unix time.
        now_ms: u64,
    },
    /// Nothing more will happen.
    Ended {
        /// Whether the response came whole and was no error.
        complete: bool,
    },
}

/// How a routed request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Finish<E> {
    /// Endpoint that really served.
    pub endpoint: E,
    /// Time to the first byte of the response body; `None` when none came.
    pub ttft_ms: Option<u32>,
    /// Whether speculation on this request must be cancelled.
    pub failed: bool,
}

/// What to do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output<E> {
    /// Nothing.
    Nothing,
    /// Let the request pass untouched.
    Pass,
    /// Hold the request.
    Hold,
    /// Choose an endpoint, then say [`Input::Routed`] or [`Input::Unrouted`].
    Decide,
    /// Count the request as load of its endpoint.
    Start(Leg<E>),
    /// The request's load is another endpoint's.
    Move(E),
    /// Nothing is queued for prefill any more.
    Prefilled,
    /// Count the request no longer, and report how it ended.
    Finish(Finish<E>),
}

/// A request's state.
#[derive(Clone, Copy, Debug)]
pub struct Lifecycle<E> {
    state: State<E>,
}

impl<E> Default for Lifecycle<E> {
    fn default() -> Self {
        Self { state: State::Idle }
    }
}

impl<E: Copy + PartialEq> Lifecycle<E> {
    /// Whether the request counts as load now.
    pub fn is_in_flight(&self) -> bool {
        matches!(self.state, State::Waiting(_) | State::Answering(..))
    }

    /// Whether the response's first byte has come.
    pub fn is_answering(&self) -> bool {
        matches!(self.state, State::Answering(..))
    }

    /// Takes one input. An input that makes no sense in the present state changes nothing and gives [`Output::Nothing`]: the host's order of
    /// callbacks is not ours to trust.
    pub fn step(&mut self, input: Input<E>) -> Output<E> {
        #[expect(
            clippy::match_same_arms,
            reason = "one arm for each arrow of the diagram"
        )]
        let (state, output) = match (self.state, input) {
            (State::Idle, Input::Headers { known: true }) => (State::Holding, Output::Hold),
            (State::Idle, Input::Headers { known: false }) => (State::Passing, Output::Pass),
            (State::Holding, Input::Body { end: false }) => (State::Holding, Output::Hold),
            (State::Holding, Input::Body { end: true }) => (State::Deciding, Output::Decide),
            (State::Deciding | State::Holding, Input::Unrouted) => (State::Passing, Output::Pass),
            (State::Deciding, Input::Routed(leg)) => (State::Waiting(leg), Output::Start(leg)),
            (State::Waiting(leg), Input::FirstByte { now_ms }) => Self::first_byte(leg, now_ms),
            (State::Waiting(leg), Input::Served { endpoint }) if endpoint != leg.endpoint => (
                State::Waiting(Leg { endpoint, ..leg }),
                Output::Move(endpoint),
            ),
            // A response without a body is an error reply or was cut off.
            (State::Waiting(leg), Input::Ended { .. }) => Self::finish(leg, None, true),
            (State::Answering(leg, ttft_ms), Input::Ended { complete }) => {
                Self::finish(leg, Some(ttft_ms), !complete)
            }
            (_, Input::Ended { .. }) => (State::Done, Output::Nothing),
            (state, _) => (state, Output::Nothing),
        };
        self.state = state;
        output
    }

    fn first_byte(leg: Leg<E>, now_ms: u64) -> (State<E>, Output<E>) {
        let ttft_ms = u32::try_from(now_ms.saturating_sub(leg.sent_ms)).unwrap_or(u32::MAX);
        (State::Answering(leg, ttft_ms), Output::Prefilled)
    }

    fn finish(leg: Leg<E>, ttft_ms: Option<u32>, failed: bool) -> (State<E>, Output<E>) {
        let finish = Finish {
            endpoint: leg.endpoint,
            ttft_ms,
            failed,
        };
        (State::Done, Output::Finish(finish))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LEG: Leg<u8> = Leg {
        endpoint: 1,
        sent_ms: 1000,
    };

    fn routed() -> Lifecycle<u8> {
        let mut request = Lifecycle::default();
        let known = Input::Headers { known: true };
        assert_eq!(request.step(known), Output::Hold);
        assert_eq!(request.step(Input::Body { end: false }), Output::Hold);
        assert_eq!(request.step(Input::Body { end: true }), Output::Decide);
        assert_eq!(request.step(Input::Routed(LEG)), Output::Start(LEG));
        request
    }

    #[test]
    fn a_whole_answer_reports_its_time_to_first_byte() {
        let mut request = routed();
        let first = Input::FirstByte { now_ms: 1250 };
        assert_eq!(request.step(first), Output::Prefilled);
        let finish = Finish {
            endpoint: 1,
            ttft_ms: Some(250),
            failed: false,
        };
        let end = Input::Ended { complete: true };
        assert_eq!(request.step(end), Output::Finish(finish));
        assert_eq!(request.step(end), Output::Nothing);
    }

    #[test]
    fn an_answer_that_never_started_has_failed() {
        let Output::Finish(finish) = routed().step(Input::Ended { complete: true }) else {
            panic!("no finish");
        };
        assert!(finish.failed && finish.ttft_ms.is_none());
    }

    #[test]
    fn the_endpoint_that_really_serves_is_reported() {
        let mut request = routed();
        let served = Input::Served { endpoint: 2 };
        assert_eq!(request.step(served), Output::Move(2));
        assert_eq!(request.step(served), Output::Nothing);
        let Output::Finish(finish) = request.step(Input::Ended { complete: false }) else {
            panic!("no finish");
        };
        assert_eq!((finish.endpoint, finish.failed), (2, true));
    }

    #[test]
    fn what_is_not_known_passes_and_never_counts() {
        let mut request = Lifecycle::<u8>::default();
        let other = Input::Headers { known: false };
        assert_eq!(request.step(other), Output::Pass);
        for input in [
            Input::Body { end: true },
            Input::Routed(LEG),
            Input::FirstByte { now_ms: 0 },
            Input::Ended { complete: true },
        ] {
            assert_eq!(request.step(input), Output::Nothing);
        }
    }

    fn inputs() -> impl Strategy<Value = Vec<Input<u8>>> {
        let input = prop_oneof![
            any::<bool>().prop_map(|known| Input::Headers { known }),
            any::<bool>().prop_map(|end| Input::Body { end }),
            (0u8..3).prop_map(|endpoint| Input::Routed(Leg {
                endpoint,
                sent_ms: 0
            })),
            Just(Input::Unrouted),
            (0u8..3).prop_map(|endpoint| Input::Served { endpoint }),
            (0u64..10).prop_map(|now_ms| Input::FirstByte { now_ms }),
            any::<bool>().prop_map(|complete| Input::Ended { complete }),
        ];
        proptest::collection::vec(input, 0..24)
    }

    proptest! {
        #[test]
        fn load_goes_up_once_and_down_once_under_every_order_of_inputs(inputs in inputs()) {
            let mut request = Lifecycle::<u8>::default();
            let (mut started, mut finished, mut at) = (0, 0, None);
            request.step(Input::Headers { known: true });
            request.step(Input::Body { end: true });
            for input in inputs.into_iter().chain([Input::Ended { complete: true }; 2]) {
                match request.step(input) {
                    Output::Start(leg) => {
                        started += 1;
                        at = Some(leg.endpoint);
                    }
                    Output::Move(endpoint) => {
                        prop_assert!(at.is_some_and(|old| old != endpoint));
                        at = Some(endpoint);
                    }
                    Output::Finish(finish) => {
                        finished += 1;
                        prop_assert_eq!(at, Some(finish.endpoint));
                    }
                    _ => {}
                }
                prop_assert!(started <= 1 && finished <= started);
                prop_assert_eq!(request.is_in_flight(), started > finished);
            }
            prop_assert_eq!(started, finished);
        }
    }
}
