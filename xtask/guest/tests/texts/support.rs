//! Recordings of loads, and what they kept.

use std::ffi::CString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};

use afterimage_kernel_text::Way;
use afterimage_perf_data::record::BpfEvent;
use afterimage_perf_data::{FileReader, ImageId, Record, TextDesc};
use afterimage_perf_event::config::Rate;
use afterimage_perf_event::facts::Facts;
use afterimage_perf_event::spec;
use afterimage_recorder::{Destination, Observer, Plan, Progress, Subject, TextOptions, TextStats, record};
use afterimage_testkit::guest_out;
use rustix::system::{delete_module, finit_module};
use serde_json::Value;

/// One recording at a time: each of them sees the loads of all.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    static MACHINE: Mutex<()> = Mutex::new(());
    MACHINE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The load generator with these arguments.
pub(crate) fn load(arguments: &str) -> Vec<String> {
    let words = arguments.split_whitespace().map(str::to_owned);
    std::iter::once(env!("CARGO_BIN_EXE_load").to_owned()).chain(words).collect()
}

/// A recording of the machine while a command runs.
pub(crate) fn plan(path: &Path, command: Vec<String>, ways: Option<Vec<Way>>) -> Plan {
    Plan {
        events: spec::parse("cpu-clock", &Facts::system()).unwrap(),
        rate: Some(Rate::Freq(999)),
        subject: Subject::AllCpus,
        command: command.into_iter().map(Into::into).collect(),
        inherit: true,
        callchain: false,
        stack_copy: None,
        pages: 128,
        destination: Destination::File(path.to_owned()),
        duration: None,
        delay: None,
        handler: None,
        chain: false,
        by: None,
        off_cpu: None,
        audit: false,
        gate: None,
        cgroups: false,
        namespaces: false,
        text: Some(TextOptions { ways, ..TextOptions::default() }),
        command_line: Vec::new(),
    }
}

/// Prints what a user would be told.
pub(crate) struct Said;

impl Observer for Said {
    fn note(&mut self, line: &str) {
        println!("note: {line}");
    }

    fn progress(&mut self, _: &Progress) {}

    fn is_watched(&self) -> bool {
        false
    }
}

/// What a recording kept of kernel text.
pub(crate) struct Kept {
    pub(crate) bytes: Vec<u8>,
    /// What the load printed, one object a line.
    pub(crate) objects: Vec<Value>,
    /// What the captures did.
    pub(crate) stats: TextStats,
}

/// The same for somebody who looks on: then passes follow each other sooner.
pub(crate) struct Watching;

impl Observer for Watching {
    fn note(&mut self, line: &str) {
        println!("note: {line}");
    }

    fn progress(&mut self, _: &Progress) {}

    fn is_watched(&self) -> bool {
        true
    }
}

/// Records a load by these ways. The load's lines go to a file.
pub(crate) fn recorded(arguments: &str, ways: Option<Vec<Way>>) -> Kept {
    recorded_for(&mut Said, arguments, ways)
}

/// The same for an observer.
pub(crate) fn recorded_for(observer: &mut dyn Observer, arguments: &str, ways: Option<Vec<Way>>) -> Kept {
    let folder = tempfile::tempdir().unwrap();
    let (path, log) = (folder.path().join("a.data"), folder.path().join("log"));
    let plan = plan(&path, load(&format!("{arguments} --log {}", log.display())), ways);
    let outcome = record(&plan, &AtomicBool::new(false), observer).unwrap();
    println!("{arguments}: {:?}", outcome.problems);
    leave(&path, arguments);
    let lines = std::fs::read_to_string(&log).unwrap();
    let objects = lines.lines().map(|line| serde_json::from_str(line).unwrap());
    let objects = objects.filter(|object: &Value| object["kind"] != "summary").collect();
    assert!(!path.with_extension("data.journal").exists());
    Kept { bytes: std::fs::read(&path).unwrap(), objects, stats: outcome.text.unwrap() }
}

/// The bounds of a kernel that holds freed text itself (kernel/patch).
const BOUNDS: &str = "/sys/module/text_hold/parameters";

pub(crate) fn kernel_has_the_calls() -> bool {
    Path::new(BOUNDS).is_dir()
}

/// The file of a module.
pub(crate) fn module(name: &str) -> PathBuf {
    PathBuf::from(std::env::var_os("AFTERIMAGE_MODULES").unwrap()).join(format!("{name}.ko"))
}

/// The module that holds freed text, while it is loaded; where the kernel does that itself, other bounds of it.
pub(crate) struct Holding {
    loaded: bool,
    /// Bounds that were changed, and what they were.
    before: Vec<(PathBuf, String)>,
}

impl Holding {
    /// With these of its parameters, `name=value`.
    pub(crate) fn load(parameters: &[&str]) -> Holding {
        let mut holding = Holding { loaded: !kernel_has_the_calls(), before: Vec::new() };
        if holding.loaded {
            let words = CString::new(parameters.join(" ")).unwrap();
            finit_module(File::open(module("kcore_qc")).unwrap(), &words, 0).unwrap();
            return holding;
        }
        for (name, value) in parameters.iter().map(|parameter| parameter.split_once('=').unwrap()) {
            let path = Path::new(BOUNDS).join(name);
            holding.before.push((path.clone(), std::fs::read_to_string(&path).unwrap()));
            std::fs::write(path, value).unwrap();
        }
        holding
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        if self.loaded {
            delete_module(c"kcore_qc", 0).unwrap();
        }
        for (path, value) in &self.before {
            std::fs::write(path, value).unwrap();
        }
    }
}

/// Leaves a recording of a guest for the machine that runs it: `tests/from_guests.rs` annotates what is in it.
fn leave(path: &Path, arguments: &str) {
    let (Some(out), Some(kind)) = (guest_out(), arguments.split_whitespace().next()) else { return };
    let folder = out.join("texts");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::copy(path, folder.join(format!("{kind}.data"))).unwrap();
}

impl Kept {
    /// The texts, and the bytes of their images by id.
    pub(crate) fn texts(&self) -> Texts {
        let reader = FileReader::open(&self.bytes).unwrap();
        assert!(reader.problems().is_empty(), "{:?}", reader.problems());
        let private = reader.private().unwrap();
        Texts { texts: private.texts.clone(), images: private.images.clone() }
    }
}

/// The texts of a recording.
pub(crate) struct Texts {
    pub(crate) texts: Vec<TextDesc>,
    pub(crate) images: std::collections::BTreeMap<ImageId, Vec<u8>>,
}

impl Texts {
    /// Those whose name ends like that.
    pub(crate) fn called<'a>(&'a self, end: &'a str) -> impl Iterator<Item = &'a TextDesc> {
        self.texts.iter().filter(move |text| text.name.as_ref().is_some_and(|name| name.ends_with(end)))
    }

    /// Those of a kind.
    pub(crate) fn of_kind<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a TextDesc> {
        self.texts.iter().filter(move |text| text.kind == kind)
    }

    /// The bytes of a text's copies; with `proven`, of those alone.
    pub(crate) fn bytes<'a>(&'a self, text: &'a TextDesc, proven: bool) -> impl Iterator<Item = &'a [u8]> {
        let uses = text.images.iter().filter(move |image| image.proven || !proven);
        uses.map(|image| self.images.get(&image.image).expect("an image that is named is there").as_slice())
    }

    /// Whether any copy of a text is what is looked for.
    pub(crate) fn any(&self, text: &TextDesc, is_it: &dyn Fn(&TextDesc, &[u8]) -> bool) -> bool {
        self.bytes(text, false).any(|bytes| is_it(text, bytes))
    }

    /// Whether a proven copy holds the constant.
    pub(crate) fn holds(&self, text: &TextDesc, constant: u32) -> bool {
        self.bytes(text, true).any(|bytes| bytes.windows(4).any(|four| four == constant.to_le_bytes()))
    }
}

/// The two constants that a load of this prefix puts into its `n`th program: the even one into `main` and `left`, the odd
/// one into `right`.
pub(crate) fn constants(prefix: &str, n: u32) -> (u32, u32) {
    let kind = prefix.bytes().fold(0u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    let even = kind << 25 | (n & 0xff_ffff) << 1;
    (even, even | 1)
}

/// How many of the functions of `count` programs have a proven copy with their constant, of how many; and how many have
/// any copy at all.
pub(crate) fn share(texts: &Texts, prefix: &str, count: u32) -> (usize, usize, usize) {
    let mut by_name = std::collections::HashMap::<&str, Vec<&TextDesc>>::new();
    for text in &texts.texts {
        // bpf_prog_<tag>_<name>
        let name = text.name.as_deref().and_then(|name| name.strip_prefix("bpf_prog_")?.get(17..));
        by_name.entry(name.unwrap_or_default()).or_default().push(text);
    }
    let (mut whole, mut any, mut all) = (0, 0, 0);
    for n in 0..count {
        let (even, odd) = constants(prefix, n);
        for (part, constant) in [("main", even), ("left", even), ("right", odd)] {
            all += 1;
            let Some(texts_of_name) = by_name.get(format!("{prefix}_{n}_{part}").as_str()) else { continue };
            assert_eq!(texts_of_name.len(), 1, "{prefix}_{n}_{part}: {texts_of_name:?}");
            let text = texts_of_name[0];
            any += usize::from(!text.images.is_empty());
            whole += usize::from(texts.holds(text, constant));
            // A copy that claims to be proven is the text's own.
            for bytes in texts.bytes(text, true) {
                let holds = bytes.windows(4).any(|four| four == constant.to_le_bytes());
                assert!(holds, "{prefix}_{n}_{part} has a proven copy of something else");
            }
        }
    }
    (whole, any, all)
}

/// Whether longer runs, beside stock perf, are wanted.
pub(crate) fn long() -> bool {
    std::env::var_os("AFTERIMAGE_LONG").is_some_and(|value| value == "1")
}

/// `perf record -a` of a load, and how many of its programs perf has the code of.
pub(crate) fn share_of_perf(arguments: &str, name: &str) -> usize {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perf.data");
    let mut perf = Command::new("perf");
    perf.args(["record", "-q", "-N", "-B", "-a", "-F", "99", "-o"]).arg(&path).arg("--").args(load(arguments));
    perf.stdout(std::process::Stdio::null());
    let status = perf.status().unwrap();
    println!("perf record: {status}");
    let bytes = std::fs::read(&path).unwrap();
    let reader = FileReader::open(&bytes).unwrap();
    // A program's functions come before the record that has its id.
    let (mut ids, mut ours) = (std::collections::HashSet::new(), false);
    for raw in reader.records().map_while(Result::ok) {
        match reader.decode(&raw) {
            Ok(Record::Ksymbol(symbol)) => ours |= String::from_utf8_lossy(symbol.name).contains(name),
            Ok(Record::BpfEvent(event)) if event.kind == BpfEvent::LOAD && std::mem::take(&mut ours) => {
                ids.insert(event.prog_id);
            }
            _ => (),
        }
    }
    let with_code = reader.features().bpf_progs.iter().filter(|info| !info.jited_insns().is_empty());
    with_code.filter(|info| ids.contains(&info.id())).count()
}
