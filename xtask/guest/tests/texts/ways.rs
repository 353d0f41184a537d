//! Every load at once, recorded by one way at a time: how much of each kind is kept, checked against what the loads say
//! that they made.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use afterimage_kernel_text::Way;
use afterimage_kernel_text::capture::probe;
use afterimage_perf_data::{FileReader, TextDesc};
use afterimage_perf_event::probe::Answer;
use afterimage_perf_event::sys::kcore;
use afterimage_recorder::{Observer, Progress, record};
use afterimage_testkit::{Need, guest_out, has};
use serde_json::Value;

use crate::support::{
    Holding, Kept, Said, Texts, Watching, constants, kernel_has_the_calls, load, long, module, plan, recorded,
    recorded_for, share, turn,
};

const NEEDS: [Need; 5] = [Need::Guest, Need::Root, Need::Bpf, Need::Modules, Need::Kcore];
/// The first of the numbers that filters are made of.
const FILTERS: u32 = 0x5c00_0000;
/// What the loops of the module afterimage_load multiply by: in its text, and in that of its initialisation.
const FACTOR: u64 = 6_364_136_223_846_793_005;

/// How many objects of each load there are.
fn counts() -> [(&'static str, u32); 8] {
    let [bpf, cbpf, few] = if long() { [1000, 500, 20] } else { [60, 60, 4] };
    [
        ("bpf", bpf),
        ("cbpf", cbpf),
        ("xdp", few),
        ("fentry", few),
        ("module", few / 2),
        ("kprobe", few),
        ("tail-call", few),
        ("static-key", few),
    ]
}

/// A recording of all loads at once.
fn storm(ways: &[Way]) -> Kept {
    let folder = tempfile::tempdir().unwrap();
    let (path, logs) = (folder.path().join("a.data"), folder.path().to_owned());
    let mut script = String::new();
    for (kind, count) in counts() {
        let more = match kind {
            "bpf" => "--life 1ms".to_owned(),
            "cbpf" => format!("--first {FILTERS}"),
            "module" => format!("--module {} --life 10ms", module("afterimage_load").display()),
            "static-key" => "--life 1ms".to_owned(),
            _ => "--life 10ms".to_owned(),
        };
        let words = load(&format!("{kind} --count {count} {more} --log {}/{kind}", logs.display()));
        script.push_str(&format!("{} & ", words.join(" ")));
    }
    // What goes last is freed after a grace period, by a worker that may have to wait for a CPU.
    script.push_str("wait; sleep 1");
    let command = ["sh", "-c", &script].map(str::to_owned).to_vec();
    let outcome = record(&plan(&path, command, Some(ways.to_vec())), &AtomicBool::new(false), &mut Said).unwrap();
    println!("{:?}", outcome.problems);
    let read = |(kind, _): (&str, u32)| std::fs::read_to_string(logs.join(kind)).unwrap_or_default();
    let lines: Vec<String> = counts().into_iter().map(read).collect();
    let objects = lines.iter().flat_map(|log| log.lines()).map(|line| serde_json::from_str(line).unwrap());
    let objects = objects.filter(|object: &Value| object["kind"] != "summary").collect();
    Kept { bytes: std::fs::read(&path).unwrap(), objects, stats: outcome.text.unwrap() }
}

/// What was kept of one kind of text.
#[derive(Debug, Default)]
struct Share {
    all: usize,
    /// With a copy that is proven.
    proven: usize,
    /// With a copy that is right, though it is not proven.
    right: usize,
    /// Copies of something else.
    wrong: usize,
    /// Texts that were not there any more.
    gone: usize,
    /// How often each way has a right copy.
    ways: BTreeMap<String, usize>,
}

impl Share {
    /// One text that must be there, by what is told of it: is this the code of it?
    fn add(&mut self, texts: &Texts, told: &[&TextDesc], is_it: &dyn Fn(&TextDesc, &[u8]) -> bool) {
        self.all += 1;
        let copies = told.iter().flat_map(|text| text.images.iter().map(move |image| (text, image)));
        let (mut proven, mut right, mut wrong) = (false, false, false);
        for (text, image) in copies {
            let it = is_it(text, &texts.images[&image.image]);
            assert!(it || !image.proven, "a proven copy of something else: {text:?}");
            (proven, right, wrong) = (proven || image.proven, right || it, wrong || !it);
            *self.ways.entry(image.way.clone()).or_default() += usize::from(it);
        }
        let gone = !right && !wrong && told.iter().any(|text| text.reason.is_some());
        self.proven += usize::from(proven);
        self.right += usize::from(right && !proven);
        self.wrong += usize::from(wrong && !right);
        self.gone += usize::from(gone);
    }
}

/// The share of each kind.
fn shares(kept: &Kept) -> BTreeMap<&'static str, Share> {
    let texts = kept.texts();
    copies_end_with_their_texts(&texts);
    let mut shares = BTreeMap::<&'static str, Share>::new();
    let holds = |bytes: &[u8], constant: &[u8]| bytes.windows(constant.len()).any(|part| part == constant);
    let mut by_name = BTreeMap::<&str, Vec<&TextDesc>>::new();
    for text in &texts.texts {
        by_name.entry(text.name.as_deref().unwrap_or_default()).or_default().push(text);
    }
    let called = |name: &str| by_name.get(name).map_or(&[][..], |texts| texts.as_slice());
    for object in &kept.objects {
        let n = object["n"].as_u64().unwrap() as u32;
        let functions = || object["functions"].as_array().into_iter().flatten();
        let prefix = match object["kind"].as_str().unwrap() {
            "bpf" => "load_bpf",
            "xdp" => "load_xdp",
            "fentry" => "load_fentry",
            "cbpf" => {
                // It begins by loading its number: mov $n, %eax.
                let [a, b, c, d] = n.to_le_bytes();
                let it = |_: &TextDesc, bytes: &[u8]| holds(bytes, &[0xb8, a, b, c, d]);
                let told: Vec<&TextDesc> = texts.of_kind("cbpf").filter(|text| texts.any(text, &it)).collect();
                shares.entry("filters").or_default().add(&texts, &told, &it);
                continue;
            }
            "module" => {
                let it = |_: &TextDesc, bytes: &[u8]| holds(bytes, &FACTOR.to_le_bytes());
                for (kind, name) in [("module", "modules"), ("module_init", "init text of modules")] {
                    let modules = called("afterimage_load").iter().copied().filter(|text| text.kind == kind);
                    let told: Vec<&TextDesc> = modules.filter(|text| lived(text, object)).collect();
                    shares.entry(name).or_default().add(&texts, &told, &it);
                }
                continue;
            }
            _ => continue,
        };
        let (even, odd) = constants(prefix, n);
        for function in functions() {
            let name = function["name"].as_str().unwrap();
            let constant = if name.ends_with("_right") { odd } else { even };
            let it = |_: &TextDesc, bytes: &[u8]| holds(bytes, &constant.to_le_bytes());
            shares.entry("functions of programs").or_default().add(&texts, called(name), &it);
        }
        // A trampoline calls its program.
        let program = functions().next().and_then(|function| function["address"].as_str());
        let program = program.map(|address| u64::from_str_radix(&address[2..], 16).unwrap());
        if let (Some(program), Some(name)) = (program, object["trampoline"]["name"].as_str()) {
            let it = |text: &TextDesc, bytes: &[u8]| calls(bytes, text.address, program);
            let told: Vec<&TextDesc> = called(name).iter().copied().filter(|text| lived(text, object)).collect();
            shares.entry("trampolines").or_default().add(&texts, &told, &it);
        }
    }
    shares
}

/// No proven copy is longer than its text, and none holds the beginning of another one of its time.
fn copies_end_with_their_texts(texts: &Texts) {
    let mut starts = BTreeMap::<u64, Vec<&TextDesc>>::new();
    texts.texts.iter().for_each(|text| starts.entry(text.address).or_default().push(text));
    for text in &texts.texts {
        // Of what only its free told of nobody knows since when it stood there.
        let (born, gone) = (text.born_ns.unwrap_or(u64::MAX), text.gone_ns.unwrap_or(u64::MAX));
        for bytes in texts.bytes(text, true) {
            assert!(
                text.length.is_none_or(|length| bytes.len() <= length as usize),
                "{} bytes of {text:?}",
                bytes.len()
            );
            let within = starts.range(text.address + 1..text.address + bytes.len() as u64);
            let mut others = within.flat_map(|(_, others)| others);
            let beside = |other: &&&TextDesc| {
                other.born_ns.is_some_and(|time| time < gone) && other.gone_ns.is_none_or(|time| time > born)
            };
            let other = others.find(beside);
            assert!(other.is_none(), "{other:?} begins within {text:?}");
        }
    }
}

/// Whether a text came while an object was made: another one of the same name came at another time.
fn lived(text: &TextDesc, object: &Value) -> bool {
    let made = object["born_ns"].as_u64().unwrap()..object["gone_ns"].as_u64().unwrap();
    text.born_ns.is_some_and(|at| made.contains(&at))
}

/// Whether there is a direct call of an address.
fn calls(bytes: &[u8], at: u64, address: u64) -> bool {
    bytes.windows(5).enumerate().any(|(offset, call)| {
        let distance = i32::from_le_bytes([call[1], call[2], call[3], call[4]]);
        call[0] == 0xe8 && (at + offset as u64 + 5).wrapping_add_signed(distance.into()) == address
    })
}

/// Prints a line, and leaves it in a file for those outside of the guest.
fn say(line: &str) {
    println!("{line}");
    let file = guest_out().map(|out| OpenOptions::new().create(true).append(true).open(out.join("ways.txt")));
    if let Some(file) = file {
        writeln!(file.unwrap(), "{line}").unwrap();
    }
}

fn told(ways: &str, shares: &BTreeMap<&'static str, Share>) {
    say(&format!("{ways}:"));
    for (kind, share) in shares {
        let Share { all, proven, right, wrong, gone, ways } = share;
        say(&format!("  {kind}: {all}, {proven} proven, {right} more right, {wrong} wrong, {gone} gone; {ways:?}"));
    }
}

#[test]
fn doctor_tells_whether_text_is_held() {
    if !has("doctor_tells_whether_text_is_held", &NEEDS) {
        return;
    }
    let _turn = turn();
    let without = if kernel_has_the_calls() { Answer::Yes } else { Answer::No };
    let answers = || {
        let checks = probe::all();
        ["text-kcore", "text-kcore-qc"].map(|name| {
            let check = checks.iter().find(|check| check.name == name).unwrap();
            println!("{name} {:?} {}", check.answer, check.why);
            check.answer
        })
    };
    assert_eq!(answers(), [Answer::Yes, without]);
    let _holding = Holding::load(&[]);
    assert_eq!(answers(), [Answer::Yes, Answer::Yes]);
}

/// What is said to the user.
#[derive(Default)]
struct Notes(Vec<String>);

impl Observer for Notes {
    fn note(&mut self, line: &str) {
        self.0.push(line.to_owned());
    }

    fn progress(&mut self, _: &Progress) {}

    fn is_watched(&self) -> bool {
        false
    }
}

/// Without the hold the other ways keep what they keep, and a line says why it is not there.
#[test]
fn without_the_hold_the_others_do() {
    if !has("without_the_hold_the_others_do", &[Need::Root, Need::Bpf]) {
        return;
    }
    if kernel_has_the_calls() {
        println!("this kernel always holds text for who asks");
        return;
    }
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let (path, log) = (folder.path().join("a.data"), folder.path().join("log"));
    for (ways, kept) in [(vec![Way::KcoreQc], false), (vec![Way::KcoreQc, Way::FreeTime], true)] {
        let mut notes = Notes::default();
        // What goes last is freed after a grace period, by a worker that may have to wait for a CPU.
        let script = format!("{}; sleep 1", load(&format!("bpf --count 10 --log {}", log.display())).join(" "));
        let plan = plan(&path, ["sh", "-c", &script].map(str::to_owned).to_vec(), Some(ways));
        let stats = record(&plan, &AtomicBool::new(false), &mut notes).unwrap().text;
        println!("{:?}", notes.0);
        let said = notes.0.iter().any(|note| note.contains("kcore") && note.starts_with("kernel text "));
        assert!(said, "{:?}", notes.0);
        let stats = stats.unwrap_or_default();
        let texts = Kept { bytes: std::fs::read(&path).unwrap(), objects: Vec::new(), stats }.texts();
        assert_eq!(share(&texts, "load_bpf", 10).0, if kept { 30 } else { 0 });
    }
}

#[test]
fn what_the_kernel_holds_is_kept_whole() {
    if !has("what_the_kernel_holds_is_kept_whole", &NEEDS) {
        return;
    }
    let _turn = turn();
    let _holding = Holding::load(&[]);
    let shares = shares(&storm(&[Way::KcoreQc]));
    told("kcore-qc", &shares);
    assert_eq!(shares.len(), 5, "{shares:?}");
    for (kind, share) in &shares {
        assert_eq!((share.proven, share.wrong), (share.all, 0), "{kind}");
    }
    assert!(shares["functions of programs"].ways["kcore-qc"] >= shares["functions of programs"].all);
}

/// A bound of the module is met: what it let go may be another's by then, and no copy of that is called proven.
#[test]
fn what_the_kernel_lets_go_of_early_is_not_proven() {
    if !has("what_the_kernel_lets_go_of_early_is_not_proven", &NEEDS) {
        return;
    }
    let _turn = turn();
    let _holding = Holding::load(&["items=8"]);
    let kept = recorded("bpf --count 60", Some(vec![Way::KcoreQc]));
    let (proven, any, all) = share(&kept.texts(), "load_bpf", 60);
    let unproven = kept.stats.kcore_unproven;
    say(&format!("8 texts are held: of {all} functions {any} have copies, {proven} proven; {unproven} copies are not"));
    assert!(unproven > 0 && proven < all, "{:?}", kept.stats);
}

/// Where programs can be attached to functions, those that free text let none go without a copy, and nothing need be held.
#[test]
fn at_the_entries_of_what_frees_all_is_kept() {
    if !has("at_the_entries_of_what_frees_all_is_kept", &[Need::Guest, Need::Root, Need::Bpf, Need::Modules]) {
        return;
    }
    let _turn = turn();
    let shares = shares(&storm(&[Way::Fentry]));
    told("fentry", &shares);
    assert_eq!(shares.len(), 5, "{shares:?}");
    for (kind, share) in &shares {
        assert_eq!((share.proven, share.wrong), (share.all, 0), "{kind}");
        assert!(!share.ways.keys().any(|way| ["free-time", "kcore-qc", "rcu-window", "by-id"].contains(&way.as_str())));
    }
    // Trampolines may go after the recording; they were copied as they stood.
    for kind in ["functions of programs", "filters", "modules", "init text of modules"] {
        assert!(shares[kind].ways["fentry"] >= shares[kind].all, "{kind}");
    }
}

#[test]
fn the_other_ways_beside_it() {
    if !has("the_other_ways_beside_it", &NEEDS) || !long() {
        return;
    }
    let _turn = turn();
    for ways in [&[Way::FreeTime][..], &[Way::RcuWindow], &[Way::ById]] {
        let shares = shares(&storm(ways));
        told(&format!("{ways:?}"), &shares);
    }
    let _holding = Holding::load(&[]);
    let shares = shares(&storm(&[Way::FreeTime, Way::KcoreQc]));
    told("both", &shares);
    assert!(shares.values().all(|share| share.proven == share.all), "{shares:?}");
}

/// Without the calls it is a race: what is read where a text was may be anything.
#[test]
fn without_the_hold_other_bytes_are_read() {
    if !has("without_the_hold_other_bytes_are_read", &NEEDS) {
        return;
    }
    let _turn = turn();
    for round in 1..=5 {
        let shares = shares(&storm(&[Way::Kcore]));
        told("kcore, and nothing is held", &shares);
        let programs = &shares["functions of programs"];
        let bad = programs.wrong + programs.gone;
        let percent = 100.0 * bad as f64 / programs.all as f64;
        let (all, wrong) = (programs.all, programs.wrong);
        say(&format!("round {round}: {percent:.1} % of {all} reads were of other text ({wrong}) or of none"));
        assert_eq!(
            shares.values().map(|share| share.proven).sum::<usize>(),
            shares["trampolines"].proven,
            "a race proves nothing"
        );
        if bad > 0 {
            return;
        }
    }
    panic!("whatever was read was right, by luck, five times");
}

/// Filters come and go, and nothing else: no record tells of them, and still the kernel does not hold them for ever.
#[test]
fn filters_that_nobody_announces_do_not_pile_up() {
    if !has("filters_that_nobody_announces_do_not_pile_up", &NEEDS) {
        return;
    }
    let _turn = turn();
    // More filters than the module holds: if nobody called, it would have to let some go. Three passes may hold a thousand
    // each, and more where the machine is busy.
    let (filters, most) = if long() { (100_000, 32_768) } else { (6_000, 5_500) };
    let _holding = Holding::load(&[&format!("items={most}")]);
    let (kcore, stop) = (File::open("/proc/kcore").unwrap(), Arc::new(AtomicBool::new(false)));
    let watch = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            let (mut items, mut bytes, mut last) = (0, 0, kcore::Query::default());
            while !stop.load(Ordering::Relaxed) {
                last = kcore::query(std::os::fd::AsFd::as_fd(&kcore)).unwrap();
                (items, bytes) = (items.max(last.items), bytes.max(last.bytes));
                std::thread::sleep(Duration::from_millis(5));
            }
            (items, bytes, last)
        }
    });
    let load = format!("cbpf --count {filters} --first {FILTERS}");
    let kept = recorded_for(&mut Watching, &load, Some(vec![Way::KcoreQc]));
    stop.store(true, Ordering::Relaxed);
    let (items, bytes, last) = watch.join().unwrap();
    let items = items.max(kept.stats.held_items);
    say(&format!("{filters} filters: at most {items} texts of {bytes} bytes were held; {last:?}"));
    assert_eq!((last.items, last.missed), (0, 0), "who has gone holds nothing");
    assert!(last.freed >= filters, "each of them was held");
    assert!((1..most).contains(&items) && bytes < 64 << 20, "the bounds were met");
    println!("{:?}", kept.stats);
    assert!(kept.stats.kcore_calls > 0);
    assert_eq!(kept.stats.kcore_unproven, 0, "the kernel kept what it promised");
    let reader = FileReader::open(&kept.bytes).unwrap();
    let private = reader.private().unwrap();
    let ours = private.texts.iter().filter(|text| text.kind == "cbpf" && text.images.iter().any(|image| image.proven));
    let ours = ours.count() as u64;
    say(&format!("{ours} filters have proven copies"));
    // Those that the loop ended with may be freed after the recording.
    assert!(ours + 100 >= filters);
}
