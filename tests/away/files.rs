//! Files of user code: in a copy of the recorded machine's files, in debug folders of every layout, and of other builds.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use afterimage_testkit::{Need, has, workload};
use serde_json::Value;

use crate::common::{afterimage, file, folder, perf_record, stderr, stdout, word};

const NEEDS: [Need; 3] = [Need::Root, Need::Perf, Need::Cc];

/// A recording of a program that is not there any more.
struct Away {
    folder: tempfile::TempDir,
    recording: PathBuf,
    /// Where it was.
    path: PathBuf,
    /// Where it is now.
    program: PathBuf,
    build_id: String,
}

impl Away {
    /// `strip`: the program that ran had no symbols; the one that is left has them.
    fn new(strip: bool) -> Away {
        let folder = folder();
        let (recording, path, program) = (file(&folder, "data"), file(&folder, "busy"), file(&folder, "kept"));
        std::fs::copy(workload::build().busy, &program).unwrap();
        std::fs::copy(&program, &path).unwrap();
        if strip {
            tool("strip", &[word(&path)]);
        }
        perf_record(&recording, &["-B", "--buildid-mmap", "-e", "cpu-clock:u", "-F", "999"], &[word(&path), "30"]);
        std::fs::remove_file(&path).unwrap();
        let build_id = std::fs::File::open(&program).unwrap();
        let build_id = afterimage_symbols::build_id::of_file(&build_id).unwrap();
        let build_id = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
        Away { folder, recording, path, program, build_id }
    }

    /// A report without perf's copies, and with a cache of this test's own.
    fn report(&self, words: &[&str]) -> Output {
        let mut command = afterimage();
        command.env("HOME", self.folder.path()).env("XDG_CACHE_HOME", tempfile::tempdir().unwrap().path());
        command.args(["report", "--sort", "sym", "-i", word(&self.recording)]).args(words).output().unwrap()
    }

    fn names_it(&self, words: &[&str]) -> bool {
        let output = self.report(words);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(!stderr(&output).contains("not used"), "{}", stderr(&output));
        stdout(&output).contains("busy_leaf")
    }

    /// A file filed by the build ID below a new folder.
    fn filed(&self, name: &str, tail: &str, content: &Path) -> PathBuf {
        let dir = self.folder.path().join(name);
        let (first, rest) = self.build_id.split_at(2);
        let place = dir.join(".build-id").join(first).join(format!("{rest}{tail}"));
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::copy(content, place).unwrap();
        dir
    }
}

fn tool(name: &str, words: &[&str]) {
    let output = Command::new(name).args(words).output().unwrap();
    assert!(output.status.success(), "{name} {words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Puts a file where `path` leads below `tree`.
fn put(tree: &Path, path: &Path, content: &Path) {
    let place = tree.join(path.strip_prefix("/").unwrap());
    std::fs::create_dir_all(place.parent().unwrap()).unwrap();
    std::fs::copy(content, place).unwrap();
}

#[test]
fn a_copy_of_the_machines_files() {
    if !has("a_copy_of_the_machines_files", &NEEDS) {
        return;
    }
    let away = Away::new(false);
    assert!(!away.names_it(&[]));
    let tree = file(&away.folder, "tree");
    std::fs::create_dir(&tree).unwrap();
    assert!(!away.names_it(&["--symfs", word(&tree)]));
    put(&tree, &away.path, &away.program);
    assert!(away.names_it(&["--symfs", word(&tree)]));
    // A link that leads to the root of the tree leads there, not to ours.
    let linked = file(&away.folder, "linked");
    let place = linked.join(away.path.strip_prefix("/").unwrap());
    std::fs::create_dir_all(place.parent().unwrap()).unwrap();
    std::fs::copy(&away.program, linked.join("real")).unwrap();
    std::os::unix::fs::symlink("/real", &place).unwrap();
    assert!(away.names_it(&["--symfs", word(&linked)]));
    std::fs::remove_file(linked.join("real")).unwrap();
    assert!(!away.names_it(&["--symfs", word(&linked)]));
    let missing = away.report(&["--symfs", "/no/such/folder"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(stderr(&missing).starts_with("afterimage: --symfs /no/such/folder: "), "{}", stderr(&missing));
}

#[test]
fn debug_folders_of_every_layout() {
    if !has("debug_folders_of_every_layout", &NEEDS) {
        return;
    }
    let away = Away::new(false);
    for (name, tail) in [("links", ""), ("perf", "/elf")] {
        let dir = away.filed(name, tail, &away.program);
        assert!(away.names_it(&["--debug-dir", word(&dir)]), "{name}");
    }
    // perf's own folder is found unasked.
    let home = away.filed(".debug", "/elf", &away.program);
    assert!(away.names_it(&[]));
    std::fs::remove_dir_all(home).unwrap();
    assert!(!away.names_it(&[]));
}

#[test]
fn debug_files_beside_a_stripped_program() {
    if !has("debug_files_beside_a_stripped_program", &NEEDS) {
        return;
    }
    let away = Away::new(true);
    let (tree, debug) = (file(&away.folder, "tree"), file(&away.folder, "busy.debug"));
    let stripped = file(&away.folder, "stripped");
    tool("objcopy", &["--strip-all", word(&away.program), word(&stripped)]);
    tool("objcopy", &["--only-keep-debug", word(&away.program), word(&debug)]);
    put(&tree, &away.path, &stripped);
    let symfs = ["--symfs", word(&tree)];
    assert!(!away.names_it(&symfs));
    for (name, tail) in [("distribution", ".debug"), ("perf", "/debug")] {
        let dir = away.filed(name, tail, &debug);
        assert!(away.names_it(&[&symfs[..], &["--debug-dir", word(&dir)]].concat()), "{name}");
    }
    // In the tree's own folder of debug files.
    let usual = tree.join("usr/lib/debug");
    std::fs::create_dir_all(usual.parent().unwrap()).unwrap();
    std::fs::rename(file(&away.folder, "distribution"), &usual).unwrap();
    assert!(away.names_it(&symfs));
    std::fs::remove_dir_all(&usual).unwrap();
    // By the link in the program, below a debug folder that mirrors paths.
    tool("objcopy", &[&format!("--add-gnu-debuglink={}", debug.display()), word(&stripped)]);
    put(&tree, &away.path, &stripped);
    assert!(!away.names_it(&symfs));
    put(&usual, &away.path.with_file_name("busy.debug"), &debug);
    assert!(away.names_it(&symfs));
    // One of another build is told of, and the program's own (none) are the names.
    let other = file(&away.folder, "other.debug");
    tool("objcopy", &["--only-keep-debug", word(&workload::build().faults), word(&other)]);
    put(&usual, &away.path.with_file_name("busy.debug"), &other);
    let output = away.report(&symfs);
    assert!(!stdout(&output).contains("busy_leaf"));
    assert!(
        stderr(&output)
            .contains(": one file is of another build than the recorded one and was not used: /usr/lib/debug/"),
        "{}",
        stderr(&output)
    );
}

#[test]
fn files_of_other_builds_are_not_used_and_told() {
    if !has("files_of_other_builds_are_not_used_and_told", &NEEDS) {
        return;
    }
    let away = Away::new(false);
    let tree = file(&away.folder, "tree");
    put(&tree, &away.path, &workload::build().faults);
    let output = away.report(&["--symfs", word(&tree)]);
    assert_eq!(output.status.code(), Some(0));
    let said = stderr(&output);
    assert_eq!(said.matches("was not used").count(), 1, "{said}");
    let line = format!("one file is of another build than the recorded one and was not used: {}", away.path.display());
    assert!(said.contains(&line), "{said}");
    let output = away.report(&["--symfs", word(&tree), "--json"]);
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    let files = shown["not_used"]["files"].as_array().unwrap();
    assert_eq!(files.len(), 1, "{shown}");
    assert_eq!(files[0]["file"], word(&away.path));
    assert_eq!(files[0]["recorded"], away.build_id.as_str());
    assert!(files[0]["own"].as_str().is_some_and(|own| own != away.build_id), "{shown}");
    assert_eq!(shown["unresolved"][0]["reason"], "build-id-differs", "{shown}");
    // The other views say it, too; with -v each file with both IDs.
    for view in [&["script"][..], &["annotate", "-v"], &["export"]] {
        let mut command = afterimage();
        command.env("HOME", away.folder.path()).env("XDG_CACHE_HOME", file(&away.folder, "none"));
        let output = command.args(view).args(["--symfs", word(&tree), "-i", word(&away.recording)]).output().unwrap();
        assert!(stderr(&output).contains("was not used"), "{view:?}: {}", stderr(&output));
        let both = stderr(&output).contains(&format!("recorded was {}", away.build_id));
        assert_eq!(both, view.contains(&"-v"), "{}", stderr(&output));
    }
    // The right one elsewhere: nothing is to be told.
    let dir = away.filed("right", "/elf", &away.program);
    assert!(away.names_it(&["--symfs", word(&tree), "--debug-dir", word(&dir)]));
}
