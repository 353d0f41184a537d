//! Gates in the kernel: the same verdicts as by the plain interpreter, over the same samples.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::Duration;

use afterimage_handler::gate::{Context, Gate, Place, Resolver, Sample};
use afterimage_handler::object::LoadedObject;
use afterimage_handler::{Counters, EventConfig, Handlers, Mechanism, Options};
use afterimage_perf_data::SampleType;
use afterimage_testkit::{Need, has};
use libbpf_rs::{MapCore as _, MapFlags, MapHandle, ObjectBuilder};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::support::*;

const WITNESS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/witness.bpf.o"));
const LEVELS: usize = 8;

/// What `witness` writes: `struct values`.
fn sample_of(raw: &[u8]) -> Sample {
    let long = |n: usize| u64::from_ne_bytes(raw[8 * n..8 * n + 8].try_into().unwrap());
    let at = 8 * (6 + LEVELS);
    let short = |n: usize| u32::from_ne_bytes(raw[at + 4 * n..at + 4 * n + 4].try_into().unwrap());
    Sample {
        seq: long(1),
        ip: long(2),
        addr: long(3),
        period: long(4),
        time: long(5),
        cgroups: (6..6 + LEVELS).map(long).take_while(|&id| id != 0).collect(),
        pid: short(0),
        tid: short(1),
        cpu: short(2),
        uid: short(3),
        ppid: short(4),
        nspid: short(5),
        user: short(6) != 0,
        comm: raw[at + 32..at + 48].try_into().unwrap(),
    }
}

/// Samples of the whole machine, clock and page faults, that pass by the witness, a gate, and who notes what passed.
struct Watched {
    events: Vec<Event>,
    rings: Vec<Event>,
    handlers: Handlers,
    /// The slot of the gate that is tried.
    tried: MapHandle,
    object: libbpf_rs::Object,
    /// Samples of tasks that another CPU changed between the first look at them and the last: they say nothing of a gate.
    changed: u64,
}

impl Watched {
    fn new(mechanism: Mechanism) -> Watched {
        let options =
            Options { events: vec![EventConfig::default(); 2], mechanism: Some(mechanism), ..Options::default() };
        let mut handlers = Handlers::load(&options).unwrap_or_else(|e| panic!("{e:#}"));
        let wanted = if mechanism == Mechanism::Kfuncs { "witness_kern" } else { "witness_plain" };
        let mut open = ObjectBuilder::default().open_memory(WITNESS).unwrap();
        for mut program in open.progs_mut() {
            let name = program.name().to_str().unwrap().to_owned();
            program.set_autoload(name == wanted || name == "passed");
        }
        let mut cpus_map = open.maps_mut().find(|map| map.name() == "ai_cpus").unwrap();
        cpus_map.reuse_fd(handlers.shared().map("ai_cpus").unwrap()).unwrap();
        let object = open.load().unwrap();
        let fd = |name: &str| {
            let program = object.progs().find(|program| program.name() == name).unwrap();
            program.as_fd().try_clone_to_owned().unwrap()
        };
        let map = |name: &str| MapHandle::try_from(&object.maps().find(|map| map.name() == name).unwrap()).unwrap();
        handlers.set_gate(Some(fd(wanted))).unwrap();
        let id = handlers.add("passed", fd("passed"));
        handlers.swap(id).unwrap();
        let rings = outputs(1024);
        for (cpu, ring) in cpus().into_iter().zip(&rings) {
            map("rings").update(&cpu.to_ne_bytes(), &ring.fd.as_raw_fd().to_ne_bytes(), MapFlags::ANY).unwrap();
        }
        let mut events = Vec::new();
        for cpu in cpus() {
            for (stub, mut attr) in [clock(100_000), page_faults()].into_iter().enumerate() {
                attr.sample_type -= SampleType::CALLCHAIN;
                attr.sample_type |= SampleType::ADDR;
                let event = Event::open(&attr, -1, cpu as i32, 1);
                handlers.attach(stub, event.fd.as_fd()).unwrap();
                events.push(event);
            }
        }
        Watched { events, rings, handlers, tried: map("tried"), object, changed: 0 }
    }

    /// The samples of a moment and whether each passed.
    fn verdicts(&mut self, gate: &OwnedFd) -> Vec<(Sample, bool)> {
        self.tried.update(&0u32.to_ne_bytes(), &gate.as_raw_fd().to_ne_bytes(), MapFlags::ANY).unwrap();
        // On a machine with more to do than the rings have room for, another moment is taken.
        (0..20).find_map(|_| self.moment()).expect("a moment whose records found room")
    }

    /// The same, where no record was lost.
    fn moment(&mut self) -> Option<Vec<(Sample, bool)>> {
        let lost = |rings: &[Event]| rings.iter().map(|ring| ring.read().1).sum::<u64>();
        let (before, lost_before) = (both(&self.handlers), lost(&self.rings));
        self.events.iter().for_each(Event::enable);
        Pages::new(64).touch();
        std::thread::sleep(Duration::from_millis(6));
        Pages::new(16).touch_by_kernel();
        self.events.iter().for_each(Event::disable);
        // Each with whether it passed, and whether its task changed meanwhile.
        let mut seen: Vec<(Sample, bool, bool)> = Vec::new();
        let drained: Vec<_> = self.rings.iter_mut().map(|ring| ring.drained().samples).collect();
        if lost(&self.rings) > lost_before {
            return None;
        }
        for samples in drained {
            let first = seen.len();
            for record in samples {
                let word = |n: usize| u64::from_ne_bytes(record.raw[8 * n..8 * n + 8].try_into().unwrap());
                if word(0) == 1 {
                    seen.push((sample_of(&record.raw), false, false));
                    continue;
                }
                let (sample, passed, changed) = seen[first..].last_mut().expect("a sample before its mark");
                assert_eq!(sample.seq, word(1));
                *(if word(0) == 2 { passed } else { changed }) = true;
            }
        }
        let after = both(&self.handlers);
        let passed = seen.iter().filter(|(_, passed, _)| *passed).count() as u64;
        assert_eq!(after.0 - before.0, seen.len() as u64 - passed, "filtered");
        assert_eq!(after.1 - before.1, passed, "gone on");
        self.changed += seen.iter().filter(|(.., changed)| *changed).count() as u64;
        Some(seen.into_iter().filter(|(.., changed)| !changed).map(|(sample, passed, _)| (sample, passed)).collect())
    }
}

/// Filtered and dropped samples of both events.
fn both(handlers: &Handlers) -> (u64, u64) {
    let of = |event: usize| cpus().into_iter().map(move |cpu| handlers.counters(event, cpu));
    of(0).chain(of(1)).fold((0, 0), |(filtered, dropped), c| (filtered + c.filtered, dropped + c.dropped))
}

/// Processes of another user, cgroup, pid namespace, and name, which work until they are dropped.
struct Company {
    child: Child,
    cgroup: Option<(PathBuf, String)>,
}

impl Company {
    fn new() -> Company {
        let mount = cgroup_mount();
        let cgroup = mount.map(|mount| {
            let name = format!("ai-gate-{}", std::process::id());
            std::fs::create_dir(mount.join(&name)).unwrap();
            std::fs::create_dir(mount.join(&name).join("below")).unwrap();
            (mount.join(&name), format!("/{name}"))
        });
        let mut command = Command::new("sh");
        // What the first shell starts is process 1 of a namespace.
        command.args(["-c", "sh -c 'while :; do : | :; done' & wait"]).process_group(0);
        let procs = cgroup.as_ref().map(|(path, _)| {
            std::ffi::CString::new(path.join("below/cgroup.procs").as_os_str().as_encoded_bytes()).unwrap()
        });
        // SAFETY: system calls alone, on strings made before the fork.
        unsafe {
            command.pre_exec(move || {
                if let Some(procs) = &procs {
                    let fd = libc::open(procs.as_ptr(), libc::O_WRONLY);
                    libc::write(fd, c"0".as_ptr().cast(), 1);
                    libc::close(fd);
                }
                libc::setuid(12_345);
                Ok(())
            });
        }
        Company { child: in_namespace(&mut command), cgroup }
    }
}

/// Starts a command whose children are in a pid namespace of their own.
fn in_namespace(command: &mut Command) -> Child {
    std::thread::scope(|scope| {
        let started = scope.spawn(|| {
            // Only of this thread, and for what it starts.
            // SAFETY: takes a number.
            assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWPID) }, 0);
            command.spawn().unwrap()
        });
        started.join().unwrap()
    })
}

impl Drop for Company {
    fn drop(&mut self) {
        // SAFETY: takes numbers; the group is the child's own.
        unsafe { libc::kill(-(self.child.id() as i32), libc::SIGKILL) };
        let _ = self.child.wait();
        if let Some((path, _)) = &self.cgroup {
            for _ in 0..100 {
                if std::fs::remove_dir(path.join("below")).is_ok() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            let _ = std::fs::remove_dir(path);
        }
    }
}

fn cgroup_mount() -> Option<PathBuf> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let line = mounts.lines().find(|line| line.contains(" - cgroup2 "))?;
    Some(line.split(' ').nth(4)?.into())
}

/// Kernel symbols by a plain reading of kallsyms, and the code of this program.
struct Names {
    /// By address.
    symbols: Vec<(u64, String)>,
}

impl Names {
    fn new() -> Names {
        let text = std::fs::read_to_string("/proc/kallsyms").unwrap();
        let mut symbols: Vec<(u64, String)> = text
            .lines()
            .filter_map(|line| {
                let mut words = line.split_whitespace();
                let address = u64::from_str_radix(words.next()?, 16).ok()?;
                let kind = words.next()?;
                matches!(kind, "t" | "T").then_some((address, words.next()?.to_owned()))
            })
            .collect();
        symbols.sort();
        Names { symbols }
    }
}

impl Resolver for Names {
    fn symbol(&self, name: &str) -> Result<Vec<Place>, String> {
        let at = self.symbols.iter().position(|(_, have)| have == name).ok_or("no such symbol")?;
        let start = self.symbols[at].0;
        let end = self.symbols[at..].iter().map(|(next, _)| *next).find(|&next| next > start).ok_or("the last one")?;
        Ok(vec![Place { process: None, start, end }])
    }

    fn dso(&self, _name: &str) -> Result<Vec<Place>, String> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| line.contains(" r-xp ")).unwrap();
        let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
        Ok(vec![Place { process: Some(std::process::id()), start: number(start), end: number(end) }])
    }
}

/// What random expressions are made of.
#[derive(Clone)]
struct Pool {
    numbers: Vec<(&'static str, Vec<u64>)>,
    names: Vec<String>,
    symbols: Vec<String>,
    cgroups: Vec<String>,
}

impl Pool {
    /// Values that some samples have, so that both verdicts come up.
    fn of(samples: &[(Sample, bool)], names: &Names, cgroups: &[String]) -> Pool {
        let of = |get: fn(&Sample) -> u64| {
            let mut values: Vec<u64> = samples.iter().map(|(sample, _)| get(sample)).collect();
            values.sort_unstable();
            values.dedup();
            values
        };
        let numbers: Vec<(&'static str, Vec<u64>)> = vec![
            ("pid", of(|s| s.pid.into())),
            ("tid", of(|s| s.tid.into())),
            ("cpu", of(|s| s.cpu.into())),
            ("ip", of(|s| s.ip)),
            ("addr", of(|s| s.addr)),
            ("period", of(|s| s.period)),
            ("cgroup", of(|s| s.cgroups.last().copied().unwrap_or(0))),
            ("uid", of(|s| s.uid.into())),
            ("ppid", of(|s| s.ppid.into())),
            ("nspid", of(|s| s.nspid.into())),
        ];
        let mut comms: Vec<String> = samples
            .iter()
            .map(|(sample, _)| String::from_utf8_lossy(sample.comm.split(|b| *b == 0).next().unwrap()).into_owned())
            .filter(|name| name.chars().all(|c| c.is_ascii_graphic() && !"\"\\*?".contains(c)))
            .collect();
        comms.sort();
        comms.dedup();
        let mut symbols: Vec<String> = samples
            .iter()
            .filter(|(sample, _)| !sample.user)
            .filter_map(|(sample, _)| {
                let after = names.symbols.partition_point(|(start, _)| *start <= sample.ip);
                Some(names.symbols.get(after.checked_sub(1)?)?.1.clone())
            })
            .filter(|name| names.symbol(name).is_ok())
            .collect();
        symbols.sort();
        symbols.dedup();
        Pool { numbers, names: comms, symbols, cgroups: cgroups.to_vec() }
    }

    fn expressions(&self, time: Option<u64>) -> impl Strategy<Value = String> + use<> {
        let leaf = self.leaf(time);
        leaf.prop_recursive(4, 24, 4, |inner| {
            let list = proptest::collection::vec(inner.clone(), 2..5);
            prop_oneof![
                (list.clone(), any::<bool>())
                    .prop_map(|(parts, all)| format!("({})", parts.join(if all { " && " } else { " || " }))),
                list.prop_map(|parts| parts.join(" || ")),
                inner.prop_map(|inner| format!("!({inner})")),
            ]
        })
    }

    fn leaf(&self, time: Option<u64>) -> BoxedStrategy<String> {
        let number = |(field, values): (&'static str, Vec<u64>)| {
            let value = prop_oneof![8 => prop::sample::select(values), 1 => any::<u32>().prop_map(u64::from), 1 => any::<u64>()];
            let relation = prop::sample::select(vec!["==", "!=", "<", "<=", ">", ">="]);
            let values = proptest::collection::vec((value.clone(), 0..3u64), 1..9);
            let sets = values.prop_map(|values| {
                let item = |(value, more): &(u64, u64)| match more {
                    0 => value.to_string(),
                    more => format!("{value}..{}", value.saturating_add(more * 1000)),
                };
                values.iter().map(item).collect::<Vec<_>>().join(", ")
            });
            prop_oneof![
                (relation.clone(), value.clone()).prop_map(move |(r, v)| format!("{field} {r} {v}")),
                (relation, value).prop_map(move |(r, v)| format!("{v:#x} {r} {field}")),
                (sets, any::<bool>())
                    .prop_map(move |(s, not)| format!("{field} {}in ({s})", if not { "not " } else { "" })),
                (1..40u64, 0..40u64).prop_map(move |(by, rest)| format!("{field} % {by} == {rest}")),
                (any::<u64>(), any::<u16>()).prop_map(move |(m, v)| format!("{field} & {m:#x} >= {v}")),
            ]
            .boxed()
        };
        let names = prop::sample::select(self.names.clone());
        let pattern = (names.clone(), any::<u16>(), 0..5u8).prop_map(|(name, cut, form)| {
            let at = usize::from(cut) % (name.len() + 1);
            let (front, back) = (&name[..at], &name[at..]);
            match form {
                0 => format!("{front}*"),
                1 => format!("*{back}"),
                2 => format!("*{}*", &back[..back.len().min(2)]),
                3 => format!("{front}?{}", back.get(1..).unwrap_or("")),
                _ => format!("{}*{}", &front[..front.len().min(2)], &back[back.len().saturating_sub(1)..]),
            }
        });
        let fields: Vec<&'static str> = self.numbers.iter().map(|(name, _)| *name).collect();
        let two = prop::sample::subsequence(fields, 2);
        let other = prop_oneof![
            Just("user".to_owned()),
            Just("kernel".to_owned()),
            (1..5u32, 5..20u32).prop_map(|(k, n)| format!("{k}/{n}")),
            (names.clone(), any::<bool>()).prop_map(|(n, eq)| format!("comm {} \"{n}\"", if eq { "==" } else { "!=" })),
            proptest::collection::vec(names, 1..4).prop_map(|n| format!("comm in (\"{}\")", n.join("\", \""))),
            (pattern, any::<bool>()).prop_map(|(p, like)| format!("comm {} \"{p}\"", if like { "~" } else { "!~" })),
            prop::sample::select(self.symbols.clone()).prop_map(|name| format!("ip in symbol(\"{name}\")")),
            Just("ip in dso(\"native\")".to_owned()),
            (two.clone(), prop::sample::select(vec!["==", "<", ">="]))
                .prop_map(|(f, r)| format!("{} {r} {}", f[0], f[1])),
            (two, 1..9u64).prop_map(|(f, n)| format!("({} + {} * {n} - 3) % 7 < 4", f[0], f[1])),
        ];
        let mut kinds: Vec<BoxedStrategy<String>> = self.numbers.clone().into_iter().map(number).collect();
        kinds.extend(std::iter::repeat_n(other.boxed(), 4));
        if !self.cgroups.is_empty() {
            let path = prop::sample::select(self.cgroups.clone());
            kinds.push(
                (path, any::<bool>())
                    .prop_map(|(p, below)| format!("cgroup {} \"{p}\"", if below { "in" } else { "==" }))
                    .boxed(),
            );
        }
        if let Some(now) = time {
            kinds.push((0..20_000u64).prop_map(move |ms| format!("time < {}", now + ms * 1_000_000)).boxed());
            kinds.push((1..50u64).prop_map(|ms| format!("time % {ms}ms < 500us * {ms}")).boxed());
        }
        proptest::strategy::Union::new(kinds).boxed()
    }
}

/// Two hundred expressions, fewer in the second way to a sample: every verdict of the kernel is the interpreter's.
#[test]
fn random_gates_decide_as_the_interpreter_does() {
    let Some(_one) = alone("random_gates_decide_as_the_interpreter_does") else { return };
    let company = Company::new();
    let _busy: Vec<Busy> = (0..2)
        .map(|n| {
            Busy::new(move || {
                name_thread(["gate-a", "gate-b/busy"][n]);
                std::hint::black_box(descend(12, n as u64));
                std::fs::metadata("/proc/self/stat").unwrap();
                Pages::new(4).touch();
            })
        })
        .collect();
    let names = Names::new();
    let cgroups: Vec<String> =
        company.cgroup.iter().flat_map(|(_, path)| ["/".to_owned(), path.clone(), format!("{path}/below")]).collect();
    for mechanism in mechanisms() {
        let context = Context::here(mechanism, SampleType::ADDR);
        let mut watched = Watched::new(mechanism);
        let load = |gate: &Gate, watched: &Watched| {
            gate.load(&watched.handlers.shared()).unwrap_or_else(|e| panic!("{}: {e:#}", gate.text()))
        };
        let first = Gate::compile("pid in 0..0xfffffffe", &names, &context).unwrap();
        let mut samples = Vec::new();
        for _ in 0..20 {
            samples.extend(watched.verdicts(&load(&first, &watched).unwrap()));
        }
        let pool = Pool::of(&samples, &names, &cgroups);
        println!("{mechanism:?}: {} samples; names {:?}, {} symbols", samples.len(), pool.names, pool.symbols.len());
        let nspids = samples.iter().filter(|(s, _)| s.nspid != s.pid).count();
        assert!(cgroups.is_empty() || samples.iter().any(|(s, _)| s.cgroups.len() == 3), "a cgroup");
        assert!(nspids > 0 && samples.iter().any(|(s, _)| s.uid == 12_345), "company");
        assert!(
            samples.iter().any(|(s, _)| s.user)
                && samples.iter().any(|(s, _)| !s.user)
                && samples.iter().any(|(s, _)| s.addr != 0)
        );
        // By helpers the time is that of the gate itself.
        let time = (mechanism == Mechanism::Kfuncs).then(|| samples.iter().map(|(s, _)| s.time).max().unwrap());
        let strategy = pool.expressions(time);
        let mut runner =
            TestRunner::new_with_rng(Config::default(), TestRng::from_seed(RngAlgorithm::ChaCha, &[7; 32]));
        let (mut gates, mut passed, mut filtered, mut largest) = (0, 0, 0, 0);
        let wanted = if mechanism == best() { 200 } else { 60 };
        while gates < wanted {
            let text = strategy.new_tree(&mut runner).unwrap().current();
            let gate = Gate::compile(&text, &names, &context).unwrap_or_else(|e| panic!("{e}\n{}", e.picture()));
            let Some(program) = load(&gate, &watched) else {
                assert!(samples.iter().all(|(sample, _)| gate.passes(sample)), "{text}: always true");
                continue;
            };
            gates += 1;
            largest = largest.max(gate.size());
            for (sample, verdict) in watched.verdicts(&program) {
                assert_eq!(verdict, gate.passes(&sample), "{text}\n{sample:?}\n{mechanism:?}");
                if verdict { passed += 1 } else { filtered += 1 }
            }
        }
        println!(
            "{mechanism:?}: {wanted} gates of up to {largest} instructions, {passed} samples passed, {filtered} filtered; {} changed while it was looked at",
            watched.changed
        );
        assert!(passed > 1000 && filtered > 1000, "{passed} {filtered}");
        drop(watched.object);
    }
}

/// A gate that is changed while samples arrive: each sample meets one of the gates, none is lost between two, and what
/// passes gets to the handler behind it.
#[test]
fn a_gate_is_changed_while_sampling() {
    let Some(_one) = alone("a_gate_is_changed_while_sampling") else { return };
    let (seen, ring, _) = change_gates(|_| None);
    assert_eq!((seen.chained, seen.chained, seen.dropped), (seen.passed, ring, 0));
    assert!(seen.passed > 100, "{seen:?}");
}

#[test]
fn a_gate_is_changed_before_count() {
    let Some(_one) = alone("a_gate_is_changed_before_count") else { return };
    let (seen, ring, counted) = change_gates(|handlers| {
        handlers.load_builtin(afterimage_handler::Builtin::Count).unwrap();
        handlers.swap(afterimage_handler::Builtin::Count).unwrap();
        None
    });
    assert_eq!((seen.stored, seen.chained, ring, seen.dropped), (counted, 0, 0, 0));
    assert_eq!(seen.passed, seen.stored + seen.lost_full + seen.lost_collision);
    assert!(seen.stored > 100, "{seen:?}");
}

#[test]
fn a_gate_is_changed_before_an_object_that_drops() {
    let test = "a_gate_is_changed_before_an_object_that_drops";
    let Some(_one) = alone(test).filter(|_| has(test, &[Need::Clang])) else { return };
    let (seen, ring, _) = change_gates(|handlers| {
        let (id, object) = crate::swap::dropping(handlers);
        handlers.swap(id).unwrap();
        Some(object)
    });
    assert_eq!((seen.passed, seen.chained, ring), (0, 0, 0));
    assert!(seen.dropped > 100, "{seen:?}");
}

/// Changes the gate before a handler five hundred times while samples arrive. Gives the counters, how many samples were in
/// the rings, and how many the count tables held.
fn change_gates(put: impl FnOnce(&mut Handlers) -> Option<LoadedObject>) -> (Counters, u64, u64) {
    let busy: Vec<Busy> = (0..2).map(|_| Busy::deep()).collect();
    let mut events: Vec<Event> = busy.iter().map(|b| Event::open(&clock(100_000), b.tid, -1, 1024)).collect();
    let mut handlers = load(afterimage_handler::Builtin::None, false, best());
    let _object = put(&mut handlers);
    events.iter().for_each(|event| handlers.attach(0, event.fd.as_fd()).unwrap());
    let (mine, other) = (std::process::id(), busy[1].tid);
    let expressions =
        [format!("pid == {mine}"), format!("tid == {other}"), "false".to_owned(), "1/3".to_owned(), "true".to_owned()];
    let context = Context::here(best(), SampleType::empty());
    let gates: Vec<Gate> =
        expressions.iter().map(|text| Gate::compile(text, &Names { symbols: Vec::new() }, &context).unwrap()).collect();
    events.iter().for_each(Event::enable);
    let (mut ring, mut counted) = (Drained::default(), 0);
    for n in 0..500 {
        // Loading runs beside the samples, too.
        let program = gates[n % gates.len()].load(&handlers.shared()).unwrap();
        assert_eq!(program.is_none(), n % gates.len() == 4);
        let before = handlers.generation();
        assert_eq!(handlers.set_gate(program).unwrap(), before + 1);
        std::thread::sleep(Duration::from_micros(500));
        if n % 20 == 0 {
            events.iter_mut().for_each(|event| event.drain(&mut ring));
            counted += counts(&mut handlers).iter().map(|entry| entry.count).sum::<u64>();
        }
    }
    handlers.set_gate(gates[2].load(&handlers.shared()).unwrap()).unwrap();
    std::thread::sleep(Duration::from_millis(1));
    events.iter_mut().for_each(|event| event.drain(&mut ring));
    let before = total(&handlers);
    std::thread::sleep(Duration::from_millis(50));
    events.iter().for_each(Event::disable);
    let (seen, mut late) = (total(&handlers), Drained::default());
    events.iter_mut().for_each(|event| event.drain(&mut late));
    counted += counts(&mut handlers).iter().map(|entry| entry.count).sum::<u64>();
    let lost: u64 = events.iter().map(|event| event.read().1).sum();
    println!("{seen:?}, ring {}", ring.samples.len());
    assert_eq!((late.samples.len(), lost), (0, 0), "nothing passes the last gate");
    assert_eq!((before.passed, before.dropped), (seen.passed, seen.dropped));
    assert!(seen.filtered > before.filtered && before.filtered > 100, "{seen:?}");
    assert_eq!(seen.handled, seen.filtered + seen.dropped + seen.passed);
    (seen, ring.samples.len() as u64, counted)
}

/// Where there is no handler behind a gate, what it lets through is an ordinary sample.
#[test]
fn without_a_handler_what_passes_chains() {
    let Some(_one) = alone("without_a_handler_what_passes_chains") else { return };
    for mechanism in mechanisms() {
        let mut event = Event::open(&page_faults(), gettid(), -1, 64);
        let mut handlers = load(afterimage_handler::Builtin::None, false, mechanism);
        handlers.attach(0, event.fd.as_fd()).unwrap();
        let context = Context::here(mechanism, SampleType::empty());
        let gate = Gate::compile("kernel", &Names { symbols: Vec::new() }, &context).unwrap();
        handlers.set_gate(gate.load(&handlers.shared()).unwrap()).unwrap();
        let (user, kernel) = (Pages::new(100), Pages::new(50));
        event.enable();
        user.touch();
        kernel.touch_by_kernel();
        event.disable();
        let (count, _) = event.read();
        let seen = total(&handlers);
        assert_eq!(seen.handled, count);
        assert!(seen.filtered >= 100 && seen.chained >= 50, "{seen:?}");
        assert_eq!(event.drained().samples.len() as u64, seen.chained);
    }
}
