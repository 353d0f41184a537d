//! Objects of others as handlers: loaded, refused, at work.

use std::path::PathBuf;

use afterimage_handler::object::{Limits, LoadedObject, Object, Rule, Setting};
use afterimage_handler::{Builtin, ErrorKind, EventConfig, Handlers, Mechanism};
use afterimage_testkit::{Need, has, objects};

use crate::support::*;

fn file(name: &str) -> PathBuf {
    objects::build().join(format!("{name}.bpf.o"))
}

fn settings(words: &str) -> Vec<Setting> {
    words.split_whitespace().map(|word| word.parse().unwrap()).collect()
}

fn open(name: &str, program: Option<&str>, set: &str) -> Result<Object, afterimage_handler::Error> {
    Object::open(std::fs::read(file(name)).unwrap(), program, &settings(set))
}

const WITH_CHAIN: EventConfig =
    EventConfig { callchain: true, precise_ip: 0, exclude_callchain_kernel: false, exclude_callchain_user: false };

/// A kernel as they are today.
const TODAY: Limits = Limits { context: true, stack_words: 135 };

/// Loads an object and makes it the handler.
fn install(handlers: &mut Handlers, object: &Object) -> LoadedObject {
    let id = handlers.next_id();
    let loaded = object.load(&handlers.shared(), &[WITH_CHAIN], id, &[]).unwrap_or_else(|e| panic!("{e:#}"));
    assert_eq!(handlers.add(loaded.name.clone(), loaded.program().unwrap()), id);
    handlers.swap(id).unwrap();
    loaded
}

/// Chain and drop on page faults: each sample reaches the ring, or none.
#[test]
fn an_object_decides_about_samples() {
    let test = "an_object_decides_about_samples";
    let Some(_one) = alone(test) else { return };
    if !has(test, &[Need::Clang]) {
        return;
    }
    for (name, program, set, kept) in [
        ("bare", Some("all"), "", true),
        ("bare", Some("none"), "", false),
        ("bare", Some("all"), "keep=0", false),
        ("slow", None, "least=1", true),
        ("slow", None, "least=2", false),
        ("plain", None, "", true),
        ("plain", None, "keep=false", false),
    ] {
        let mut event = Event::open(&page_faults(), gettid(), -1, 512);
        let mut handlers = load(Builtin::None, false, best());
        let loaded = install(&mut handlers, &open(name, program, set).unwrap());
        handlers.attach(0, std::os::fd::AsFd::as_fd(&*event.fd)).unwrap();
        let pages = Pages::new(300);
        event.enable();
        pages.touch();
        event.disable();
        let (seen, (count, lost)) = (total(&handlers), event.read());
        assert!(count >= 300 && lost == 0, "{count} {lost}");
        assert_eq!(seen.handled, count);
        let chained = if kept { count } else { 0 };
        assert_eq!(event.drained().samples.len() as u64, chained, "{name} {set}");
        assert_eq!(seen.chained, chained);
        if !loaded.writes {
            assert_eq!((seen.passed, seen.dropped), (chained, count - chained));
        }
    }
}

#[test]
fn refusals() {
    if !has("refusals", &[Need::Clang]) {
        return;
    }
    let precise = EventConfig { precise_ip: 2, ..EventConfig::default() };
    let old = Limits { context: false, ..TODAY };
    let none = EventConfig::default();
    let cases = [
        ("task_stack", WITH_CHAIN, TODAY, Some(Rule::TaskStack)),
        ("task_stack", none, TODAY, None),
        ("task_stack_below", WITH_CHAIN, TODAY, Some(Rule::TaskStack)),
        ("task_stack_never", WITH_CHAIN, TODAY, None),
        ("short_stack", WITH_CHAIN, TODAY, Some(Rule::ShortUserStack)),
        ("short_stack", none, TODAY, None),
        ("short_stack_below", WITH_CHAIN, TODAY, Some(Rule::ShortUserStack)),
        ("any_flags", WITH_CHAIN, TODAY, Some(Rule::ShortUserStack)),
        ("any_size", WITH_CHAIN, TODAY, Some(Rule::ShortUserStack)),
        ("kernel_stack", WITH_CHAIN, TODAY, None),
        ("long_stack", WITH_CHAIN, TODAY, None),
        ("long_stack", precise, TODAY, Some(Rule::PreciseUnwind)),
        ("stack_number", precise, TODAY, Some(Rule::PreciseUnwind)),
        ("stack_number", WITH_CHAIN, TODAY, None),
        ("lru", none, TODAY, Some(Rule::LruMap)),
        ("needs_chain", none, old, Some(Rule::NoContext)),
        ("needs_chain", none, TODAY, None),
        ("asks_first", none, old, None),
        ("sleeps", none, TODAY, Some(Rule::NoTailCall)),
        ("packet", none, TODAY, Some(Rule::NoTailCall)),
    ];
    for (program, event, limits, rule) in cases {
        let object = open("refused", Some(program), "").unwrap();
        let refusals = object.refusals(&[none, event], &limits);
        println!("{program}: {}", refusals.first().map_or("may run".to_owned(), ToString::to_string));
        assert_eq!(refusals.iter().map(|r| r.rule).collect::<Vec<_>>(), Vec::from_iter(rule), "{program}");
    }
    let _ = (ErrorKind::Refused, Mechanism::Kfuncs);
}
