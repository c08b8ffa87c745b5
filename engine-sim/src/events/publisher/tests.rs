use super::*;

const WAIT_MS: i32 = 5_000;

fn socket(kind: SocketType, endpoint: &str, binds: bool) -> (Context, Socket, String) {
    let context = Context::new();
    let socket = context.socket(kind).unwrap();
    socket.set_rcvtimeo(WAIT_MS).unwrap();
    socket.set_linger(0).unwrap();
    if kind == SocketType::SUB {
        socket.set_subscribe(b"").unwrap();
    }
    if binds {
        socket.bind(endpoint).unwrap();
    } else {
        socket.connect(endpoint).unwrap();
    }
    let endpoint = socket.get_last_endpoint().unwrap().unwrap();
    (context, socket, endpoint)
}

fn replay(endpoint: &str, start: u64) -> Vec<Vec<Vec<u8>>> {
    let (_context, dealer, _) = socket(SocketType::DEALER, endpoint, false);
    dealer
        .send_multipart([&b""[..], &start.to_be_bytes()], 0)
        .unwrap();
    let mut answers = Vec::new();
    loop {
        let frames = dealer.recv_multipart(0).unwrap();
        let is_end = frames[2] == super::super::replay::END_SEQUENCE;
        answers.push(frames);
        if is_end {
            return answers;
        }
    }
}

#[test]
fn batches_reach_a_bound_subscriber_with_rising_sequence_numbers() {
    let (_context, subscriber, endpoint) = socket(SocketType::SUB, "tcp://127.0.0.1:*", true);
    let config = EventsConfig {
        endpoint: endpoint.clone(),
        replay: None,
        topic: "kv".to_owned(),
        buffer_steps: 10,
    };
    let publisher = Publisher::start("t", &config).unwrap();
    assert_eq!(
        (publisher.endpoint(), publisher.replay_endpoint()),
        (endpoint.as_str(), None)
    );
    // Until the subscription has travelled, batches are lost; the first one received tells where we are.
    let first = (0..500).find_map(|_| {
        publisher.publish(b"x".to_vec());
        std::thread::sleep(Duration::from_millis(5));
        subscriber.recv_multipart(DONTWAIT).ok()
    });
    let first = first.unwrap();
    assert_eq!(
        (first[0].as_slice(), first[2].as_slice()),
        (&b"kv"[..], &b"x"[..])
    );
    let sequence = u64::from_be_bytes(first[1].as_slice().try_into().unwrap());
    publisher.publish(b"y".to_vec());
    let next = std::iter::repeat_with(|| subscriber.recv_multipart(0).unwrap())
        .find(|frames| frames[2] == b"y");
    assert!(u64::from_be_bytes(next.unwrap()[1].as_slice().try_into().unwrap()) > sequence);
}

#[test]
fn lost_batches_can_be_replayed() {
    let publisher = Publisher::start("t", &EventsConfig::default()).unwrap();
    publisher.publish(b"a".to_vec());
    publisher.lose(1);
    publisher.publish(b"b".to_vec());
    let answers = replay(publisher.replay_endpoint().unwrap(), 0);
    let payloads: Vec<&[u8]> = answers.iter().map(|frames| frames[3].as_slice()).collect();
    assert_eq!(payloads, [&b"a"[..], b"b", b""]);
    assert_eq!(replay(publisher.replay_endpoint().unwrap(), 2).len(), 1);
}

#[test]
fn a_stopped_publisher_frees_its_ports() {
    let first = Publisher::start("t", &EventsConfig::default()).unwrap();
    let config = EventsConfig {
        endpoint: first.endpoint().replace("127.0.0.1", "*"),
        replay: first.replay_endpoint().map(str::to_owned),
        ..EventsConfig::default()
    };
    drop(first);
    let second = Publisher::start("t", &config).unwrap();
    assert_eq!(second.replay_endpoint(), config.replay.as_deref());
}

#[test]
fn a_taken_port_is_an_error_that_names_it() {
    let first = Publisher::start("t", &EventsConfig::default()).unwrap();
    let config = EventsConfig {
        replay: first.replay_endpoint().map(str::to_owned),
        ..EventsConfig::default()
    };
    let error = Publisher::start("t", &config).unwrap_err().to_string();
    assert!(
        error.starts_with("can't open event endpoint tcp://127.0.0.1:"),
        "{error}"
    );
}
