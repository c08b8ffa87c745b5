//! One request's way through the gateway, and what it does to an endpoint's load.
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

pub use usage::{TAIL_BYTES, Tail, Usage};

/// One leg of a request: an endpoint that works on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leg<E> {
    /// The endpoint.
    pub endpoint: E,
    /// Tokens it has to prefill by estimate.
    pub prefill_tokens: u64,
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

/// Change of an endpoint's load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoadChange<E> {
    /// The endpoint.
    pub endpoint: E,
    /// Change of the requests in flight: -1, 0 or 1.
    pub in_flight: i32,
    /// Change of the tokens queued for prefill.
    pub prefill_tokens: i64,
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
    /// Apply one change of load.
    Load(LoadChange<E>),
    /// The request moved: take its load from the first and give it to the second.
    Move(LoadChange<E>, LoadChange<E>),
    /// Apply the change and report the outcome.
    Finish(LoadChange<E>, Finish<E>),
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

fn tokens(tokens: u64) -> i64 {
    i64::try_from(tokens).unwrap_or(i64::MAX)
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
        let (state, output) = match (self.state, input) {
            (State::Idle, Input::Headers { known: true }) => (State::Holding, Output::Hold),
            (State::Idle, Input::Headers { known: false }) => (State::Passing, Output::Pass),
            (State::Holding, Input::Body { end: false }) => (State::Holding, Output::Hold),
            (State::Holding, Input::Body { end: true }) => (State::Deciding, Output::Decide),
            (State::Deciding | State::Holding, Input::Unrouted) => (State::Passing, Output::Pass),
            (State::Deciding, Input::Routed(leg)) => (State::Waiting(leg), Self::up(leg)),
            (State::Waiting(leg), Input::FirstByte { now_ms }) => Self::first_byte(leg, now_ms),
            (State::Waiting(leg), Input::Served { endpoint }) if endpoint != leg.endpoint => {
                Self::moved(leg, endpoint)
            }
            (State::Waiting(leg), Input::Ended { complete }) => {
                // A response without a body is an error reply or was cut off.
                let _ = complete;
                (State::Done, Self::down(leg, leg.prefill_tokens, None, true))
            }
            (State::Answering(leg, ttft_ms), Input::Ended { complete }) => {
                (State::Done, Self::down(leg, 0, Some(ttft_ms), !complete))
            }
            (_, Input::Ended { .. }) => (State::Done, Output::Nothing),
            (state, _) => (state, Output::Nothing),
        };
        self.state = state;
        output
    }

    fn up(leg: Leg<E>) -> Output<E> {
        Output::Load(LoadChange {
            endpoint: leg.endpoint,
            in_flight: 1,
            prefill_tokens: tokens(leg.prefill_tokens),
        })
    }

    fn first_byte(leg: Leg<E>, now_ms: u64) -> (State<E>, Output<E>) {
        let ttft_ms = u32::try_from(now_ms.saturating_sub(leg.sent_ms)).unwrap_or(u32::MAX);
        let change = LoadChange {
            endpoint: leg.endpoint,
            in_flight: 0,
            prefill_tokens: -tokens(leg.prefill_tokens),
        };
        (State::Answering(leg, ttft_ms), Output::Load(change))
    }

    fn moved(leg: Leg<E>, to: E) -> (State<E>, Output<E>) {
        let from = LoadChange {
            endpoint: leg.endpoint,
            in_flight: -1,
            prefill_tokens: -tokens(leg.prefill_tokens),
        };
        let next = Leg {
            endpoint: to,
            ..leg
        };
        let onto = LoadChange {
            endpoint: to,
            in_flight: 1,
            prefill_tokens: tokens(leg.prefill_tokens),
        };
        (State::Waiting(next), Output::Move(from, onto))
    }

    fn down(leg: Leg<E>, queued: u64, ttft_ms: Option<u32>, failed: bool) -> Output<E> {
        Output::Finish(
            LoadChange {
                endpoint: leg.endpoint,
                in_flight: -1,
                prefill_tokens: -tokens(queued),
            },
            Finish {
                endpoint: leg.endpoint,
                ttft_ms,
                failed,
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LEG: Leg<u8> = Leg {
        endpoint: 1,
        prefill_tokens: 100,
        sent_ms: 1000,
    };

    fn routed() -> Lifecycle<u8> {
        let mut request = Lifecycle::default();
        assert_eq!(
            request.step(Input::Headers { known: true }),
            Output::Hold
        );
        assert_eq!(request.step(Input::Body { end: false }), Output::Hold);
        assert_eq!(request.step(Input::Body { end: true }), Output::Decide);
        assert!(matches!(
            request.step(Input::Routed(LEG)),
            Output::Load(_)
        ));
        request
    }

    #[test]
    fn a_whole_answer_reports_its_time_to_first_byte() {
        let mut request = routed();
        request.step(Input::FirstByte { now_ms: 1250 });
        let Output::Finish(change, finish) = request.step(Input::Ended { complete: true }) else {
            panic!("no finish");
        };
        assert_eq!((change.in_flight, change.prefill_tokens), (-1, 0));
        assert_eq!(finish, Finish { endpoint: 1, ttft_ms: Some(250), failed: false });
    }

    #[test]
    fn an_answer_that_never_started_has_failed() {
        let Output::Finish(change, finish) = routed().step(Input::Ended { complete: true }) else {
            panic!("no finish");
        };
        assert_eq!((change.in_flight, change.prefill_tokens), (-1, -100));
        assert!(finish.failed && finish.ttft_ms.is_none());
    }

    #[test]
    fn load_follows_the_endpoint_that_really_serves() {
        let mut request = routed();
        let output = request.step(Input::Served { endpoint: 2 });
        assert!(matches!(output, Output::Move(from, to) if from.endpoint == 1 && to.endpoint == 2));
        let Output::Finish(change, finish) = request.step(Input::Ended { complete: false }) else {
            panic!("no finish");
        };
        assert_eq!((change.endpoint, finish.endpoint), (2, 2));
    }

    fn inputs() -> impl Strategy<Value = Vec<Input<u8>>> {
        let input = prop_oneof![
            any::<bool>().prop_map(|known| Input::Headers { known }),
            any::<bool>().prop_map(|end| Input::Body { end }),
            (0u8..3, 0u64..1000).prop_map(|(endpoint, prefill_tokens)| Input::Routed(Leg {
                endpoint,
                prefill_tokens,
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
        fn load_returns_to_zero_under_every_order_of_inputs(inputs in inputs()) {
            let mut request = Lifecycle::default();
            let mut load = [(0i32, 0i64); 3];
            request.step(Input::Headers { known: true });
            request.step(Input::Body { end: true });
            for input in inputs.into_iter().chain([Input::Ended { complete: true }; 2]) {
                let changes = match request.step(input) {
                    Output::Load(a) | Output::Finish(a, _) => vec![a],
                    Output::Move(a, b) => vec![a, b],
                    _ => vec![],
                };
                for change in changes {
                    let entry = &mut load[usize::from(change.endpoint)];
                    entry.0 += change.in_flight;
                    entry.1 += change.prefill_tokens;
                    prop_assert!(entry.0 >= 0 && entry.1 >= 0);
                }
                let total: i32 = load.iter().map(|l| l.0).sum();
                prop_assert_eq!(total, i32::from(request.is_in_flight()));
            }
            prop_assert_eq!(load, [(0, 0); 3]);
        }
    }
}
