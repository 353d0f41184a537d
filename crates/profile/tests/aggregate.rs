//! Rows, trees and stacks of small recordings.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use afterimage_perf_data::record::BranchStack;
use afterimage_perf_data::{
    AiHdr, Attr, Callchain, EmitPayload, Endian, FileReader, HandlerDesc, Private, Record, Sample, SampleType,
    TrueCounts, Words, context,
};
use afterimage_profile::{
    AggregateOptions, FilterKind, Filters, Key, Node, Order, Pattern, Profile, Reason, ResolveOptions, Resolver,
    SortKey, TallySource, aggregate,
};
use common::{Recording, attr, bpf_output, event};
use proptest::prelude::*;

const KERNEL: u64 = 0xffff_ffff_8100_0000;
const TEXT: u64 = 0xffff_ffff_c000_1000;
/// Names for kernel addresses: three functions of 256 bytes.
const KALLSYMS: &str = "ffffffff81000000 T _stext
ffffffff81000000 T leaf
ffffffff81000100 T middle
ffffffff81000200 T root
ffffffff81000300 T _etext
";

fn profile_of(bytes: &[u8], options: &AggregateOptions) -> Profile {
    let reader = FileReader::open(bytes).unwrap();
    let kallsyms = Some(KALLSYMS.as_bytes().to_vec());
    let mut resolver = Resolver::new(&reader, ResolveOptions { kallsyms, ..ResolveOptions::default() });
    aggregate(&reader, options, &mut resolver)
}

fn options(sort: &str) -> AggregateOptions {
    let sort = sort.split(',').map(|key| key.parse().unwrap()).collect();
    AggregateOptions { sort, chains: true, ..AggregateOptions::default() }
}

/// `own children keys…` of each row.
fn rows(profile: &Profile) -> Vec<String> {
    let mut all = Vec::new();
    for row in profile.rows(0) {
        let keys: Vec<String> = row
            .keys
            .iter()
            .map(|key| match key {
                Key::Comm(name) | Key::Event(name) | Key::Cgroup(name) => name.to_string(),
                Key::Dso(dso) => dso.short.clone(),
                Key::Sym(frame) => frame.name().into_owned(),
                Key::Srcline(line) => line.as_ref().map_or("??:0".into(), |line| line.to_string()),
                Key::Text(text) => text.as_ref().and_then(|text| text.name.clone()).unwrap_or("-".into()),
                Key::Pid(id, name) | Key::Tid(id, name) => format!("{id}:{name}"),
                Key::Cpu(cpu) => format!("{cpu:?}"),
                Key::Label(_, value) => value.as_ref().map_or("(none)".into(), |value| value.text.clone()),
                other => format!("{other:?}"),
            })
            .collect();
        all.push(format!("{} {} {}", row.own.samples, row.children.samples, keys.join(" ")));
    }
    all
}

/// `name total own` of each node, deeper ones further in.
fn tree(nodes: &[Node], depth: usize, out: &mut Vec<String>) {
    for node in nodes {
        out.push(format!("{}{} {} {}", " ".repeat(depth), node.frame.name(), node.total.samples, node.own.samples));
        tree(&node.nodes, depth + 1, out);
    }
}

/// A recursion: root → middle → middle → leaf, and root → leaf. Return addresses lie behind calls.
fn recursion() -> Vec<u8> {
    let mut r = Recording::new();
    r.comm(0, 5, "kthread", false);
    let (leaf, middle, root) = (KERNEL + 8, KERNEL + 0x120, KERNEL + 0x240);
    for time in 1..=3 {
        r.chain(time, 5, leaf, &[context::KERNEL, leaf, middle, middle + 4, root]);
    }
    r.chain(4, 5, leaf + 1, &[context::KERNEL, leaf + 1, root]);
    r.finish()
}

#[test]
fn a_symbol_counts_once_per_stack() {
    let profile = profile_of(&recursion(), &AggregateOptions { children: true, ..options("sym") });
    assert_eq!(rows(&profile), ["4 4 leaf", "0 4 root", "0 3 middle"]);
    let without = profile_of(&recursion(), &options("comm,dso,sym"));
    assert_eq!(rows(&without), ["4 4 kthread [kernel.kallsyms] leaf"]);
    assert_eq!(without.percent(0, without.rows(0)[0].own.period), 100.0);
}

#[test]
fn trees_go_both_ways() {
    let profile = profile_of(&recursion(), &options("sym"));
    let row = &profile.rows(0)[0];
    let mut callers = Vec::new();
    tree(&profile.tree(row, Order::Callee).nodes, 0, &mut callers);
    assert_eq!(callers, ["leaf 4 0", " middle 3 0", "  middle 3 0", "   root 3 3", " root 1 1"]);
    let mut down = Vec::new();
    tree(&profile.tree(row, Order::Caller).nodes, 0, &mut down);
    assert_eq!(down, ["root 4 0", " middle 3 0", "  middle 3 0", "   leaf 3 3", " leaf 1 1"]);
    // A caller's tree shows what it called, or who called it.
    let with_children = profile_of(&recursion(), &AggregateOptions { children: true, ..options("sym") });
    let rows = with_children.rows(0);
    let mut of_middle = Vec::new();
    tree(&with_children.tree(&rows[2], Order::Caller).nodes, 0, &mut of_middle);
    assert_eq!(of_middle, ["middle 3 0", " middle 3 0", "  leaf 3 3"]);
    of_middle.clear();
    tree(&with_children.tree(&rows[2], Order::Callee).nodes, 0, &mut of_middle);
    assert_eq!(of_middle, ["middle 3 0", " root 3 3"]);
}

/// leaf ← middle ← root ← middle ← root: what lies between the two is called by the outermost one alone.
#[test]
fn a_tree_begins_with_the_outermost_frame_of_its_symbol() {
    let mut r = Recording::new();
    r.comm(0, 5, "kthread", false);
    let (leaf, middle, root) = (KERNEL + 8, KERNEL + 0x120, KERNEL + 0x240);
    r.chain(1, 5, leaf, &[context::KERNEL, leaf, middle, root, middle + 4, root + 4]);
    let profile = profile_of(&r.finish(), &AggregateOptions { children: true, ..options("sym") });
    let rows = profile.rows(0);
    let of = |name: &str, order| {
        let row = rows.iter().find(|row| matches!(&row.keys[0], Key::Sym(frame) if frame.name() == name)).unwrap();
        let mut lines = Vec::new();
        tree(&profile.tree(row, order).nodes, 0, &mut lines);
        lines
    };
    assert_eq!(of("middle", Order::Callee), ["middle 1 0", " root 1 1"]);
    assert_eq!(of("middle", Order::Caller), ["middle 1 0", " root 1 0", "  middle 1 0", "   leaf 1 1"]);
    assert_eq!(of("root", Order::Callee), ["root 1 1"]);
}

/// Samples of `leaf`, called by `middle` and not, each with two branches; and one without a stack, in `middle`.
fn with_branches() -> Vec<u8> {
    let sample_type = attr().sample_type | SampleType::BRANCH_STACK;
    let mut r = Recording::of(vec![event(Attr { sample_type, ..attr() }, 1, "cycles")]);
    let (leaf, middle, root) = (KERNEL + 8, KERNEL + 0x120, KERNEL + 0x240);
    let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    let branches = words(&[root, leaf, 2, middle, leaf + 4, 2]);
    let stack = BranchStack { hw_index: None, entries: Words::new(&branches, Endian::Little), counters: None };
    let chains = [&[context::KERNEL, leaf, middle, root][..], &[context::KERNEL, leaf, root], &[]];
    for (time, chain) in (1..).zip(chains) {
        let bytes = words(chain);
        let sample = Sample {
            misc: 1,
            identifier: Some(1),
            ip: Some(if chain.is_empty() { middle } else { leaf }),
            pid: Some(5),
            tid: Some(5),
            time: Some(time),
            cpu: Some(1),
            period: Some(10),
            callchain: Some(Callchain::new(&bytes, Endian::Little)),
            branch_stack: Some(stack),
            ..Sample::default()
        };
        r.record(0, &Record::Sample(sample));
    }
    r.finish()
}

#[test]
fn parents_of_branches_are_on_the_stacks_of_their_samples() {
    let bytes = with_branches();
    let filters = |exclude_other| Filters {
        parents: Some(Pattern::parse("^middle$").unwrap()),
        exclude_other,
        ..Filters::default()
    };
    let of = |exclude_other| AggregateOptions {
        chains: false,
        filters: filters(exclude_other),
        ..options("parent,symbol_from")
    };
    let shown = |profile: &Profile| -> Vec<(Option<String>, String, u64)> {
        let name = |frame: &afterimage_profile::Frame| frame.name().into_owned();
        let one = |row: &afterimage_profile::Row| match row.keys.as_slice() {
            [Key::Parent(parent), Key::Place(_, Some((from, _)))] => {
                (parent.as_ref().map(name), name(from), row.own.samples)
            }
            other => panic!("{other:?}"),
        };
        let mut all: Vec<_> = profile.rows(0).iter().map(one).collect();
        all.sort();
        all
    };
    let (other, middle) = (None, Some("middle".to_owned()));
    let row = |parent: &Option<String>, from: &str, samples| (parent.clone(), from.to_owned(), samples);
    let all = profile_of(&bytes, &of(false));
    assert_eq!(
        shown(&all),
        [row(&other, "middle", 1), row(&other, "root", 1), row(&middle, "middle", 2), row(&middle, "root", 2)]
    );
    let some = profile_of(&bytes, &of(true));
    assert_eq!(shown(&some), [row(&middle, "middle", 2), row(&middle, "root", 2)]);
    let left: Vec<_> = some.events[0].left_out.iter().map(|(kind, weight)| (*kind, weight.samples)).collect();
    assert_eq!(left, [(FilterKind::Parent, 2)]);
}

#[test]
fn stacks_begin_with_the_outermost_frame() {
    let profile = profile_of(&recursion(), &options("sym"));
    let stacks: Vec<String> = profile
        .stacks(0)
        .map(|stack| {
            let names: Vec<_> = stack.frames.iter().map(|frame| frame.name().into_owned()).collect();
            format!("{};{} {}", stack.comm, names.join(";"), stack.weight.samples)
        })
        .collect();
    assert_eq!(stacks, ["kthread;root;middle;middle;leaf 3", "kthread;root;leaf 1"]);
}

#[test]
fn a_return_address_belongs_to_the_call_before_it() {
    let mut r = Recording::new();
    // The call is the last instruction of `leaf`: the return address is the first byte of `middle`.
    let ip = KERNEL + 0x210;
    r.chain(1, 5, ip, &[context::KERNEL, ip, KERNEL + 0x100]);
    let profile = profile_of(&r.finish(), &options("sym"));
    let names: Vec<_> = profile.stacks(0).next().unwrap().frames.iter().map(|f| f.name().into_owned()).collect();
    assert_eq!(names, ["leaf", "root"]);
}

#[test]
fn one_raw_stack_has_two_meanings_when_text_came_between() {
    let mut r = Recording::new();
    r.ksymbol(1, TEXT, 64, "bpf_prog_a", false);
    r.ksymbol(20, TEXT, 64, "bpf_prog_a", true);
    r.ksymbol(20, TEXT, 64, "bpf_prog_b", false);
    r.ksymbol(40, TEXT, 64, "bpf_prog_b", true);
    let chain = [context::KERNEL, TEXT + 8, KERNEL + 0x220];
    for time in [5, 6, 7, 25, 26, 45] {
        r.chain(time, 5, TEXT + 8, &chain);
    }
    let bytes = r.finish();
    let expected =
        ["3 3 bpf_prog_a bpf_prog_a", "2 2 bpf_prog_b bpf_prog_b", "1 1 [kernel.kallsyms] 0xffffffffc0001008"];
    for chains in [true, false] {
        let profile = profile_of(&bytes, &AggregateOptions { chains, ..options("dso,sym") });
        assert_eq!(rows(&profile), expected);
        assert_eq!(profile.unresolved, [(Reason::NoKernelText, 1)]);
    }
}

#[test]
fn one_raw_stack_has_two_meanings_when_maps_changed() {
    let mut r = Recording::new();
    r.comm(0, 5, "a", false);
    r.mmap(0, 5, 0x1000, 0x1000, 0, "/no/such/first");
    let chain = [context::USER, 0x1010, 0x1020];
    r.chain(10, 5, 0x1010, &chain);
    r.mmap(11, 5, 0x1000, 0x1000, 0, "/no/such/second");
    r.chain(12, 5, 0x1010, &chain);
    // A new map elsewhere changes nothing.
    r.mmap(13, 5, 0x8000, 0x1000, 0, "/no/such/third");
    r.chain(14, 5, 0x1010, &chain);
    let profile = profile_of(&r.finish(), &options("dso"));
    assert_eq!(rows(&profile), ["2 2 second", "1 1 first"]);
    assert_eq!(profile.unresolved, [(Reason::NoFile, 3)]);
}

#[test]
fn keys_tell_rows_apart_only_when_asked_for() {
    let mut r = Recording::new();
    r.comm(0, 5, "a", false);
    r.comm(0, 6, "b", false);
    r.sample(1, 5, KERNEL);
    r.sample(2, 6, KERNEL);
    r.comm(3, 6, "renamed", false);
    r.sample(4, 6, KERNEL);
    let bytes = r.finish();
    let of = |sort: &str| rows(&profile_of(&bytes, &AggregateOptions { chains: false, ..options(sort) }));
    assert_eq!(of("sym"), ["3 3 leaf"]);
    assert_eq!(of("comm"), ["1 1 a", "1 1 b", "1 1 renamed"]);
    assert_eq!(of("pid"), ["2 2 6:renamed", "1 1 5:a"]);
    assert_eq!(of("tid,sym"), ["2 2 6:renamed leaf", "1 1 5:a leaf"]);
    assert_eq!(of("cpu,event"), ["3 3 Some(1) cpu-clock"]);
    assert_eq!("x".parse::<SortKey>().unwrap_err().0, "x");
}

#[test]
fn stacks_that_end_early_are_counted() {
    let mut r = Recording::new();
    r.chain(1, 5, 0x1000, &[context::USER, 0x1000]);
    r.chain(2, 5, KERNEL, &[context::KERNEL, KERNEL, context::USER, 0x1000, 0x2000]);
    r.chain(3, 5, KERNEL, &[context::KERNEL, KERNEL, context::USER, 0x1000, 0x2000, 0x3000]);
    r.chain(4, 5, KERNEL, &[context::KERNEL, KERNEL, KERNEL + 1, KERNEL + 2, KERNEL + 3]);
    r.sample(5, 5, 0x1000);
    let profile = profile_of(&r.finish(), &options("sym"));
    assert_eq!((profile.events[0].user_stacks, profile.events[0].short_user_stacks), (3, 2));
}

#[test]
fn a_chain_without_its_kernel_part_gets_the_address_in_front() {
    let mut r = Recording::new();
    r.chain(1, 5, KERNEL, &[context::USER, 0x1000]);
    let profile = profile_of(&r.finish(), &options("sym"));
    let names: Vec<_> = profile.stacks(0).next().unwrap().frames.iter().map(|f| f.name().into_owned()).collect();
    assert_eq!(names, ["0x0000000000001000", "leaf"]);
}

/// A file of the recorded path may be of another build, and a stream tells build IDs last.
#[test]
fn no_file_without_a_build_id_names_a_stream_that_still_comes() {
    let exe = std::env::current_exe().unwrap();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let mut r = Recording::new();
    r.mmap(1, 5, 0x40_0000, 0x1000, 0, exe.to_str().unwrap());
    r.sample(2, 5, 0x40_0010);
    let features = afterimage_perf_data::Features { hostname: Some(host.trim().into()), ..Default::default() };
    let bytes = r.finish_with(&features, None);
    let reader = FileReader::open(&bytes).unwrap();
    for build_ids_to_come in [false, true] {
        let mut resolver = Resolver::new(&reader, ResolveOptions { build_ids_to_come, ..Default::default() });
        let profile =
            aggregate(&reader, &AggregateOptions { sort: options("sym").sort, ..Default::default() }, &mut resolver);
        let withheld = profile.unresolved.iter().any(|(reason, count)| (*reason, *count) == (Reason::BuildIdToCome, 1));
        assert_eq!(withheld, build_ids_to_come, "{:?}", profile.unresolved);
    }
}

#[test]
fn true_counts_weigh_and_a_second_event_stays_apart() {
    let mut r = Recording::of(vec![event(attr(), 1, "cpu-clock"), event(attr(), 2, "whatever")]);
    r.sample(1, 5, KERNEL);
    r.chain_of(1, 2, 5, KERNEL, &[]);
    r.chain_of(1, 3, 5, KERNEL + 0x100, &[]);
    let handler = HandlerDesc { name: "count".into(), chain: true, output_event: Some(1), ..HandlerDesc::default() };
    let private = Private {
        handlers: vec![handler],
        true_counts: vec![TrueCounts { event: 1, counts: vec![7, 9] }],
        ..Private::default()
    };
    let bytes = r.finish_with(&afterimage_perf_data::Features::default(), Some(&private));
    let profile = profile_of(&bytes, &options("sym"));
    let told: Vec<_> = profile.events.iter().map(|e| (&*e.name, e.total.samples, e.total.records)).collect();
    assert_eq!(told, [("cpu-clock", 1, 1), ("cpu-clock/count", 16, 2)]);
    assert_eq!(rows(&profile), ["1 1 leaf"]);
}

#[test]
fn a_killed_recording_says_so_and_names_no_kernel() {
    let mut r = Recording::new();
    r.sample(1, 5, KERNEL);
    let bytes = r.killed();
    let reader = FileReader::open(&bytes).unwrap();
    let mut resolver = Resolver::new(&reader, ResolveOptions::default());
    let profile = aggregate(&reader, &AggregateOptions::default(), &mut resolver);
    assert!(!profile.stats.finished);
    assert_eq!(profile.unresolved, [(Reason::OtherKernel, 1)]);
    assert_eq!(profile.tally_source, TallySource::Records);
    assert_eq!(profile.tally.total().human(), "1 sample: 1 kept");
}

/// A recording of another kernel: what it carries names the addresses, and nothing else does.
#[test]
fn kernel_symbols_come_with_the_recording() {
    let mut r = Recording::new();
    r.sample(1, 5, KERNEL + 0x14);
    r.sample(2, 5, KERNEL + 0x24);
    r.sample(3, 5, 0xffff_ffff_c000_0008);
    let kernel_symbols = format!(
        "{KERNEL:x} t _stext\n{:x} t _etext\n{:x} t theirs\n{:x} r end\nffffffffc0000000 t in_module\t[some]\n",
        KERNEL + 0x1000,
        KERNEL + 0x10,
        KERNEL + 0x20
    );
    let private = Private { kernel_symbols: kernel_symbols.into_bytes(), ..Private::default() };
    let bytes = r.finish_with(&afterimage_perf_data::Features::default(), Some(&private));
    let reader = FileReader::open(&bytes).unwrap();
    let mut resolver = Resolver::new(&reader, ResolveOptions::default());
    let profile =
        aggregate(&reader, &AggregateOptions { sort: options("sym").sort, ..Default::default() }, &mut resolver);
    let named: Vec<String> = rows(&profile).into_iter().filter(|row| !row.contains("0x")).collect();
    assert_eq!(named, ["1 1 theirs", "1 1 in_module"]);
    assert_eq!(profile.unresolved, [(Reason::OtherKernel, 1)]);
}

/// Something of everything.
fn mixture() -> Vec<u8> {
    let mut r = Recording::of(vec![event(attr(), 1, "cpu-clock"), event(bpf_output(), 2, "bpf-output")]);
    r.comm(0, 5, "sh", false);
    r.mmap(0, 5, 0x1000, 0x1000, 0, "/no/such/sh");
    r.mmap(0, 5, 0x4000, 0x1000, 0, "//anon");
    r.mmap(0, 5, 0x6000, 0x1000, 0, "[vdso]");
    r.ksymbol(3, TEXT, 64, "bpf_prog_a", false);
    r.chain(10, 5, 0x1010, &[context::USER, 0x1010, 0x4020, 0x6000]);
    r.round();
    r.fork(20, 5, 6);
    r.chain(21, 6, TEXT + 4, &[context::KERNEL, TEXT + 4, KERNEL + 4, context::USER, 0x1010]);
    let hdr = AiHdr { version: 1, kind: AiHdr::EMIT, cpu: 1, ip: 0x1000, ..AiHdr::default() };
    let mut payload = Vec::new();
    EmitPayload { hdr, pid: 7, tid: 8, period: 99, ..EmitPayload::default() }.encode(&mut payload);
    r.raw(1, 22, &payload);
    r.ksymbol(30, TEXT, 64, "bpf_prog_a", true);
    let handler = HandlerDesc { event: 0, name: "emit".into(), output_event: Some(1), ..HandlerDesc::default() };
    let private = Private {
        handlers: vec![handler],
        true_counts: vec![TrueCounts { event: 0, counts: vec![7, 9] }],
        ..Private::default()
    };
    r.finish_with(&afterimage_perf_data::Features::default(), Some(&private))
}

proptest! {
    #[test]
    fn any_bytes_make_a_profile_that_adds_up(
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..30),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = mixture();
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes.truncate(cut.index(2 * bytes.len()) + 1);
        if FileReader::open(&bytes).is_err() {
            return Ok(());
        }
        let profile = profile_of(&bytes, &AggregateOptions { children: true, ..options("comm,dso,sym,pid,tid,cpu,event,cgroup") });
        for (index, event) in profile.events.iter().enumerate() {
            let rows = profile.rows(index);
            let own = rows.iter().fold(0u64, |sum, row| sum.saturating_add(row.own.samples));
            prop_assert_eq!(own, event.total.samples);
            let stacks = profile.stacks(index).fold(0u64, |sum, stack| sum.saturating_add(stack.weight.samples));
            prop_assert_eq!(stacks, event.total.samples);
            for row in &rows {
                prop_assert!(row.own.samples <= row.children.samples && row.children.samples <= event.total.samples);
                let tree = profile.tree(row, Order::Caller);
                let through = tree.nodes.iter().fold(0u64, |sum, node| sum.saturating_add(node.total.samples));
                prop_assert_eq!(through, row.children.samples);
            }
        }
    }
}
