use super::*;
use crate::sequence::Scope;

fn scheduler(num_blocks: u32, max_running: usize, chunk_tokens: usize) -> Scheduler {
    Scheduler::new(SchedulerConfig {
        block_size: 4,
        num_blocks,
        max_running,
        chunk_tokens,
    })
}

fn request(id: u64, prompt: impl IntoIterator<Item = u32>, output: usize) -> Request {
    Request {
        id: RequestId(id),
        prompt: prompt.into_iter().collect(),
        output: vec![7; output],
        scope: Scope::default(),
        session_id: None,
        reports_reused: false,
    }
}

/// Runs until idle; gives the admissions, the last token of each request in order, and all events.
fn drain(scheduler: &mut Scheduler) -> (Vec<Admission>, Vec<RequestId>, Vec<KvEvent>) {
    let (mut admissions, mut finished, mut events) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(step) = scheduler.schedule() {
        let outcome = scheduler.finish_step(&step);
        admissions.extend(step.admitted);
        finished.extend(
            outcome
                .tokens
                .iter()
                .filter(|token| token.is_last)
                .map(|token| token.id),
        );
        events.extend(outcome.events);
    }
    (admissions, finished, events)
}

fn stored(events: &[KvEvent]) -> Vec<usize> {
    let count = |event: &KvEvent| match event {
        KvEvent::Stored(stored) => Some(stored.hashes.len()),
        _ => None,
    };
    events.iter().filter_map(count).collect()
}

#[test]
fn an_identical_prompt_of_whole_blocks_recomputes_and_stores_its_last_block_again() {
    let mut scheduler = scheduler(20, 4, 100);
    scheduler.submit(request(1, 0..8, 1));
    assert_eq!(stored(&drain(&mut scheduler).2), [2]);
    scheduler.submit(request(2, 0..8, 1));
    let (admissions, _, events) = drain(&mut scheduler);
    assert_eq!(admissions[0].hit_tokens, 4);
    assert_eq!(stored(&events), [1]);
}

#[test]
fn output_blocks_are_cached_but_the_last_token_is_never_computed() {
    let mut scheduler = scheduler(20, 4, 100);
    scheduler.submit(request(1, 0..4, 5));
    assert_eq!(stored(&drain(&mut scheduler).2), [1, 1]);
    scheduler.submit(request(2, 10..14, 4));
    assert_eq!(stored(&drain(&mut scheduler).2), [1]);
}

#[test]
fn long_prompts_are_computed_in_chunks_beside_decodes() {
    let mut scheduler = scheduler(40, 4, 10);
    scheduler.submit(request(1, 0..4, 8));
    let first = scheduler.schedule().unwrap();
    scheduler.finish_step(&first);
    scheduler.submit(request(2, 100..125, 1));
    let shape = |step: &Step| (step.decoding, step.prefill_tokens);
    let steps: Vec<_> = (0..3)
        .map(|_| {
            let step = scheduler.schedule().unwrap();
            scheduler.finish_step(&step);
            shape(&step)
        })
        .collect();
    assert_eq!(steps, [(1, 9), (1, 9), (1, 7)]);
}

#[test]
fn equal_prompts_in_one_step_share_blocks() {
    let mut scheduler = scheduler(40, 4, 100);
    for id in 0..3 {
        scheduler.submit(request(id, 0..9, 2));
    }
    let (admissions, _, events) = drain(&mut scheduler);
    let hits: Vec<_> = admissions
        .iter()
        .map(|admission| admission.hit_tokens)
        .collect();
    assert_eq!(hits, [0, 8, 8]);
    assert_eq!(stored(&events), [2]);
}

#[test]
fn requests_finish_in_order_of_arrival_when_only_one_may_run() {
    let mut scheduler = scheduler(40, 1, 100);
    for (id, first) in [(0, 0), (1, 100), (2, 200)] {
        scheduler.submit(request(id, first..first + 5, 3));
    }
    assert_eq!(scheduler.stats().waiting, 3);
    assert_eq!(
        drain(&mut scheduler).1,
        [RequestId(0), RequestId(1), RequestId(2)]
    );
}

#[test]
fn the_newest_request_is_preempted_and_resumes_without_losing_tokens() {
    // 7 usable blocks; two requests need 4 each in the end.
    let mut scheduler = scheduler(8, 4, 100);
    scheduler.submit(request(1, 0..8, 8));
    scheduler.submit(request(2, 100..108, 8));
    let (admissions, finished, _) = drain(&mut scheduler);
    assert_eq!(finished, [RequestId(1), RequestId(2)]);
    assert!(admissions.iter().any(|admission| admission.is_resumed));
    assert_eq!(scheduler.stats().used_blocks, 0);
}

#[test]
fn aborting_frees_blocks_and_reset_is_announced_with_the_next_step() {
    let mut scheduler = scheduler(20, 4, 100);
    scheduler.submit(request(1, 0..8, 100));
    let step = scheduler.schedule().unwrap();
    assert!(!scheduler.reset_prefix_cache());
    scheduler.abort(RequestId(1));
    assert!(scheduler.finish_step(&step).tokens.is_empty());
    assert!(scheduler.reset_prefix_cache());
    assert_eq!(scheduler.schedule(), None, "an idle engine says nothing");
    scheduler.submit(request(2, 0..8, 1));
    let (admissions, _, events) = drain(&mut scheduler);
    assert_eq!(admissions[0].hit_tokens, 0);
    assert_eq!(events[0], KvEvent::Cleared);
}

#[test]
fn a_full_report_announces_the_reused_prefix_again_from_the_root() {
    let mut scheduler = scheduler(20, 4, 100);
    scheduler.submit(request(1, 0..9, 1));
    drain(&mut scheduler);
    let mut reporting = request(2, 0..13, 1);
    reporting.reports_reused = true;
    scheduler.submit(reporting);
    let events = drain(&mut scheduler).2;
    let parents: Vec<_> = events
        .iter()
        .map(|event| match event {
            KvEvent::Stored(stored) => (stored.parent.is_some(), stored.hashes.len()),
            other => panic!("unexpected {other:?}"),
        })
        .collect();
    assert_eq!(parents, [(false, 2), (true, 1)]);
}
