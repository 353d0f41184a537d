//! Processes in containers: a namespace made by unshare(1) with a root of its own, in a cgroup like docker's, gone when the
//! report is made; events of a cgroup.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

#[path = "../common/mod.rs"]
mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use afterimage_perf_data::{FileReader, Record};
use afterimage_testkit::{Need, has};
use serde_json::Value;

use crate::common::{afterimage, file, folder, perf, stderr, stdout, word};

/// Ids of containers have 64 hex digits.
const ID: &str = "4f1e09c2ab37d1e6a86f4f5f9b6c0f6f0d0a6a5e0a8d6c1f3b2e4d5c6b7a8901";

/// A cgroup like that of a container, in a mount of the unified hierarchy of its own. It is made by the script that goes into it.
struct Cgroups {
    mount: PathBuf,
    parent: String,
}

impl Cgroups {
    fn new(folder: &tempfile::TempDir) -> Cgroups {
        let mount = file(folder, "cgroups");
        std::fs::create_dir(&mount).unwrap();
        let mounted = Command::new("mount").args(["-t", "cgroup2", "none", word(&mount)]).output().unwrap();
        assert!(mounted.status.success(), "{}", stderr(&mounted));
        Cgroups { mount, parent: format!("afterimage-test-{}", std::process::id()) }
    }

    /// Its path below the mount.
    fn path(&self) -> String {
        format!("/{}/docker/{ID}", self.parent)
    }

    /// Makes it and goes into it.
    fn enter(&self) -> String {
        let dir = self.mount.join(&self.path()[1..]);
        format!("mkdir -p {0} && echo $$ > {0}/cgroup.procs", word(&dir))
    }

    /// Takes it away: its tasks have ended.
    fn remove(&self) {
        let parts = [self.path(), format!("/{}/docker", self.parent), format!("/{}", self.parent)];
        for part in parts {
            let dir = self.mount.join(&part[1..]);
            for _ in 0..100 {
                if std::fs::remove_dir(&dir).is_ok() || !dir.exists() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(20));
            }
        }
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        self.remove();
        let _ = Command::new("umount").arg("-l").arg(&self.mount).status();
    }
}

/// One test at a time: each of them sees what the others run, and perf 6.1 aborts where programs of a recorder come and go.
fn turn() -> std::sync::MutexGuard<'static, ()> {
    static MACHINE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    MACHINE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// A program without libraries: a JIT compiler that works in a file of its own, too.
fn maker(folder: &tempfile::TempDir) -> PathBuf {
    let program = file(folder, "maker");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/jit/maker.c");
    let options = ["-O1", "-static", "-Wl,--build-id", "-DIN_FILE", "-o"];
    let built = Command::new("cc").args(options).arg(&program).arg(source).output().unwrap();
    assert!(built.status.success(), "{}", stderr(&built));
    program
}

/// The command with a cache of its own, so that nothing is known from before.
fn ours(folder: &tempfile::TempDir, words: &[&str]) -> Output {
    let mut command = afterimage();
    command.env("HOME", folder.path()).env("XDG_CACHE_HOME", folder.path().join("cache")).args(words);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{words:?}: {}", stderr(&output));
    output
}

fn rows(folder: &tempfile::TempDir, path: &Path, keys: &str) -> Vec<Value> {
    let shown = ours(folder, &["report", "--json", "-i", word(path), "--sort", keys]);
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    shown["events"][0]["rows"].as_array().unwrap().clone()
}

#[test]
fn a_container_that_is_gone_keeps_its_names() {
    let needs = [Need::Root, Need::Cc, Need::Cgroup2];
    if !has("a_container_that_is_gone_keeps_its_names", &needs) {
        return;
    }
    let _turn = turn();
    let folder = folder();
    let (path, program) = (file(&folder, "data"), maker(&folder));
    let root = file(&folder, "root");
    std::fs::create_dir(&root).unwrap();
    let cgroups = Cgroups::new(&folder);
    // Files that are in this namespace alone, and gone with it.
    let inside = format!(
        "mount -t tmpfs none {root} && mkdir {root}/tmp && cp {program} {root}/maker && exec chroot {root} /maker map /tmp 700",
        root = word(&root),
        program = word(&program)
    );
    let script = format!("{} && exec unshare --mount --pid --fork sh -c '{inside}'", cgroups.enter());
    let words = ["record", "-a", "--all-cgroups", "-e", "cpu-clock:u", "-F", "2000", "-o", word(&path), "--"];
    let recorded = ours(&folder, &[&words[..], &["sh", "-c", &script]].concat());
    println!("{}", stdout(&recorded));
    cgroups.remove();
    assert!(!root.join("maker").exists());

    let rows = rows(&folder, &path, "comm,pid,nspid,cgroup,container,dso,sym");
    let of = |sym: &str| {
        let mut found = rows.iter().filter(|row| row["sym"] == sym && row["comm"] == "maker");
        let row = found.next().unwrap_or_else(|| panic!("no {sym} in {rows:#?}"));
        assert!(found.next().is_none(), "{rows:#?}");
        row
    };
    for sym in ["moving", "usurper", "spin_in_file"] {
        let row = of(sym);
        println!("{row}");
        assert!(row["samples"].as_u64().unwrap() > 50, "{row}");
        assert_eq!((&row["cgroup"], &row["nspid"]), (&Value::from(cgroups.path()), &Value::from(1)), "{row}");
        assert!(row["pid"].as_u64().unwrap() > 1, "{row}");
        assert_eq!(row["container"]["runtime"], "docker", "{row}");
        assert_eq!(row["container"]["id"], ID, "{row}");
    }
    assert_eq!(of("spin_in_file")["dso_path"], "/maker");
    let shown = stdout(&ours(&folder, &["report", "-i", word(&path), "--sort", "container,nspid,sym"]));
    let line = shown.lines().find(|line| line.contains("spin_in_file")).unwrap_or_else(|| panic!("{shown}"));
    let words: Vec<&str> = line.split_whitespace().skip(1).collect();
    assert_eq!(words, ["docker:4f1e09c2ab37", "1", "[.]", "spin_in_file"]);
    // Others on the machine are of other cgroups, and know themselves by the number that we know.
    let others = rows.iter().filter(|row| row["comm"] != "maker" && row["comm"] != "sh");
    let mut others = others.filter(|row| row["container"]["id"] != ID);
    assert!(others.all(|row| row["nspid"] == row["pid"]), "{rows:#?}");

    // What stock perf has to say of it.
    if Need::Perf.missing().is_none() {
        let theirs = perf(&["report", "-i", word(&path), "--stdio", "-g", "none", "--sort", "cgroup,comm"]);
        assert!(theirs.lines().any(|line| line.contains(&cgroups.path()) && line.contains("maker")), "{theirs}");
    }
    let bytes = std::fs::read(&path).unwrap();
    let reader = FileReader::open(&bytes).unwrap();
    let kinds = |fits: &dyn Fn(&Record<'_>) -> bool| {
        reader.records().filter_map(|raw| reader.decode(&raw.unwrap()).ok()).filter(|record| fits(record)).count()
    };
    assert!(kinds(&|record| matches!(record, Record::Namespaces(_))) > 10);
    let path = cgroups.path();
    assert!(kinds(&|record| matches!(record, Record::Cgroup(cgroup) if cgroup.path == path.as_bytes())) > 0);
}

#[test]
fn events_of_a_cgroup_see_nobody_else() {
    let needs = [Need::Root, Need::Cc, Need::Cgroup2];
    if !has("events_of_a_cgroup_see_nobody_else", &needs) {
        return;
    }
    let _turn = turn();
    let folder = folder();
    let (path, program) = (file(&folder, "data"), maker(&folder));
    let cgroups = Cgroups::new(&folder);
    // It has to be there before.
    let made = Command::new("sh").args(["-c", &cgroups.enter()]).output().unwrap();
    assert!(made.status.success(), "{}", stderr(&made));
    let script = format!(
        "{program} map /tmp 300 > /dev/null; {} && exec {program} map /tmp 300",
        cgroups.enter(),
        program = word(&program)
    );
    let (list, path_of_it) = (format!("{},", cgroups.path()), cgroups.path());
    let events = ["-e", "cpu-clock:u,page-faults:u", "-c", "500000", "-G", &list];
    let words = [&["record", "-a", "--all-cgroups", "-o", word(&path)][..], &events, &["--", "sh", "-c", &script]];
    ours(&folder, &words.concat());
    let shown = ours(&folder, &["report", "--json", "-i", word(&path), "--sort", "cgroup,comm"]);
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    let clock = &shown["events"][0];
    assert_eq!(clock["name"], "cpu-clock:u");
    let rows = clock["rows"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["cgroup"] == path_of_it.as_str()), "{rows:#?}");
    assert!(rows.iter().any(|row| row["comm"] == "maker" && row["samples"].as_u64() > Some(50)), "{rows:#?}");
    for (words, says) in [
        (vec!["-G", "no/such/one", "-a"], "-G no/such/one: "),
        (vec!["-G", "a,b", "-e", "cpu-clock", "-a"], "-G: 2 cgroups for 1 events"),
        (vec!["-G", "a", "--", "true"], "-G: cgroups are recorded on whole CPUs"),
    ] {
        let refused = afterimage().args([&["record", "-o", word(&path)][..], &words].concat()).output().unwrap();
        assert_eq!(refused.status.code(), Some(2), "{words:?}: {}", stderr(&refused));
        assert!(stderr(&refused).contains(says), "{words:?}: {}", stderr(&refused));
    }
}
