//! Objects of others as handlers: loaded, refused, at work.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use afterimage_handler::object::{Limits, LoadedObject, Object, Rule, Setting};
use afterimage_handler::{Builtin, ErrorKind, EventConfig, Handlers, Mechanism};
use afterimage_perf_data::{Attr, LabelPayload, ValuePayload};
use afterimage_testkit::{Need, has, objects};

use crate::support::*;

fn file(name: &str) -> PathBuf {
    objects::build().join(format!("{name}.bpf.o"))
}

fn open(name: &str, program: Option<&str>, set: &str) -> Result<Object, afterimage_handler::Error> {
    let settings: Vec<Setting> = set.split_whitespace().map(|word| word.parse().unwrap()).collect();
    Object::open(std::fs::read(file(name)).unwrap(), program, &settings)
}

const WITH_CHAIN: EventConfig = EventConfig {
    callchain: true,
    precise_ip: 0,
    exclude_callchain_kernel: false,
    exclude_callchain_user: false,
    max_stack: 119,
};

/// A kernel as they are today.
const TODAY: Limits = Limits { context: true, max_stack: 127, contexts: 8 };

/// Loads an object and makes it the handler.
fn install(handlers: &mut Handlers, object: &Object) -> LoadedObject {
    let id = handlers.next_id();
    let loaded = object.load(&handlers.shared(), &[WITH_CHAIN], id, &[]).unwrap_or_else(|e| panic!("{e:#}"));
    assert_eq!(handlers.add(loaded.name.clone(), loaded.program().unwrap()), id);
    handlers.swap(id).unwrap();
    loaded
}

/// Each sample reaches the ring, or none, with and without our header.
#[test]
fn an_object_decides_about_samples() {
    let test = "an_object_decides_about_samples";
    let Some(_one) = alone(test).filter(|_| has(test, &[Need::Clang])) else { return };
    for (name, program, set, kept) in [
        ("bare", Some("all"), "", true),
        ("bare", Some("none"), "", false),
        ("bare", Some("all"), "keep=0", false),
        ("slow", None, "least=1", true),
        ("slow", None, "least=2", false),
    ] {
        let mut event = Event::open(&page_faults(), gettid(), -1, 512);
        let mut handlers = load(Builtin::None, false, best());
        let loaded = install(&mut handlers, &open(name, program, set).unwrap());
        assert!(!loaded.writes && loaded.tag.len() == 16, "{loaded:?}");
        handlers.attach(0, event.fd.as_fd()).unwrap();
        let pages = Pages::new(300);
        event.enable();
        pages.touch();
        event.disable();
        let (seen, (count, lost)) = (total(&handlers), event.read());
        assert!(count >= 300 && lost == 0, "{count} {lost}");
        let chained = if kept { count } else { 0 };
        assert_eq!((seen.handled, seen.chained, seen.passed, seen.dropped), (count, chained, chained, count - chained));
        assert_eq!(event.drained().samples.len() as u64, chained, "{name} {set}");
    }
}

/// `struct fact` of plain.bpf.c.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Fact {
    ip: u64,
    period: u64,
    pid: u32,
    tid: u32,
    cpu: u32,
}

impl Fact {
    fn of(bytes: &[u8]) -> Fact {
        assert_eq!(bytes.len(), 40);
        let word = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().unwrap());
        let half = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        Fact { ip: word(0), period: word(8), pid: half(24), tid: half(28), cpu: half(32) }
    }
}

/// What an object writes of each sample is what the ring's record of the same sample says, on three kinds of events; and
/// without a verdict for it there is no record.
#[test]
fn what_is_written_matches_what_chains() {
    let test = "what_is_written_matches_what_chains";
    let Some(_one) = alone(test).filter(|_| has(test, &[Need::Clang])) else { return };
    static mut WATCHED: u64 = 0;
    let variable = &raw mut WATCHED;
    let work = move |name: &str| match name {
        "cpu-clock" => {
            for way in 0..150_000 {
                std::hint::black_box(descend(6, way));
            }
        }
        "page-faults" => Pages::new(500).touch(),
        // SAFETY: only this thread uses the variable.
        _ => (0..500).for_each(|n| unsafe { variable.write_volatile(n) }),
    };
    for mechanism in mechanisms() {
        for (name, attr) in
            [("cpu-clock", clock(200_000)), ("page-faults", page_faults()), ("breakpoint", writes_to(variable))]
        {
            for keep in [true, false] {
                let attr = Attr { clockid: libc::CLOCK_MONOTONIC, ..attr.clone() };
                let mut event = Event::open(&attr, gettid(), -1, 1024);
                let mut handlers = load(Builtin::None, false, mechanism);
                let mut outputs = outputs(256);
                give_outputs(&mut handlers, &outputs);
                let loaded =
                    install(&mut handlers, &open("plain", None, if keep { "" } else { "keep=false" }).unwrap());
                assert!(loaded.writes);
                handlers.attach(0, event.fd.as_fd()).unwrap();
                event.enable();
                work(name);
                event.disable();
                let seen = total(&handlers);
                let ring = event.drained().samples;
                let written: Vec<Seen> = outputs.iter_mut().flat_map(|o| o.drained().samples).collect();
                println!("{mechanism:?} {name} keep {keep}: {} written, {} in the ring", written.len(), ring.len());
                assert!(seen.handled > 20, "{seen:?}");
                assert_eq!((seen.emitted, seen.emit_lost, seen.passed), (seen.handled, 0, seen.handled));
                assert_eq!(written.len() as u64, seen.emitted);
                assert_eq!(
                    (seen.chained, ring.len() as u64 + event.read().1),
                    if keep { (seen.handled, seen.handled) } else { (0, 0) }
                );
                // By time where programs know it, else by content.
                let timed = mechanism == Mechanism::Kfuncs;
                let mut facts: Vec<(u64, Fact)> = written
                    .iter()
                    .map(|seen| {
                        let value = ValuePayload::decode(&seen.raw).unwrap();
                        assert_eq!((value.hdr.handler, value.hdr.cpu), (loaded.id.0, seen.cpu));
                        let fact = Fact::of(value.bytes);
                        assert_eq!((value.hdr.ip, value.hdr.time != 0), (fact.ip, timed));
                        (value.hdr.time, fact)
                    })
                    .collect();
                let mut samples: Vec<(u64, Fact)> = ring
                    .iter()
                    .map(|s| {
                        let fact = Fact { ip: s.ip, period: s.period, pid: s.pid, tid: s.tid, cpu: s.cpu };
                        (if timed { s.time } else { 0 }, fact)
                    })
                    .collect();
                facts.sort_unstable();
                samples.sort_unstable();
                if keep {
                    assert_eq!(facts, samples);
                }
            }
        }
    }
}

/// Labels and values of every kind of type, with the constants that were set; the object's maps can be had.
#[test]
fn values_and_labels_arrive_as_they_were_set() {
    let test = "values_and_labels_arrive_as_they_were_set";
    let Some(_one) = alone(test).filter(|_| has(test, &[Need::Clang])) else { return };
    if best() == Mechanism::Plain {
        println!("{test}: this kernel shows programs no sample");
        return;
    }
    let event = Event::open(&page_faults(), gettid(), -1, 64);
    let mut handlers = load(Builtin::None, false, Mechanism::Kfuncs);
    let mut outputs = outputs(256);
    give_outputs(&mut handlers, &outputs);
    let set = "verdict=DROP mood=HURRIED shift=-300 place=here every=2";
    let loaded = install(&mut handlers, &open("whole", None, set).unwrap());
    assert_eq!(loaded.maps().map(|(name, _)| name).collect::<Vec<_>>(), ["runs"]);
    handlers.attach(0, event.fd.as_fd()).unwrap();
    let pages = Pages::new(100);
    event.enable();
    pages.touch();
    event.disable();
    let seen = total(&handlers);
    assert!(seen.handled >= 100 && seen.passed == seen.handled.div_ceil(2) && seen.chained == 0, "{seen:?}");
    assert_eq!(seen.emitted, 4 * seen.passed);
    let mut labels: BTreeMap<String, BTreeMap<Vec<u8>, u64>> = BTreeMap::new();
    let mut values = 0;
    let mut first_faults = Vec::new();
    for record in outputs.iter_mut().flat_map(|output| output.drained().samples) {
        if let Ok(value) = ValuePayload::decode(&record.raw) {
            values += 1;
            assert_eq!((value.bytes.len(), &value.bytes[96..104]), (144, &[0xfd, 0xff, 0xff, 0xff, 4, 0, 0, 0][..]));
            continue;
        }
        let label = LabelPayload::decode(&record.raw).unwrap();
        if label.name() == "addr" {
            first_faults.push(u64::from_ne_bytes(label.bytes.try_into().unwrap()));
        } else {
            *labels.entry(label.name().into_owned()).or_default().entry(label.bytes.to_vec()).or_default() += 1;
        }
    }
    assert_eq!(values, seen.passed);
    let mut here = b"here".to_vec();
    here.resize(16, 0);
    assert_eq!(labels["place"], BTreeMap::from([(here, seen.passed)]));
    assert_eq!(labels["mood"], BTreeMap::from([(vec![7, 0, 0, 0], seen.passed)]));
    let touched: Vec<u64> = (0..100).map(|n| pages.page(n) as u64).collect();
    let known = first_faults.iter().filter(|addr| touched.contains(addr)).count();
    assert!((45..=50).contains(&known), "{known} of the addresses are those of our pages");
}

/// Compiles a source of the test objects after a change, with the header after another one; the object.
fn changed(folder: &Path, source: &str, change: impl Fn(&str) -> String, first: &str) -> Vec<u8> {
    let built = objects::build();
    for (name, first) in [("afterimage.bpf.h", ""), (source, first)] {
        let text = std::fs::read_to_string(built.join(name)).unwrap();
        std::fs::write(folder.join(name), format!("{first}{}", change(&text))).unwrap();
    }
    objects::compile_with(&folder.join(source), folder, &[]).unwrap();
    std::fs::read(folder.join(source).with_extension("o")).unwrap()
}

/// On a kernel without the function that gives the prepared sample: its name is one that no kernel has.
#[test]
fn the_header_does_without_the_prepared_sample() {
    let test = "the_header_does_without_the_prepared_sample";
    let needs = [Need::Clang, Need::NoGuest];
    let Some(_one) = alone(test).filter(|_| has(test, &needs)) else { return };
    let folder = tempfile::tempdir().unwrap();
    let gone = |text: &str| text.replace("bpf_cast_to_kern_ctx", "bpf_cast_to_nothing");
    let bytes = changed(folder.path(), "plain.bpf.c", gone, "");
    let mut event = Event::open(&page_faults(), gettid(), -1, 512);
    let mut handlers = load(Builtin::None, false, Mechanism::Plain);
    let mut outputs = outputs(256);
    give_outputs(&mut handlers, &outputs);
    install(&mut handlers, &Object::open(bytes, None, &[]).unwrap());
    handlers.attach(0, event.fd.as_fd()).unwrap();
    event.enable();
    Pages::new(200).touch();
    event.disable();
    let ring = event.drained().samples;
    let written: Vec<Seen> = outputs.iter_mut().flat_map(|output| output.drained().samples).collect();
    assert!(ring.len() >= 200 && ring.len() == written.len(), "{} {}", ring.len(), written.len());
    for (sample, record) in ring.iter().zip(&written) {
        let value = ValuePayload::decode(&record.raw).unwrap();
        assert_eq!((Fact::of(value.bytes).ip, value.hdr.time), (sample.ip, 0));
    }
    // What asks for more is refused by name and line, before the kernel sees it.
    let object = open("whole", None, "").unwrap();
    let error = object.load(&handlers.shared(), &[WITH_CHAIN], handlers.next_id(), &[]).unwrap_err();
    println!("{error:#}");
    let line = objects::line_of("whole.bpf.c", "seen.id = ai_id(ctx);");
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(error.to_string().contains(&format!("whole.bpf.c:{line}: ai_id() needs Linux 6.2 or later")), "{error}");
}

/// The header behind a whole vmlinux.h of this kernel.
#[test]
fn the_header_goes_with_a_vmlinux_h() {
    let test = "the_header_goes_with_a_vmlinux_h";
    let needs = [Need::Clang, Need::Bpftool, Need::NoGuest];
    let Some(_one) = alone(test).filter(|_| has(test, &needs)) else { return };
    let folder = tempfile::tempdir().unwrap();
    let words = ["btf", "dump", "file", "/sys/kernel/btf/vmlinux", "format", "c"];
    let types = std::process::Command::new("bpftool").args(words).output().unwrap();
    std::fs::write(folder.path().join("vmlinux.h"), types.stdout).unwrap();
    // The kernel has such enumerators too.
    let own_words = |text: &str| text.replace(" DROP", " TO_DROP").replace(" CHAIN", " TO_CHAIN");
    let bytes = changed(folder.path(), "whole.bpf.c", own_words, "#include \"vmlinux.h\"\n");
    let handlers = load(Builtin::None, false, best());
    let object = Object::open(bytes, None, &[]).unwrap();
    let loaded = object.load(&handlers.shared(), &[WITH_CHAIN], handlers.next_id(), &[]);
    assert_eq!(loaded.map(|loaded| loaded.name).map_err(|e| format!("{e:#}")), Ok("whole".to_owned()));
}

/// What another object left in a map is there for the next one.
#[test]
fn a_map_can_be_kept() {
    let test = "a_map_can_be_kept";
    let Some(_one) = alone(test).filter(|_| has(test, &[Need::Clang]) && best() == Mechanism::Kfuncs) else { return };
    let event = Event::open(&page_faults(), gettid(), -1, 64);
    let mut handlers = load(Builtin::None, false, Mechanism::Kfuncs);
    let object = open("whole", None, "emits=0 labels=0").unwrap();
    let first = install(&mut handlers, &object);
    handlers.attach(0, event.fd.as_fd()).unwrap();
    event.enable();
    Pages::new(50).touch();
    let keep = vec![("runs".to_owned(), first.map("runs").unwrap())];
    let second = object.load(&handlers.shared(), &[WITH_CHAIN], handlers.next_id(), &keep).unwrap();
    let id = handlers.add("second", second.program().unwrap());
    handlers.swap(id).unwrap();
    drop(first);
    Pages::new(50).touch();
    event.disable();
    use libbpf_rs::{MapCore as _, MapFlags, MapHandle, MapInfo};
    let id = MapInfo::new(second.map("runs").unwrap()).unwrap().info.id;
    let runs = MapHandle::from_map_id(id).unwrap().lookup(&0u32.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
    assert_eq!(u64::from_ne_bytes(runs.try_into().unwrap()), total(&handlers).handled);

    for (name, says) in
        [("walks", "the object has no such map; it has runs"), ("runs", "the map to keep is of another type")]
    {
        let shared = handlers.shared();
        let wrong = vec![(name.to_owned(), shared.map("ai_cpus").unwrap())];
        let refused = object.load(&shared, &[WITH_CHAIN], handlers.next_id(), &wrong).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Options);
        assert!(refused.to_string().contains(says), "{refused}");
    }
}

/// What is not there is named, with what is.
#[test]
fn errors_name_what_exists() {
    let test = "errors_name_what_exists";
    if !has(test, &[Need::Clang]) {
        return;
    }
    let error = |name: &str, program, set: &str| {
        let error = open(name, program, set).unwrap_err();
        (error.kind(), error.to_string())
    };
    let options = |text: &str| (ErrorKind::Options, text.to_owned());
    assert_eq!(
        error("bare", None, ""),
        options("choosing a program: the object has several handlers, name one: all, none")
    );
    assert_eq!(
        error("bare", Some("some"), ""),
        options("choosing a program: the object has no program some; it has all, none")
    );
    assert_eq!(error("bare", Some("all"), "kept=1"), options("kept: no such constant: there are keep"));
    assert_eq!(error("bare", Some("all"), "keep=no"), options("keep=no: it is a number"));
    assert_eq!(error("whole", None, "mood=GLAD"), options("mood=GLAD: it is a number or one of CALM, HURRIED"));
    assert_eq!(
        error("whole", None, "place=far-away-from-here"),
        options("place=far-away-from-here: it has room for 15 bytes")
    );
    assert_eq!(
        error("whole", None, "ai_nr_cpus=1"),
        options("ai_nr_cpus: no such constant: there are verdict, emits, labels, every, shift, mood, place")
    );
    for damaged in
        [b"".to_vec(), b"no object at all, and long enough to be one of sixty-four bytes, or so it seems".to_vec()]
    {
        assert_eq!(Object::open(damaged, None, &[]).unwrap_err().kind(), ErrorKind::Object);
    }
    let exe = std::fs::read("/proc/self/exe").unwrap();
    assert_eq!(Object::open(exe, None, &[]).unwrap_err().kind(), ErrorKind::Object);
    let whole = std::fs::read(file("whole")).unwrap();
    for cut in (0..whole.len()).step_by(997) {
        // Whatever is left of it, nothing breaks.
        if let Ok(object) = Object::open(whole[..cut].to_vec(), None, &[]) {
            let _ = object.refusals(&[WITH_CHAIN], &TODAY);
        }
    }
}

/// The verifier's word, with the lines before it.
#[test]
fn the_verifier_is_quoted() {
    let test = "the_verifier_is_quoted";
    let Some(_one) = alone(test).filter(|_| has(test, &[Need::Clang])) else { return };
    let handlers = load(Builtin::None, false, best());
    let object = open("refused", Some("endless"), "").unwrap();
    let error = object.load(&handlers.shared(), &[WITH_CHAIN], handlers.next_id(), &[]).unwrap_err();
    println!("{error:#}");
    assert_eq!(error.kind(), ErrorKind::Verifier);
    assert!(error.to_string().starts_with("loading endless: the kernel's verifier refuses it: R"), "{error}");
    assert!(error.log().len() <= 12 && error.log().len() <= error.full_log().len());
    // The loader's own checks come first.
    let object = open("refused", Some("task_stack"), "").unwrap();
    let error = object.load(&handlers.shared(), &[WITH_CHAIN], handlers.next_id(), &[]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    let line = objects::line_of("refused.bpf.c", "/* line: task_stack */");
    assert!(error.to_string().contains(&format!("refused.bpf.c:{line}: bpf_get_task_stack() would")), "{error}");
}

#[test]
fn refusals() {
    if !has("refusals", &[Need::Clang]) {
        return;
    }
    let precise = EventConfig { precise_ip: 2, ..EventConfig::default() };
    let old = Limits { context: false, ..TODAY };
    let none = EventConfig::default();
    // Deeper than the kernel's helper leaves whole, whatever the buffer.
    let deep = EventConfig { max_stack: 120, ..WITH_CHAIN };
    let any_depth = EventConfig { max_stack: 0, ..WITH_CHAIN };
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
        ("long_stack", deep, TODAY, Some(Rule::ShortUserStack)),
        ("long_stack", any_depth, TODAY, Some(Rule::ShortUserStack)),
        ("kernel_stack", any_depth, TODAY, None),
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
        let Some(refusal) = refusals.first().filter(|r| r.rule != Rule::NoTailCall) else { continue };
        let line = objects::line_of("refused.bpf.c", &format!("/* line: {program} */"));
        let place = format!("refused.bpf.c:{line}");
        assert!(refusal.place.to_string().ends_with(&place), "{program}: {} is not {place}", refusal.place);
    }
    // What is set decides what can be reached, and how much room there is.
    let rule = |program: &str, set: &str| {
        let object = open("refused", Some(program), set).unwrap();
        object.refusals(&[WITH_CHAIN], &TODAY).first().map(|refusal| refusal.rule)
    };
    assert_eq!(rule("task_stack_never", "wanted=1"), Some(Rule::TaskStack));
    assert_eq!(rule("long_stack", "bytes=1015"), Some(Rule::ShortUserStack));
    assert_eq!(rule("long_stack", "bytes=1016"), None);
}
