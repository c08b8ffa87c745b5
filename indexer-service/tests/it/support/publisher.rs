//! A vLLM publisher on real libzmq: PUB for live batches, ROUTER for replays.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// Frames of a replay's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplayForm {
    /// `["", topic, seq, payload]`, vLLM 0.26 and later.
    WithTopic,
    /// `["", seq, payload]`, before.
    WithoutTopic,
}

type Buffer = Arc<Mutex<BTreeMap<u64, Vec<u8>>>>;

/// The publisher; dropping it closes its sockets, as an engine's end does.
pub(crate) struct Publisher {
    socket: zmq::Socket,
    topic: String,
    next: u64,
    buffer: Buffer,
    replays: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    router: Option<JoinHandle<()>>,
    pub(crate) events: String,
    pub(crate) replay: String,
}

impl Publisher {
    /// Binds both sockets; `tcp://127.0.0.1:*` takes a free port.
    pub(crate) fn bind(events: &str, replay: &str, form: ReplayForm) -> Self {
        let context = zmq::Context::new();
        let socket = context.socket(zmq::PUB).unwrap();
        socket.set_linger(0).unwrap();
        bind(&socket, events);
        Self::with_socket(&context, socket, replay, form)
    }

    pub(crate) fn bind_anywhere() -> Self {
        Self::bind(
            "tcp://127.0.0.1:*",
            "tcp://127.0.0.1:*",
            ReplayForm::WithTopic,
        )
    }

    /// Connects the PUB socket to a consumer that binds.
    pub(crate) fn connect(events: &str) -> Self {
        let context = zmq::Context::new();
        let socket = context.socket(zmq::PUB).unwrap();
        socket.set_linger(0).unwrap();
        socket.connect(events).unwrap();
        Self::with_socket(&context, socket, "tcp://127.0.0.1:*", ReplayForm::WithTopic)
    }

    fn with_socket(
        context: &zmq::Context,
        socket: zmq::Socket,
        replay: &str,
        form: ReplayForm,
    ) -> Self {
        let router = context.socket(zmq::ROUTER).unwrap();
        router.set_linger(0).unwrap();
        bind(&router, replay);
        let events = socket.get_last_endpoint().unwrap().unwrap();
        let replay = router.get_last_endpoint().unwrap().unwrap();
        let buffer = Buffer::default();
        let replays = Arc::new(AtomicUsize::new(0));
        let stop = Arc::new(AtomicBool::new(false));
        let thread = {
            let (buffer, replays, stop) =
                (Arc::clone(&buffer), Arc::clone(&replays), Arc::clone(&stop));
            std::thread::spawn(move || serve(&router, form, &buffer, &replays, &stop))
        };
        Self {
            socket,
            topic: String::new(),
            next: 0,
            buffer,
            replays,
            stop,
            router: Some(thread),
            events,
            replay,
        }
    }

    pub(crate) fn set_topic(&mut self, topic: &str) {
        topic.clone_into(&mut self.topic);
    }

    /// Sends the next batch and keeps it for replays.
    pub(crate) fn publish(&mut self, payload: &[u8]) {
        let seq = self.lose(payload);
        self.socket
            .send_multipart([self.topic.as_bytes(), &seq.to_be_bytes(), payload], 0)
            .unwrap();
    }

    /// Keeps a batch for replays without sending it: a message that got lost.
    pub(crate) fn lose(&mut self, payload: &[u8]) -> u64 {
        let seq = self.next;
        self.next += 1;
        self.buffer.lock().unwrap().insert(seq, payload.to_vec());
        seq
    }

    pub(crate) fn send_raw(&self, frames: &[&[u8]]) {
        self.socket.send_multipart(frames, 0).unwrap();
    }

    /// Replays asked for so far.
    pub(crate) fn replays(&self) -> usize {
        self.replays.load(Ordering::SeqCst)
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        self.router.take().unwrap().join().unwrap();
    }
}

/// Binds, waiting for the port while an earlier socket of this process still closes it.
fn bind(socket: &zmq::Socket, address: &str) {
    for _ in 0..500 {
        match socket.bind(address) {
            Ok(()) => return,
            Err(zmq::Error::EADDRINUSE) => std::thread::sleep(std::time::Duration::from_millis(10)),
            Err(error) => panic!("can't bind {address}: {error}"),
        }
    }
    panic!("can't bind {address}: it stays in use");
}

fn serve(
    router: &zmq::Socket,
    form: ReplayForm,
    buffer: &Buffer,
    replays: &AtomicUsize,
    stop: &AtomicBool,
) {
    let send = |identity: &[u8], seq: u64, payload: &[u8]| {
        let seq = seq.to_be_bytes();
        match form {
            ReplayForm::WithTopic => router.send_multipart([identity, b"", b"", &seq, payload], 0),
            ReplayForm::WithoutTopic => router.send_multipart([identity, b"", &seq, payload], 0),
        }
        .unwrap();
    };
    while !stop.load(Ordering::SeqCst) {
        if router.poll(zmq::POLLIN, 5).unwrap() == 0 {
            continue;
        }
        let frames = router.recv_multipart(0).unwrap();
        let [identity, empty, start] = frames.as_slice() else {
            panic!(
                "a replay request has three frames here, got {}",
                frames.len()
            );
        };
        assert!(empty.is_empty());
        replays.fetch_add(1, Ordering::SeqCst);
        let start = u64::from_be_bytes(start.as_slice().try_into().unwrap());
        for (&seq, payload) in buffer.lock().unwrap().range(start..) {
            send(identity, seq, payload);
        }
        send(identity, u64::MAX, b"");
    }
}
