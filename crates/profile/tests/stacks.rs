//! Stacks that are found by the bytes of their parts are those that a walk finds, address by address.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use afterimage_perf_data::context::{GUEST_USER, KERNEL, USER, USER_DEFERRED};
use afterimage_perf_data::record::{Record, Sample, cpumode};
use afterimage_perf_data::{Callchain, Endian, FileReader};
use afterimage_profile::{
    AggregateOptions, Loc, Place, ReplayOptions, ResolveOptions, Resolver, Sink, SortKey, State, TimedSample,
    aggregate, replay,
};
use common::Recording;
use proptest::prelude::*;

const TEXT: u64 = 0xffff_ffff_c000_1000;
const KERNEL_TEXT: u64 = 0xffff_ffff_8100_0000;
const KALLSYMS: &str = "ffffffff81000000 T _stext\nffffffff81000100 T middle\nffffffff81000300 T _etext\n";

/// Something that happens.
#[derive(Clone, Debug)]
enum Step {
    Sample { pid: u32, misc: u16, ip: u64, chain: Vec<u64> },
    Map { pid: u32, page: u64, library: u8 },
    Vdso { pid: u32 },
    Fork { parent: u32, pid: u32 },
    Exec { pid: u32 },
    Text { gone: bool },
}

fn address() -> impl Strategy<Value = u64> {
    let user = (1_u64..4, 0_u64..3).prop_map(|(page, at)| page * 0x1000 + 0x10 * at);
    let kernel = (0_u64..4).prop_map(|at| KERNEL_TEXT + 0x80 * at);
    let text = (0_u64..2).prop_map(|at| TEXT + 0x20 * at);
    prop_oneof![3 => user, 2 => kernel, 1 => text]
}

/// Most have the usual form, as the kernel writes them; the rest are any words.
fn chain() -> impl Strategy<Value = Vec<u64>> {
    let addresses = || prop::collection::vec(address(), 0..4);
    let part = |marker: u64| addresses().prop_map(move |addresses| [vec![marker], addresses].concat());
    let usual = (prop::option::of(part(KERNEL)), prop::option::of(part(USER)))
        .prop_map(|(kernel, user)| [kernel.unwrap_or_default(), user.unwrap_or_default()].concat());
    let marker = prop::sample::select(vec![KERNEL, USER, GUEST_USER, USER_DEFERRED]);
    prop_oneof![3 => usual, 1 => prop::collection::vec(prop_oneof![2 => address(), 1 => marker], 0..6)]
}

fn step() -> impl Strategy<Value = Step> {
    let pid = || 5_u32..8;
    let modes = vec![0, cpumode::KERNEL, cpumode::KERNEL, cpumode::USER, cpumode::USER, cpumode::GUEST_USER];
    let sample = (pid(), prop::sample::select(modes), address(), chain(), any::<bool>());
    prop_oneof![
        12 => sample.prop_map(|(pid, misc, ip, chain, same)| {
            let ip = chain.get(1).copied().filter(|_| same).unwrap_or(ip);
            Step::Sample { pid, misc, ip, chain }
        }),
        3 => (pid(), 1_u64..4, 0_u8..3).prop_map(|(pid, page, library)| Step::Map { pid, page, library }),
        1 => pid().prop_map(|pid| Step::Vdso { pid }),
        1 => (pid(), pid()).prop_map(|(parent, pid)| Step::Fork { parent, pid }),
        1 => pid().prop_map(|pid| Step::Exec { pid }),
        1 => any::<bool>().prop_map(|gone| Step::Text { gone }),
    ]
}

/// A recording of what happens, all of it again and again.
fn recording(steps: &[Step], times: u64) -> Vec<u8> {
    let mut r = Recording::new();
    for (time, step) in (1..=times).flat_map(|_| steps).enumerate().map(|(nth, step)| (nth as u64 + 1, step)) {
        match step {
            Step::Sample { pid, misc, ip, chain } => {
                let words: Vec<u8> = chain.iter().flat_map(|word| word.to_le_bytes()).collect();
                let sample = Sample {
                    misc: *misc,
                    identifier: Some(1),
                    ip: Some(*ip),
                    pid: Some(*pid),
                    tid: Some(*pid),
                    time: Some(time),
                    cpu: Some(1),
                    period: Some(10),
                    callchain: Some(Callchain::new(&words, Endian::Little)),
                    ..Sample::default()
                };
                r.record(0, &Record::Sample(sample));
            }
            Step::Map { pid, page, library } => {
                r.mmap(time, *pid, page * 0x1000, 0x1000, page * 0x1000, &format!("/no/such/library-{library}"));
            }
            Step::Vdso { pid } => r.mmap(time, *pid, 0x9000, 0x1000, 0, "[vdso]"),
            Step::Fork { parent, pid } if parent != pid => r.fork(time, *parent, *pid),
            Step::Fork { .. } => {}
            Step::Exec { pid } => r.comm(time, *pid, "other", true),
            Step::Text { gone } => r.ksymbol(time, TEXT, 64, "bpf_prog_a", *gone),
        }
    }
    r.finish()
}

/// A name of a thread where stacks have it, the frames from the outermost on, and how many samples there are.
type Stack = (Option<String>, Vec<String>, u64);

/// What stacks there are by a walk, in the order of their first samples, and what tells them apart.
#[derive(Default)]
struct Walked {
    chains: bool,
    all: Vec<(Loc, Vec<Loc>, Stack)>,
}

impl Sink for Walked {
    fn sample(&mut self, state: &State, sample: &TimedSample<'_>) {
        let leaf = state.locate(sample.process, sample.mode(), sample.ip);
        let (mut locs, mut names) = (Vec::new(), Vec::new());
        let mut visit = |loc: Loc| {
            locs.push(loc);
            names.insert(0, name(state, loc));
        };
        if self.chains {
            state.walk(sample, |step| visit(step.loc))
        } else {
            visit(leaf)
        }
        let comm = self.chains.then(|| state.comm(sample.comm).to_string());
        let same = |(l, s, (c, ..)): &&mut (Loc, Vec<Loc>, Stack)| (*l, s, c) == (leaf, &locs, &comm);
        match self.all.iter_mut().find(same) {
            Some((.., (.., samples))) => *samples += 1,
            None => self.all.push((leaf, locs, (comm, names, 1))),
        }
    }
}

fn name(state: &State, loc: Loc) -> String {
    let object = match loc.place {
        Place::Kernel => "[kernel.kallsyms]".to_owned(),
        Place::Text(text) => state.kernel().text(text).unwrap().name.to_string(),
        Place::Object(object) => String::from_utf8_lossy(state.object(object).unwrap().0).into_owned(),
        Place::Unmapped | Place::Elsewhere(_) => "[unknown]".to_owned(),
    };
    format!("{object}+{:#x}", loc.addr)
}

fn by_walking(bytes: &[u8], chains: bool) -> Vec<Stack> {
    let mut walked = Walked { chains, ..Walked::default() };
    replay(&FileReader::open(bytes).unwrap(), &ReplayOptions::default(), &mut walked);
    walked.all.into_iter().map(|(.., stack)| stack).collect()
}

fn by_parts(bytes: &[u8], chains: bool) -> Vec<Stack> {
    let reader = FileReader::open(bytes).unwrap();
    let kallsyms = Some(KALLSYMS.as_bytes().to_vec());
    let mut resolver = Resolver::new(&reader, ResolveOptions { kallsyms, ..ResolveOptions::default() });
    let options = AggregateOptions { sort: vec![SortKey::Sym], chains, ..AggregateOptions::default() };
    let profile = aggregate(&reader, &options, &mut resolver);
    let stacks = profile.stacks(0).map(|stack| {
        let frames = stack.frames.iter().map(|frame| format!("{}+{:#x}", frame.dso.long, frame.addr)).collect();
        (chains.then(|| stack.comm.to_owned()), frames, stack.weight.samples)
    });
    stacks.collect()
}

proptest! {
    #[test]
    fn parts_make_the_stacks_of_a_walk(steps in prop::collection::vec(step(), 1..40)) {
        // All of it comes three times, so that what is remembered is asked for.
        let bytes = recording(&steps, 3);
        for chains in [true, false] {
            prop_assert_eq!(by_parts(&bytes, chains), by_walking(&bytes, chains));
        }
    }
}
