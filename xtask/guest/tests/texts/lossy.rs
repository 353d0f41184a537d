//! Records that find no room: what is not known for sure is marked, and nothing that is not marked is wrong.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use afterimage_kernel_text::Timeline;
use afterimage_perf_data::{FileReader, Record, TextDesc};
use afterimage_recorder::{TextOptions, record};
use afterimage_testkit::{Need, guest, has};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::support::{Said, Texts, load, plan, share, turn};

fn programs() -> u32 {
    if guest().is_some() { 200 } else { 400 }
}

/// How long the kernel may take to free what was let go, ns.
const LATE: u64 = 10_000_000_000;

/// A function that the loads say was at an address at a time, and not before and after two others.
struct Known {
    name: String,
    address: u64,
    born: u64,
    there: u64,
    gone: u64,
}

fn known(objects: &[Value]) -> Vec<Known> {
    let of = |object: &Value| -> Vec<Known> {
        let time = |key: &str| object[key].as_u64().unwrap();
        let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap();
        let functions = object["functions"].as_array().into_iter().flatten();
        let known = |name: &Value, address: &Value| {
            // Nothing tells when the kernel lets go of a module's initialization, which is long before the module goes.
            let name = Some(name.as_str()?.to_owned()).filter(|name| !name.ends_with(" .init.text"))?;
            let address = number(address.as_str()?);
            let (born, gone) = (time("born_ns"), time("gone_ns"));
            let there = object["closing_ns"].as_u64().unwrap_or(born.midpoint(gone));
            Some(Known { name, address, born, there, gone })
        };
        functions.filter_map(|f| known(&f["name"], &f["address"])).collect()
    };
    objects.iter().flat_map(of).collect()
}

const FOLDER: &str = "AFTERIMAGE_LOSSY_FOLDER";

/// Run by the test below in a process of its own, which can be stopped: records while the loads run, with sideband rings of
/// one page.
#[test]
#[ignore = "a process for another test"]
fn a_recorder_with_small_rings() {
    let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) else { return };
    let log = |name: &str| folder.join(name).display().to_string();
    let mut loads = vec![format!("bpf --count {} --life 1ms --log {}", programs(), log("bpf"))];
    if guest().is_some() && Need::Modules.missing().is_none() {
        let modules = std::env::var("AFTERIMAGE_MODULES").unwrap();
        loads.push(format!("fentry --count 6 --log {}", log("fentry")));
        loads.push(format!("module --module {modules}/afterimage_load.ko --count 2 --log {}", log("module")));
    }
    let script: Vec<String> = loads.iter().map(|arguments| load(arguments).join(" ")).collect();
    let shell = vec!["/bin/sh".to_owned(), "-c".to_owned(), script.join(" && ")];
    let mut plan = plan(&folder.join("a.data"), shell, None);
    plan.text = Some(TextOptions { record_pages: Some(1), ..TextOptions::default() });
    let outcome = record(&plan, &AtomicBool::new(false), &mut Said).unwrap();
    println!("{:?}", outcome.problems);
}

/// Records, and stops the recorder for a while in the middle: then the rings overflow. Gives the recording and what the loads
/// say.
fn recorded(folder: &Path) -> (Vec<u8>, Vec<Value>) {
    let said = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap_or_default();
    let mut recorder = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "lossy::a_recorder_with_small_rings", "--ignored"])
        .env(FOLDER, folder)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while said("bpf").lines().count() < 20 {
        assert!(start.elapsed() < Duration::from_secs(60), "nothing is loaded");
        std::thread::sleep(Duration::from_millis(5));
    }
    let pid = Pid::from_raw(i32::try_from(recorder.id()).unwrap()).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    kill_process(pid, Signal::CONT).unwrap();
    assert!(recorder.wait().unwrap().success());
    let logs = ["bpf", "fentry", "module"].map(said);
    let objects = logs.iter().flat_map(|text| text.lines()).map(|line| serde_json::from_str::<Value>(line).unwrap());
    let objects = objects.filter(|object| object["kind"] != "summary").collect();
    (std::fs::read(folder.join("a.data")).unwrap(), objects)
}

#[test]
fn what_was_lost_is_marked_and_nothing_else_is_wrong() {
    if !has("what_was_lost_is_marked_and_nothing_else_is_wrong", &[Need::Root, Need::Bpf]) {
        return;
    }
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let (bytes, objects) = recorded(folder.path());
    let reader = FileReader::open(&bytes).unwrap();
    let lost: u64 = reader
        .records()
        .map_while(Result::ok)
        .filter_map(|raw| match reader.decode(&raw) {
            Ok(Record::Lost(lost)) => Some(lost.lost),
            _ => None,
        })
        .sum();
    println!("{lost} records lost");
    assert!(lost > 0, "rings of one page held everything");
    let private = reader.private().unwrap();
    let texts = Texts { texts: private.texts.clone(), images: private.images.clone() };
    // Copies at the free need no records, and no text is told of as two.
    let all = 3 * programs() as usize;
    assert_eq!(share(&texts, "load_bpf", programs()), (all, all, all));

    let mut timeline = Timeline::new();
    assert_eq!(timeline.adopt(&texts.texts), texts.texts.len());
    let known = known(&objects);
    assert!(known.len() >= all, "{}", known.len());
    if guest().is_some() {
        let modules: Vec<_> =
            texts.of_kind("module").filter(|text| text.name.as_deref() == Some("afterimage_load")).collect();
        let addresses = objects
            .iter()
            .filter(|object| object["kind"] == "module")
            .map(|object| object["address"].as_str().unwrap());
        assert!(
            modules.iter().map(|text| format!("{:#x}", text.address)).eq(addresses),
            "no record tells of modules: {modules:?}"
        );
        assert!(modules.iter().all(|text| !text.images.is_empty()), "{modules:?}");
        let trampolines: Vec<_> = texts.of_kind("trampoline").collect();
        println!("{trampolines:?}");
        assert!(trampolines.iter().all(|text| text.gone_ns.is_none() || !text.images.is_empty()));
    }
    let (mut right, mut marked, mut unknown) = (0, 0, 0);
    for Known { name, address, born, there, gone } in &known {
        // A module's initialization goes by the module's name, and may stand where the module stood when it was loaded before.
        let named = |text: &&TextDesc| {
            text.name.as_ref() == Some(name) && text.address == *address && text.kind != "module_init"
        };
        for text in texts.texts.iter().filter(named).filter(|text| !text.uncertain) {
            // Its end may be that of its free, some time after it was let go.
            // Where the record of its beginning was lost, that is not known.
            let born_in_time = text.born_ns.is_none_or(|time| (*born..=*there).contains(&time));
            let gone_in_time = text.gone_ns.is_some_and(|time| (*there..=*gone + LATE).contains(&time));
            assert!(born_in_time && gone_in_time, "{text:?} lived from {born} to {gone}");
        }
        match timeline.lookup(*address, *there).and_then(|hit| timeline.text(hit.text)) {
            Some(text) if text.name == name => right += 1,
            Some(text) => {
                assert!(text.uncertain, "{name} at {address:#x} is taken for {text:?}");
                marked += 1;
            }
            None => unknown += 1,
        }
    }
    println!("of {} functions {right} right, {marked} marked, {unknown} not known at their time", known.len());
    assert!(right > 0);
}
