//! The example service, which has the profiler in it: run as it stands, with the built-in handler and with its own.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::time::Duration;

use afterimage_handler::object::Object;
use afterimage_handler::sampler::{AiHdr, Unreadable, Value};
use afterimage_handler::{Builtin, HandlerId, Item, Sampler};
use afterimage_recorder::by::By;
use afterimage_recorder::{Destination, Handler, Plan, RecordError, Subject, record};
use afterimage_testkit::{Need, has, objects};

#[path = "../examples/service/main.rs"]
#[allow(dead_code, reason = "its main is of the example")]
mod service;

use service::{Service, watch};

const TIME: Duration = Duration::from_millis(600);

#[test]
fn a_service_sees_its_own_threads() {
    if !has("a_service_sees_its_own_threads", &[Need::Root, Need::Bpf]) {
        return;
    }
    let (service, mut out) = (Service::start(2), Vec::new());
    let seen = watch(&service, None, TIME, &mut out).unwrap();
    println!("{:?}\n{:?} {:?}", seen.counters, seen.threads, seen.after);
    let tids: Vec<String> = service.tids.iter().map(ToString::to_string).collect();
    assert!(seen.threads.len() == 2 && seen.threads.keys().all(|tid| tids.contains(tid)));
    assert_eq!(seen.after.keys().collect::<Vec<_>>(), [&tids[0]], "the gate lets one through");
    let counters = seen.counters;
    assert_eq!(counters.handled, counters.filtered + counters.passed);
    assert!(counters.filtered > 0 && counters.emitted == counters.passed && counters.chained == 0);
    let printed = String::from_utf8(out).unwrap();
    assert!(printed.lines().any(|line| line.ends_with(&format!("emitted of thread {}", tids[1]))), "{printed}");
}

#[test]
fn a_service_has_a_handler_of_its_own() {
    if !has("a_service_has_a_handler_of_its_own", &[Need::Root, Need::Bpf, Need::Clang]) {
        return;
    }
    let object = |set: &[&str]| {
        let bytes = std::fs::read(objects::build().join("seen.bpf.o")).unwrap();
        let settings: Vec<_> = set.iter().map(|text| text.parse().unwrap()).collect();
        Object::open(bytes, None, &settings).unwrap()
    };
    let (service, mut out) = (Service::start(2), Vec::new());
    let seen = watch(&service, Some(object(&[])), TIME, &mut out).unwrap();
    println!("{:?}\n{:?} {:?}", seen.counters, seen.threads, seen.after);
    assert_eq!(seen.threads.keys().collect::<Vec<_>>(), ["worker-0", "worker-1"]);
    assert_eq!(seen.after.keys().collect::<Vec<_>>(), ["worker-0"]);
    let printed = String::from_utf8(out).unwrap();
    assert!(printed.contains("thread=\"worker-1\", in_kernel="), "{printed}");

    // An object says itself what becomes of a sample.
    let error = Sampler::builder().chain(true).object(object(&[])).start().unwrap_err();
    assert_eq!(error.kind(), afterimage_handler::ErrorKind::Options, "{error}");

    // Another object takes its place, and then none: what was sampled meanwhile is in one of the three.
    let mut sampler = Sampler::builder().threads(&service.tids).object(object(&[])).start().unwrap();
    let part = || std::thread::sleep(TIME / 6);
    part();
    sampler.swap_object(&object(&["first_letter=120"])).unwrap();
    part();
    let error = sampler.swap(Builtin::Count).unwrap_err();
    assert_eq!(error.kind(), afterimage_handler::ErrorKind::Options, "{error}");
    sampler.swap(Builtin::None).unwrap();
    part();
    sampler.pause().unwrap();
    let (mut values, mut samples) = (0, 0);
    let drained = sampler
        .drain(|item| match item {
            Item::Value { value: Ok(_), .. } => values += 1,
            Item::Sample(_) => samples += 1,
            other => panic!("{other:?}"),
        })
        .unwrap();
    let counters = sampler.counters();
    println!("{values} values, {samples} samples of {counters:?}");
    assert_eq!((drained.items, drained.unreadable), (values + samples, 0));
    assert_eq!(counters.handled, values + counters.dropped + samples);
    assert!(values > 0 && samples > 0 && counters.dropped > 0);
}

/// The types of the object in force are kept, however many came after it before it was put there again.
#[test]
fn an_older_object_is_put_in_force_again() {
    if !has("an_older_object_is_put_in_force_again", &[Need::Root, Need::Bpf, Need::Clang]) {
        return;
    }
    let readable = |value: &Result<Value<'_>, Unreadable>| assert!(value.is_ok(), "{value:?}");
    let is_of = |hdr: &AiHdr, id: HandlerId| hdr.handler == id.0;
    let bytes = std::fs::read(objects::build().join("seen.bpf.o")).unwrap();
    let object = Object::open(bytes, None, &[]).unwrap();
    let service = Service::start(1);
    let mut sampler = Sampler::builder().frequency(999).threads(&service.tids).start().unwrap();
    let first = sampler.swap_object(&object).unwrap();
    for _ in 0..3 {
        sampler.swap_object(&object).unwrap();
    }
    sampler.handlers().swap(first).unwrap();
    for _ in 0..3 {
        std::thread::sleep(TIME / 3);
        let mut values = 0;
        sampler
            .drain(|item| {
                if let Item::Value { hdr, value } = item {
                    readable(value);
                    values += u32::from(is_of(hdr, first));
                }
            })
            .unwrap();
        assert!(values > 0);
    }
}

/// Every thread of this process, those that are started later too.
#[test]
fn threads_that_come_later_are_sampled() {
    if !has("threads_that_come_later_are_sampled", &[Need::Root, Need::Bpf]) {
        return;
    }
    let mut sampler = Sampler::builder().frequency(2000).handler(Builtin::Emit).call_chains(true).start().unwrap();
    let service = Service::start(1);
    std::thread::sleep(TIME / 2);
    sampler.pause().unwrap();
    let mut chains = 0;
    let later = service.tids[0];
    sampler
        .drain(|item| {
            if let Item::Emit(emit) = item {
                chains += usize::from(emit.tid == later && !emit.callchain.is_empty());
            }
        })
        .unwrap();
    println!("{chains} of {:?}", sampler.counters());
    assert!(chains > 20);
}

#[test]
fn a_recording_is_made_by_the_library() {
    if !has("a_recording_is_made_by_the_library", &[Need::Root, Need::Bpf]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.data");
    let service = Service::start(1);
    let plan = Plan {
        subject: Subject::Threads(service.tids.clone()),
        destination: Destination::File(path.clone()),
        duration: Some(TIME),
        handler: Some(Handler::Builtin(Builtin::Count)),
        text: None,
        ..Plan::default()
    };
    let outcome = record(&plan, &false.into(), &mut ()).unwrap();
    let sum = outcome.tally.total();
    println!("{} in {} bytes, {:?}", sum.human(), outcome.bytes, outcome.problems);
    assert_eq!(std::fs::metadata(&path).unwrap().len(), outcome.bytes);
    assert!(sum.map.stored > 100 && sum.check() == Ok(()) && outcome.problems.is_empty());
}

/// What is counted by keys is not recorded: a plan that wants both is refused before anything is opened.
#[test]
fn counts_by_keys_go_nowhere_else() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.data");
    for (destination, text) in [(Destination::File(path.clone()), false), (Destination::Nowhere, true)] {
        let text = text.then(afterimage_recorder::TextOptions::default);
        let plan = Plan { by: Some(By::default()), destination, text, duration: Some(TIME), ..Plan::default() };
        let error = record(&plan, &false.into(), &mut ()).unwrap_err();
        assert!(matches!(error, RecordError::Usage(_)) && error.to_string().contains("Nowhere"), "{error}");
        assert!(!path.exists());
    }
    if !has("counts_by_keys_go_nowhere_else", &[Need::Root, Need::Bpf]) {
        return;
    }
    let service = Service::start(1);
    let plan = Plan {
        by: Some(By::default()),
        subject: Subject::Threads(service.tids.clone()),
        destination: Destination::Nowhere,
        text: None,
        duration: Some(TIME),
        ..Plan::default()
    };
    let outcome = record(&plan, &false.into(), &mut ()).unwrap();
    println!("{}", outcome.tally.total().human());
    assert!(outcome.tally.total().map.stored > 100 && outcome.bytes == 0);
}

/// What makes no sense is refused with a reason, before anything is opened.
#[test]
fn what_cannot_be_sampled_is_told() {
    for (builder, says) in [
        (Sampler::builder().event("no-such-event"), "no-such-event"),
        (Sampler::builder().event("cpu-clock,page-faults"), "one event"),
        (Sampler::builder().only("pid =="), "pid =="),
        (Sampler::builder().handler(Builtin::Count), "count"),
    ] {
        let error = builder.start().unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
        assert_eq!(error.kind(), afterimage_handler::ErrorKind::Options);
    }
}
