//! The subscriber against publishers on real libzmq.

use std::io::Write;

use prefixway::config::{Events, Publisher as PublisherAt};
use prefixway::kv_events::{Batch, ReplayRequest, SOURCE_QUOTA, Source, Subscriber, Update};
use prefixway_core::index::SourceId;
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::support::publisher::{Publisher, ReplayForm};
use crate::support::{DEADLINE, eventually};

struct Fixture {
    subscriber: Subscriber,
    updates: mpsc::Receiver<Update>,
}

fn source(id: u32, publisher: &Publisher) -> Source {
    Source {
        id: SourceId(id),
        events: Events {
            publisher: PublisherAt::Connect(publisher.events.clone()),
            replay: Some(publisher.replay.clone()),
            topic: String::new(),
        },
    }
}

fn subscribe(sources: &[Source], capacity: usize) -> Fixture {
    let (sender, updates) = mpsc::channel(capacity);
    Fixture {
        subscriber: Subscriber::start(sources, &sender).unwrap(),
        updates,
    }
}

impl Fixture {
    async fn next(&mut self) -> Update {
        timeout(DEADLINE, self.updates.recv())
            .await
            .expect("an update in time")
            .expect("an open queue")
    }

    async fn connected(&mut self) {
        let update = self.next().await;
        assert!(matches!(update, Update::Connected(_)), "{update:?}");
    }

    /// Publishes probes until one arrives: a subscription reaches the publisher some time after the connection.
    async fn live(&mut self, publisher: &mut Publisher) -> u64 {
        self.connected().await;
        let updates = &mut self.updates;
        eventually("a first batch", async || {
            publisher.publish(b"probe");
            match timeout(std::time::Duration::from_millis(20), updates.recv()).await {
                Ok(Some(Update::Batch(batch))) => Some(batch.seq),
                _ => None,
            }
        })
        .await
    }

    /// The next batch that is not a probe.
    async fn batch(&mut self) -> (u64, bool, Vec<u8>) {
        loop {
            match self.next().await {
                Update::Batch(batch) if batch.payload == b"probe" => {}
                Update::Batch(batch) => return (batch.seq, batch.replay.is_some(), batch.payload),
                other => panic!("{other:?}"),
            }
        }
    }
}

#[tokio::test]
async fn batches_arrive_in_order_and_a_restarted_publisher_is_found_again() {
    let mut publisher = Publisher::bind_anywhere();
    let mut fixture = subscribe(&[source(3, &publisher)], 1024);
    let seq = fixture.live(&mut publisher).await;
    publisher.publish(b"one");
    publisher.publish(b"two");
    let (first, replayed, payload) = fixture.batch().await;
    assert!(first > seq && !replayed);
    assert_eq!(payload, b"one");
    assert_eq!(fixture.batch().await, (first + 1, false, b"two".to_vec()));

    let (events, replay) = (publisher.events.clone(), publisher.replay.clone());
    drop(publisher);
    let update = fixture.next().await;
    assert!(
        matches!(update, Update::Disconnected(SourceId(3))),
        "{update:?}"
    );
    let mut publisher = Publisher::bind(&events, &replay, ReplayForm::WithTopic);
    fixture.live(&mut publisher).await;
    publisher.publish(b"reborn");
    assert_eq!(fixture.batch().await.2, b"reborn");
}

#[tokio::test]
async fn strangers_on_a_bound_socket_do_not_end_the_publisher() {
    let bound = Source {
        id: SourceId(0),
        events: Events {
            publisher: PublisherAt::Bind("tcp://127.0.0.1:*".to_owned()),
            replay: None,
            topic: String::new(),
        },
    };
    let mut fixture = subscribe(&[bound], 1024);
    let events = fixture.subscriber.bound_address(SourceId(0)).unwrap();
    let address = events.trim_start_matches("tcp://").to_owned();
    let mut publisher = Publisher::connect(events);
    fixture.live(&mut publisher).await;
    // A port scan, a health check of the wrong kind, a peer that breaks off its greeting.
    for greeting in [&b""[..], b"GET / HTTP/1.1\r\n\r\n", &[0xff; 40], b"\xff"] {
        let mut stranger = std::net::TcpStream::connect(&address).unwrap();
        stranger.write_all(greeting).unwrap();
    }
    let updates = &mut fixture.updates;
    let quiet = std::time::Duration::from_millis(500);
    while let Ok(Some(update)) = timeout(quiet, updates.recv()).await {
        assert!(matches!(update, Update::Batch(_)), "{update:?}");
    }
    drop(publisher);
    let update = fixture.next().await;
    assert!(matches!(update, Update::Disconnected(_)), "{update:?}");
}

#[tokio::test]
async fn replays_are_read_in_both_frame_forms() {
    for form in [ReplayForm::WithTopic, ReplayForm::WithoutTopic] {
        let mut publisher = Publisher::bind("tcp://127.0.0.1:*", "tcp://127.0.0.1:*", form);
        for payload in [b"a", b"b", b"c"] {
            publisher.lose(payload);
        }
        let mut fixture = subscribe(&[source(0, &publisher)], 1024);
        fixture.connected().await;
        fixture.subscriber.replay(SourceId(0), ReplayRequest(7), 1);
        assert_eq!(fixture.batch().await, (1, true, b"b".to_vec()), "{form:?}");
        assert_eq!(fixture.batch().await, (2, true, b"c".to_vec()));
        let update = fixture.next().await;
        assert!(
            matches!(
                update,
                Update::ReplayEnded {
                    request: ReplayRequest(7),
                    complete: true,
                    ..
                }
            ),
            "{update:?}"
        );
        assert_eq!(publisher.replays(), 1);
    }
}

#[tokio::test]
async fn a_replay_without_an_answer_ends_incomplete() {
    let publisher = Publisher::bind_anywhere();
    let mut without = source(0, &publisher);
    without.events.replay = None;
    let mut silent = source(1, &publisher);
    // Nobody listens there: it is the publisher's event socket, which answers no request.
    silent.events.replay = Some("ipc:///nonexistent/prefixway-test".to_owned());
    let mut fixture = subscribe(&[without, silent], 1024);
    fixture.connected().await;
    fixture.connected().await;
    for id in [SourceId(0), SourceId(1)] {
        fixture.subscriber.replay(id, ReplayRequest(1), 0);
        let update = fixture.next().await;
        assert!(
            matches!(update, Update::ReplayEnded { source, complete: false, .. } if source == id),
            "{update:?}"
        );
    }
}

#[tokio::test]
async fn a_binding_source_takes_a_publisher_that_connects() {
    let events = Events {
        publisher: PublisherAt::Bind("tcp://127.0.0.1:0".to_owned()),
        replay: None,
        topic: String::new(),
    };
    let mut fixture = subscribe(
        &[Source {
            id: SourceId(9),
            events,
        }],
        1024,
    );
    let address = fixture
        .subscriber
        .bound_address(SourceId(9))
        .unwrap()
        .to_owned();
    let mut publisher = Publisher::connect(&address);
    fixture.live(&mut publisher).await;
    publisher.publish(b"hello");
    assert_eq!(fixture.batch().await.2, b"hello");
}

#[tokio::test]
async fn other_topics_are_filtered_and_malformed_messages_are_told() {
    let mut publisher = Publisher::bind_anywhere();
    publisher.set_topic("kv@pod-a");
    let mut filtered = source(0, &publisher);
    filtered.events.topic = "kv@pod-a".to_owned();
    let mut fixture = subscribe(&[filtered], 1024);
    fixture.live(&mut publisher).await;
    publisher.set_topic("kv@pod-b");
    publisher.publish(b"not ours");
    publisher.set_topic("kv@pod-a");
    publisher.publish(b"ours");
    assert_eq!(fixture.batch().await.2, b"ours");
    publisher.send_raw(&[b"kv@pod-a", b"no number", b"x"]);
    let update = fixture.next().await;
    assert!(
        matches!(update, Update::Malformed(SourceId(0))),
        "{update:?}"
    );
    publisher.send_raw(&[b"kv@pod-a"]);
    let update = fixture.next().await;
    assert!(
        matches!(update, Update::Malformed(SourceId(0))),
        "{update:?}"
    );
}

#[tokio::test]
async fn a_source_at_its_quota_waits_and_the_others_go_on() {
    let mut busy = Publisher::bind_anywhere();
    let mut quiet = Publisher::bind_anywhere();
    let mut fixture = subscribe(&[source(0, &busy)], 4 * SOURCE_QUOTA);
    fixture.live(&mut busy).await;
    drop(fixture);
    let mut fixture = subscribe(&[source(0, &busy), source(1, &quiet)], 4 * SOURCE_QUOTA);
    let mut held = Vec::new();
    let updates = &mut fixture.updates;
    eventually("the busy source fills its quota", async || {
        for _ in 0..SOURCE_QUOTA {
            busy.publish(b"flood");
        }
        while let Ok(update) = updates.try_recv() {
            held.extend(batch_of(update, 0));
        }
        (held.len() == SOURCE_QUOTA).then_some(())
    })
    .await;
    let batch = eventually("a batch of the quiet source", async || {
        quiet.publish(b"whisper");
        batch_of(updates.try_recv().ok()?, 1)
    })
    .await;
    assert_eq!(batch.payload, b"whisper");
    drop(held);
    eventually("the busy source goes on", async || {
        batch_of(updates.try_recv().ok()?, 0)
    })
    .await;
}

fn batch_of(update: Update, source: u32) -> Option<Batch> {
    match update {
        Update::Batch(batch) if batch.source == SourceId(source) => Some(batch),
        _ => None,
    }
}
