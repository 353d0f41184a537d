//! Copies at the entries of the functions that free text, where the kernel lets programs be attached there.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::AtomicBool;

use afterimage_kernel_text::Way;
use afterimage_kernel_text::capture::{Capturer, Options, probe};
use afterimage_perf_data::{FileReader, TextDesc};
use afterimage_perf_event::probe::Answer;
use afterimage_recorder::record;
use afterimage_testkit::{Need, guest, has};
use serde_json::Value;

use crate::support::{Holding, Said, Texts, load, module, plan, share, turn};

const PROGRAMS: u32 = 40;
const FILTERS: u32 = 20;
const FIRST: u32 = 0x5c00_0000;
const PROBED: u32 = 4;
const MODULES: usize = 2;

fn can(test: &str) -> bool {
    has(test, &[Need::Root, Need::Bpf, Need::Modules, Need::Guest])
}

/// What was recorded by some ways while text of every kind came and went, and what the loads say of it.
struct Everything {
    texts: Texts,
    programs: Vec<Value>,
    probed: Vec<Value>,
    modules: Vec<Value>,
}

impl Everything {
    fn recorded(ways: &[Way]) -> Everything {
        let folder = tempfile::tempdir().unwrap();
        let log = |name: &str| folder.path().join(name).display().to_string();
        let file = module("afterimage_load");
        let loads = [
            format!("bpf --count {PROGRAMS} --log {}", log("bpf")),
            format!("cbpf --count {FILTERS} --first {FIRST} --log {}", log("cbpf")),
            format!("fentry --count {PROBED} --life 10ms --log {}", log("fentry")),
            format!("module --module {} --count {MODULES} --spin 20 --log {}", file.display(), log("module")),
        ];
        let mut script: Vec<String> = loads.iter().map(|arguments| load(arguments).join(" ")).collect();
        // Tasks have to leave a trampoline before it goes.
        script.push("sleep 2".to_owned());
        let shell = vec!["/bin/sh".to_owned(), "-c".to_owned(), script.join(" && ")];
        let path = folder.path().join("a.data");
        let outcome = record(&plan(&path, shell, Some(ways.to_vec())), &AtomicBool::new(false), &mut Said).unwrap();
        println!("{ways:?}: {:?}", outcome.problems);
        let bytes = std::fs::read(&path).unwrap();
        let private = FileReader::open(&bytes).unwrap().private().unwrap().clone();
        Everything {
            texts: Texts { texts: private.texts, images: private.images },
            programs: objects(Path::new(&log("bpf"))),
            probed: objects(Path::new(&log("fentry"))),
            modules: objects(Path::new(&log("module"))),
        }
    }

    fn filters(&self) -> impl Iterator<Item = &TextDesc> {
        let ours = |text: &&TextDesc| (FIRST..FIRST + FILTERS).any(|n| self.texts.holds(text, n));
        self.texts.of_kind("cbpf").filter(ours)
    }

    fn modules(&self) -> Vec<&TextDesc> {
        self.texts.of_kind("module").filter(|text| text.name.as_deref() == Some("afterimage_load")).collect()
    }

    /// Trampolines of the load that have gone.
    fn trampolines(&self) -> Vec<&TextDesc> {
        let names: Vec<&str> = self.probed.iter().filter_map(|object| object["trampoline"]["name"].as_str()).collect();
        let ours = |text: &&TextDesc| text.name.as_deref().is_some_and(|name| names.contains(&name));
        self.texts.of_kind("trampoline").filter(ours).filter(|text| text.gone_ns.is_some()).collect()
    }

    /// Every text of the loads is there once, where they say that it was, with code of its own.
    fn check(&self) {
        let functions = 3 * PROGRAMS as usize;
        assert_eq!(share(&self.texts, "load_bpf", PROGRAMS), (functions, functions, functions));
        assert_eq!(share(&self.texts, "load_fentry", PROBED), (12, 12, 12));
        for object in self.programs.iter().chain(&self.probed) {
            for function in object["functions"].as_array().unwrap() {
                let text = self.texts.texts.iter().find(|text| text.name.as_deref() == function["name"].as_str());
                let text = text.unwrap_or_else(|| panic!("{function} is not there"));
                assert_eq!(text.length.map(u64::from), function["length"].as_u64(), "{text:?}");
                if let Some(address) = function["address"].as_str() {
                    assert_eq!(format!("{:#x}", text.address), address);
                }
            }
        }
        let filters: Vec<_> = self.filters().collect();
        assert_eq!(filters.len(), FILTERS as usize, "{filters:?}");
        let modules = self.modules();
        assert_eq!(modules.len(), MODULES, "{modules:?}");
        for (text, object) in modules.iter().zip(&self.modules) {
            assert_eq!(format!("{:#x}", text.address), object["address"].as_str().unwrap());
            assert!(text.born_ns.unwrap() < text.gone_ns.unwrap());
            let length = text.length.unwrap() as usize;
            assert!(self.texts.bytes(text, true).all(|bytes| bytes.len() == length) && !text.images.is_empty());
        }
        let trampolines = self.trampolines();
        println!("{} of {PROBED} trampolines went: {trampolines:?}", trampolines.len());
        assert!(trampolines.len() >= 2);
        for text in trampolines {
            assert!((64..1024).contains(&text.length.unwrap()), "{text:?}");
            assert_eq!(text.uncertain, guest().as_deref() == Some("6.1"), "{text:?}");
        }
    }

    /// Each text that went has a proven copy by each of these ways, all with the same bytes.
    fn check_ways(&self, ways: &[&str]) {
        let programs = self.texts.texts.iter().filter(|text| {
            text.name.as_deref().is_some_and(|name| name.contains("load_bpf_") || name.contains("load_fentry_"))
        });
        let gone = programs.chain(self.filters()).chain(self.modules()).chain(self.trampolines());
        let mut texts = 0;
        for text in gone {
            texts += 1;
            for way in ways {
                let copy = text.images.iter().rfind(|image| image.way == *way);
                let copy = copy.unwrap_or_else(|| panic!("no copy by {way}: {text:?}"));
                assert!(copy.proven, "{text:?}");
                // A module's text may be patched between its coming and its going.
                if text.kind != "module" {
                    let mut at_free = text.images.iter().filter(|image| ways.contains(&image.way.as_str()));
                    assert!(at_free.all(|image| image.image == copy.image), "{text:?}");
                }
            }
            let others = |way: &str| ["free-time", "fentry", "rcu-window"].contains(&way) && !ways.contains(&way);
            assert!(!text.images.iter().any(|image| others(&image.way)), "{text:?}");
        }
        println!("{texts} texts with copies by {ways:?}");
        assert!(texts >= 3 * PROGRAMS as usize + 12 + FILTERS as usize + MODULES + 2);
    }
}

fn objects(log: &Path) -> Vec<Value> {
    let lines = std::fs::read_to_string(log).unwrap();
    let objects = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    objects.filter(|object| object["kind"] != "summary").collect()
}

#[test]
fn entries_of_functions_alone_keep_every_text() {
    if !can("entries_of_functions_alone_keep_every_text") {
        return;
    }
    let _turn = turn();
    let all = Everything::recorded(&[Way::Fentry]);
    all.check();
    all.check_ways(&["fentry"]);
}

#[test]
fn two_ways_at_the_free_agree_on_one_text() {
    if !can("two_ways_at_the_free_agree_on_one_text") {
        return;
    }
    let _turn = turn();
    let all = Everything::recorded(&[Way::FreeTime, Way::Fentry]);
    all.check();
    all.check_ways(&["free-time", "fentry"]);
}

/// The module hooks what frees the memory, a step further down, and holds it back; the copies are made before.
#[test]
fn entries_beside_kcore_qc() {
    if !has("entries_beside_kcore_qc", &[Need::Root, Need::Bpf, Need::Modules, Need::Kcore, Need::Guest]) {
        return;
    }
    let _turn = turn();
    let holding = Holding::load(&[]);
    let kcore = File::open("/proc/kcore").unwrap();
    // SAFETY: KCORE_QC, `_IO('K', 0x51)`, has no argument; the file is open through the call.
    unsafe { rustix::ioctl::ioctl(&kcore, rustix::ioctl::NoArg::<0x4b51>::new()) }.unwrap();
    let all = Everything::recorded(&[Way::Fentry]);
    drop(kcore);
    drop(holding);
    all.check();
    all.check_ways(&["fentry"]);
}

/// Where programs cannot be attached to functions, that is said; and it is not used where the tracepoint serves.
#[test]
fn whether_entries_can_be_used_is_told() {
    if !has("whether_entries_can_be_used_is_told", &[Need::Root, Need::Bpf]) {
        return;
    }
    let _turn = turn();
    let line = probe::all().into_iter().find(|check| check.name == "text-fentry").unwrap();
    println!("{line:?}");
    let options = |ways: Option<Vec<Way>>| Options { ways, ..Options::default() };
    match Capturer::start(&options(Some(vec![Way::Fentry]))) {
        Ok(capturer) => {
            assert_eq!(line.answer, Answer::Yes);
            assert!(capturer.sees_frees() && capturer.ways().iter().all(|way| way.way == Way::Fentry));
        }
        Err(error) => {
            assert!(guest().is_none(), "stock kernels can: {error}");
            assert_eq!(line.answer, Answer::No);
            assert!(line.why.contains(&error.to_string()), "{error}");
        }
    }
    let capturer = Capturer::start(&options(None)).unwrap();
    assert_eq!(capturer.ways_at_frees(), 1);
    assert!(capturer.ways().iter().all(|way| way.way != Way::Fentry), "{:?}", capturer.ways());
}
