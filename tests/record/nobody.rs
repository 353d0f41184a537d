//! Without privileges: what can be had is recorded, what cannot is refused with the name of what is missing.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use afterimage_testkit::{Need, has, workload};

use crate::common::{afterimage, folder, stderr, word};
use crate::helper::{alone, event, number, report, tally};

const NEEDS: [Need; 2] = [Need::Root, Need::Setpriv];
const PARANOID: &str = "/proc/sys/kernel/perf_event_paranoid";

/// The setting at the kernel's own default, and put back at the end.
struct Paranoid(String);

impl Paranoid {
    fn two() -> Paranoid {
        let before = fs::read_to_string(PARANOID).unwrap();
        fs::write(PARANOID, "2").unwrap();
        Paranoid(before)
    }
}

impl Drop for Paranoid {
    fn drop(&mut self) {
        fs::write(PARANOID, self.0.trim()).unwrap();
    }
}

/// A copy of the command where everybody may run it, and a folder of nobody's own.
struct Place {
    _folder: tempfile::TempDir,
    command: PathBuf,
    own: PathBuf,
}

fn place() -> Place {
    let folder = folder();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let (command, own) = (folder.path().join("afterimage"), folder.path().join("own"));
    fs::copy(afterimage().get_program(), &command).unwrap();
    fs::create_dir(&own).unwrap();
    std::os::unix::fs::chown(&own, Some(65534), Some(65534)).unwrap();
    Place { _folder: folder, command, own }
}

impl Place {
    fn record(&self, words: &[&str]) -> Output {
        self.record_with(&["--inh-caps=-all", "--bounding-set=-all"], words)
    }

    fn record_with(&self, caps: &[&str], words: &[&str]) -> Output {
        Command::new("setpriv")
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
            .args(caps)
            .args([word(&self.command), "record", "-o", "a.data"])
            .args(words)
            .current_dir(&self.own)
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    fn is_empty(&self) -> bool {
        fs::read_dir(&self.own).unwrap().next().is_none()
    }

    fn own(&self, program: &Path) -> PathBuf {
        let copy = self.command.with_file_name(program.file_name().unwrap());
        fs::copy(program, &copy).unwrap();
        copy
    }
}

#[test]
fn nobody_records_own_commands_without_a_program() {
    if !has("nobody_records_own_commands_without_a_program", &[&NEEDS[..], &[Need::Cc]].concat()) {
        return;
    }
    let _turn = alone();
    let (_paranoid, place) = (Paranoid::two(), place());
    let busy = place.own(&workload::build().busy);
    let output = place.record(&["-F", "2000", "-g", "--", word(&busy), "400"]);
    let said = stderr(&output);
    println!("{said}");
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("without a program") && said.contains(":u"), "{said}");
    let path = place.own.join("a.data");
    let sum = tally(&path).total();
    assert!(sum.handled.is_none() && sum.ring.delivered > 50, "{sum:?}");
    let (report, _) = report(&path, &["--sort", "sym"]);
    let shown = event(&report, "cpu-clock:u");
    assert_eq!(number(&shown["samples"]), sum.ring.delivered);
    assert_eq!(shown["rows"][0]["sym"], "busy_leaf");
}

#[test]
fn nobody_is_told_which_capability_is_missing() {
    if !has("nobody_is_told_which_capability_is_missing", &NEEDS) {
        return;
    }
    let _turn = alone();
    let (_paranoid, place) = (Paranoid::two(), place());
    let refused: [(&[&str], &str); 6] = [
        (&["--handler", "count", "--", "true"], "CAP_BPF"),
        (&["--handler", "none", "--", "true"], "CAP_BPF"),
        (&["--where", "pid == 1", "--", "true"], "CAP_BPF"),
        (&["-a", "--", "true"], "CAP_PERFMON"),
        (&["-C", "0", "--", "true"], "CAP_PERFMON"),
        (&["--duration", "1"], "CAP_PERFMON"),
    ];
    for (words, capability) in refused {
        let output = place.record(words);
        let said = stderr(&output);
        println!("{words:?}: {said}");
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        let lines: Vec<&str> = said.lines().collect();
        assert!(lines.len() == 2 && lines[0].contains(capability), "{words:?}: {said}");
        assert!(lines[1].contains("setcap") && lines[1].contains(word(&place.command)), "{words:?}: {said}");
        assert!(place.is_empty(), "{words:?} left something behind");
    }
}

/// One line and its hint, whatever else would have been said.
fn assert_refused(output: &Output, code: i32, says: &[&str]) {
    let said = stderr(output);
    println!("{said}");
    assert_eq!(output.status.code(), Some(code), "{said}");
    assert_eq!(said.lines().count(), 2, "{said}");
    says.iter().for_each(|part| assert!(said.contains(part), "{said}"));
}

#[test]
fn nobody_may_not_read_tracefs() {
    if !has("nobody_may_not_read_tracefs", &[&NEEDS[..], &[Need::Tracefs]].concat()) {
        return;
    }
    let _turn = alone();
    let (_paranoid, place) = (Paranoid::two(), place());
    let output = place.record(&["-e", "sched:sched_switch", "--", "true"]);
    assert_refused(&output, 1, &["tracefs may not be read", "hint: tracepoints need root"]);
    assert!(place.is_empty());
}

#[test]
fn nobody_hears_of_a_folder_that_is_not_writable_first() {
    if !has("nobody_hears_of_a_folder_that_is_not_writable_first", &NEEDS) {
        return;
    }
    let _turn = alone();
    let (_paranoid, place) = (Paranoid::two(), place());
    fs::set_permissions(&place.own, fs::Permissions::from_mode(0o555)).unwrap();
    assert_refused(&place.record(&["--", "true"]), 1, &["a.data: Permission denied", "-o"]);
}

#[test]
fn maps_that_may_not_be_read_are_told() {
    if !has("maps_that_may_not_be_read_are_told", &NEEDS) {
        return;
    }
    let _turn = alone();
    let (_paranoid, place) = (Paranoid::two(), place());
    let output =
        place.record_with(&["--inh-caps=-all,+perfmon", "--ambient-caps=-all,+perfmon"], &["-a", "--", "true"]);
    let said = stderr(&output);
    println!("{said}");
    assert_eq!(output.status.code(), Some(0), "{said}");
    let told = said.lines().filter(|line| line.contains("the maps of") && line.contains("CAP_SYS_PTRACE"));
    assert_eq!(told.count(), 1, "{said}");
}
