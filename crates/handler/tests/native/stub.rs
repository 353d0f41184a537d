//! The stub itself: how it is attached and released, and that its tail call is an indirect one.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use afterimage_handler::gate::{Context, Gate, NoNames};
use afterimage_handler::object::Object;
use afterimage_handler::{Builtin, ErrorKind, EventConfig, Handlers, Mechanism, Options, by};
use afterimage_perf_data::{Attr, SampleType};
use afterimage_testkit::{Need, has, objects};

use crate::support::*;

/// Each handler loads in each way that this kernel has, and the better one is taken by itself.
#[test]
fn every_handler_loads() {
    let Some(_one) = alone("every_handler_loads") else { return };
    for mechanism in mechanisms() {
        let handlers = load_with(Builtin::Count, &ALL, true, mechanism);
        assert_eq!(handlers.mechanism(), mechanism);
        let names: Vec<_> = handlers.programs().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["stub", "emit", "count"]);
    }
    let options = Options { builtin: Builtin::Emit, events: vec![EventConfig::default()], ..Options::default() };
    let handlers = Handlers::load(&options).unwrap();
    assert_eq!(handlers.mechanism(), best());
    assert_eq!(handlers.note().is_none(), best() == Mechanism::Kfuncs, "{:?}", handlers.note());
}

/// The link keeps the program on the event, and its end lets the event go.
#[test]
fn dropping_handlers_releases_the_event() {
    let Some(_one) = alone("dropping_handlers_releases_the_event") else { return };
    let mut event = Event::open(&page_faults(), gettid(), -1, 256);
    let mut first = load(Builtin::Count, false, best());
    first.attach(0, event.fd.as_fd()).unwrap();
    assert_eq!(first.attached(), 1);
    let mut second = load(Builtin::Count, false, best());
    let refused = second.attach(0, event.fd.as_fd()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Busy, "{refused}");
    drop(first);
    event.enable();
    Pages::new(10).touch();
    event.disable();
    assert!(event.drained().samples.len() >= 10, "without a program the event samples into its ring");
    second.attach(0, event.fd.as_fd()).unwrap();
    event.enable();
    Pages::new(10).touch();
    event.disable();
    assert_eq!(event.drained().samples.len(), 0);
    assert!(total(&second).stored >= 10);
}

/// Attaching does not start an event that is off.
#[test]
fn attaching_leaves_the_event_disabled() {
    let Some(_one) = alone("attaching_leaves_the_event_disabled") else { return };
    let event = Event::open(&page_faults(), gettid(), -1, 1);
    let mut handlers = load(Builtin::Count, false, best());
    handlers.attach(0, event.fd.as_fd()).unwrap();
    Pages::new(10).touch();
    assert_eq!(event.read().0, 0);
    assert_eq!(total(&handlers).handled, 0);
}

/// Each event has counters of its own, whatever events share the programs.
#[test]
fn events_are_counted_apart() {
    let Some(_one) = alone("events_are_counted_apart") else { return };
    let faults = Event::open(&page_faults(), gettid(), -1, 1);
    let busy = Busy::deep();
    let clock = Event::open(&clock(1_000_000), busy.tid, -1, 1);
    let config = EventConfig { callchain: true, ..EventConfig::default() };
    let options = Options { builtin: Builtin::Count, events: vec![config; 2], ..Options::default() };
    let mut handlers = Handlers::load(&options).unwrap();
    handlers.attach(0, faults.fd.as_fd()).unwrap();
    handlers.attach(1, clock.fd.as_fd()).unwrap();
    faults.enable();
    clock.enable();
    Pages::new(100).touch();
    std::thread::sleep(std::time::Duration::from_millis(200));
    clock.disable();
    faults.disable();
    let mut tids = [Vec::new(), Vec::new()];
    for (event, tids) in tids.iter_mut().enumerate() {
        for cpu in cpus() {
            handlers.drain_counts(event, cpu, &mut |entry| {
                tids.extend(std::iter::repeat_n(entry.tid as i32, entry.count as usize))
            });
        }
        let stored: u64 = cpus().iter().map(|&cpu| handlers.counters(event, cpu).stored).sum();
        assert_eq!(tids.len() as u64, stored);
    }
    assert!(tids[0].len() >= 100 && tids[0].iter().all(|&tid| tid == gettid()));
    assert!(!tids[1].is_empty() && tids[1].iter().all(|&tid| tid == busy.tid));
}

/// A tracepoint event is refused before anything is loaded for it.
#[test]
fn tracepoint_events_carry_no_stub() {
    let refused = EventConfig::from_attr(&Attr { kind: 2, ..Attr::default() }).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
}

/// What cannot be loaded says why.
#[test]
fn impossible_options_are_refused() {
    let Some(_one) = alone("impossible_options_are_refused") else { return };
    let refused = Handlers::load(&Options::default()).unwrap_err();
    assert_eq!(refused.to_string(), "loading handlers: 0 events: 1 to 4096 can be served");
    let options = Options { events: vec![EventConfig::default()], cpus: vec![1 << 20], ..Options::default() };
    assert_eq!(Handlers::load(&options).unwrap_err().to_string(), "loading handlers: there is no CPU 1048576");
    let precise = EventConfig { callchain: false, precise_ip: 1, ..EventConfig::default() };
    let options = Options {
        builtin: Builtin::Count,
        events: vec![precise],
        mechanism: Some(Mechanism::Plain),
        ..Options::default()
    };
    assert_eq!(Handlers::load(&options).unwrap_err().kind(), ErrorKind::Unsupported);
    let mut handlers = Handlers::load(&Options { builtin: Builtin::None, ..options }).unwrap();
    let event = Event::open(&page_faults(), gettid(), -1, 1);
    assert_eq!(handlers.attach(1, event.fd.as_fd()).unwrap_err().kind(), ErrorKind::Options);
    assert_eq!(handlers.set_output(0, 1 << 20, event.fd.as_fd()).unwrap_err().kind(), ErrorKind::Options);
}

/// One instruction of a program as the kernel runs it (struct bpf_insn).
#[derive(Clone, Copy)]
struct Insn {
    code: u8,
    dst: u8,
    imm: i32,
}

const CALL: u8 = 0x85;
const TAIL_CALL: i32 = 12;

/// The program's instructions and machine code, as the kernel shows them.
fn dump(fd: BorrowedFd<'_>) -> (Vec<Insn>, Vec<u8>) {
    let info = |xlated: &mut [u8], jited: &mut [u8]| {
        let mut info = libbpf_sys::bpf_prog_info {
            xlated_prog_insns: xlated.as_mut_ptr() as u64,
            xlated_prog_len: xlated.len() as u32,
            jited_prog_insns: jited.as_mut_ptr() as u64,
            jited_prog_len: jited.len() as u32,
            ..Default::default()
        };
        let mut len = size_of_val(&info) as u32;
        // SAFETY: info and the two buffers it points at live through the call and have the lengths it says.
        let result =
            unsafe { libbpf_sys::bpf_obj_get_info_by_fd(fd.as_raw_fd(), (&raw mut info).cast(), &raw mut len) };
        assert_eq!(result, 0);
        (info.xlated_prog_len as usize, info.jited_prog_len as usize)
    };
    let (xlated_len, jited_len) = info(&mut [], &mut []);
    let (mut xlated, mut jited) = (vec![0; xlated_len], vec![0; jited_len]);
    info(&mut xlated, &mut jited);
    let insn = |bytes: &[u8]| Insn {
        code: bytes[0],
        dst: bytes[1] & 15,
        imm: i32::from_ne_bytes(bytes[4..8].try_into().unwrap()),
    };
    (xlated.chunks_exact(8).map(insn).collect(), jited)
}

/// Whether each tail call takes its index from a register, and whether the machine code checks that index at run time,
/// which a jump patched into the code for a constant index does not.
fn indirect(fd: BorrowedFd<'_>) -> (bool, bool) {
    let (insns, code) = dump(fd);
    let calls: Vec<usize> = (0..insns.len()).filter(|&n| insns[n].code == CALL && insns[n].imm == TAIL_CALL).collect();
    assert!(!calls.is_empty(), "a tail call");
    // 0xb4 and 0xb7 move a constant; r3 is the index.
    let constant = |call: usize| {
        insns[..call].iter().rev().find(|insn| insn.dst == 3).is_some_and(|insn| [0xb4, 0xb7].contains(&insn.code))
    };
    // mov edx, edx; cmp [rsi + max_entries], edx
    let checked = code.windows(4).filter(|bytes| bytes == &[0x89, 0xd2, 0x39, 0x56]).count();
    (!calls.iter().any(|&call| constant(call)), checked == calls.len())
}

/// A program that tail-calls slot 0 of an array, as a constant.
fn with_constant_index() -> (OwnedFd, OwnedFd) {
    let own = |fd: i32| {
        assert!(fd >= 0, "{fd}");
        // SAFETY: the kernel has just given us this descriptor.
        unsafe { OwnedFd::from_raw_fd(fd) }
    };
    // SAFETY: no name, no options.
    let array = own(unsafe {
        libbpf_sys::bpf_map_create(libbpf_sys::BPF_MAP_TYPE_PROG_ARRAY, std::ptr::null(), 4, 4, 1, std::ptr::null())
    });
    let insn = |code: u8, dst: u8, src: u8, imm: i32| {
        let mut insn = libbpf_sys::bpf_insn { code, imm, ..Default::default() };
        insn.set_dst_reg(dst);
        insn.set_src_reg(src);
        insn
    };
    let program = [
        insn(0x18, 2, 1, array.as_raw_fd()), // r2 = the array
        insn(0, 0, 0, 0),
        insn(0xb7, 3, 0, 0), // r3 = 0
        insn(CALL, 0, 0, TAIL_CALL),
        insn(0xb7, 0, 0, 1), // r0 = 1
        insn(0x95, 0, 0, 0), // exit
    ];
    // SAFETY: the instructions and strings live through the call; no options.
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_PERF_EVENT,
            std::ptr::null(),
            c"GPL".as_ptr(),
            program.as_ptr(),
            program.len() as u64,
            std::ptr::null_mut(),
        )
    };
    (own(fd), array)
}

/// Counting by a label: `by` runs the object, then what counts, each out of a slot of its own.
fn by_a_label(mechanism: Mechanism) -> Handlers {
    let bytes = std::fs::read(objects::build().join("keyed.bpf.o")).unwrap();
    let object = Arc::new(Object::open(bytes, None, &[]).unwrap());
    let events = vec![EventConfig::from_attr(&page_faults()).unwrap()];
    let options = Options { events, mechanism: Some(mechanism), ..Options::default() };
    let mut handlers = Handlers::load(&options).unwrap();
    let label = Some(by::GivenBy { name: "name".to_owned(), object });
    let keys = vec![by::Key::Label];
    handlers.load_by(&by::Options { keys, label, addressed: true, ..by::Options::default() }).unwrap();
    handlers
}

/// Slots are taken from a value at run time: clearing one has no code to patch and nobody to wait for.
#[test]
fn clearing_a_slot_takes_the_indirect_path() {
    let Some(_one) = alone("clearing_a_slot_takes_the_indirect_path") else { return };
    let is_indirect = |handlers: &Handlers, wanted: &[&str]| {
        let programs = handlers.programs();
        for name in wanted {
            let (_, fd) = programs.iter().find(|(known, _)| known == name).expect(name);
            let (by_register, checked) = indirect(*fd);
            assert!(by_register, "{name} {:?}", handlers.mechanism());
            assert!(checked || cfg!(not(target_arch = "x86_64")), "{name} {:?}", handlers.mechanism());
        }
    };
    for mechanism in mechanisms() {
        let mut handlers = load(Builtin::Count, false, mechanism);
        let context = Context::here(mechanism, SampleType::empty());
        let gate = Gate::compile("pid == 1 || tid == 2", &NoNames, &context).unwrap();
        handlers.set_gate(gate.load(&handlers.shared()).unwrap()).unwrap();
        is_indirect(&handlers, &["stub", "gate"]);
        if has("clearing_a_slot_takes_the_indirect_path", &[Need::Clang]) {
            is_indirect(&by_a_label(mechanism), &["stub", "by"]);
        }
    }
    let (direct, _array) = with_constant_index();
    assert_eq!(indirect(direct.as_fd()), (false, false), "a constant index is told apart");
}
