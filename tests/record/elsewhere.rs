//! Recordings that leave a guest, to be read on another kernel by `tests/from_guests.rs`.

use std::fs;
use std::path::Path;

use afterimage_testkit::{Need, guest_out, has, workload};

use crate::common::{run, stdout, word};
use crate::helper::{Busy, alone, number, record, report, start, tally, until_covered};

/// What the host asks as well, of both.
pub(crate) const WORDS: [&str; 2] = ["--sort", "dso,sym"];

#[test]
fn recordings_for_another_machine() {
    if !has("recordings_for_another_machine", &[Need::Guest, Need::Root, Need::Bpf, Need::Cc]) {
        return;
    }
    let _turn = alone();
    let folder = guest_out().expect("a folder to leave files in").join("recordings");
    fs::create_dir_all(&folder).unwrap();
    let split = workload::build().split;
    for handler in ["none", "emit", "count"] {
        let path = folder.join(format!("{handler}.data"));
        record(&path, &["-a", "-g", "-F", "500", "--handler", handler, "--", word(&split), "0.5"]);
        let (report, _) = report(&path, &WORDS);
        let samples: u64 = report["events"].as_array().unwrap().iter().map(|event| number(&event["samples"])).sum();
        println!("{handler}: {samples} samples, {}", tally(&path).total().human());
        assert!(samples > 200, "{samples}");
        assert!(stdout(&run(&["script", "-i", word(&path)])).contains("spin_seventy"));
        fs::write(path.with_extension("json"), report.to_string()).unwrap();
    }
    killed(&folder.join("killed.data"));
    fs::copy("/proc/kallsyms", folder.join("kallsyms")).unwrap();
}

/// A recording without its end carries no names of the kernel.
fn killed(path: &Path) {
    let busy = Busy::new();
    let mut recorder = start(path, &["-a", "-g", "-F", "500"]);
    busy.go(path);
    until_covered(path, 200);
    recorder.kill().unwrap();
    recorder.wait().unwrap();
}
