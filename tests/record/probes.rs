//! What doctor says of a guest's kernel is what that kernel has. Its versions are known, so a probe that says "no" where
//! the kernel has the thing fails here, and so does one that says "yes" where it has not.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;

use afterimage_testkit::{Need, guest, has};
use serde_json::Value;

use crate::common::{run, stdout};

/// What neither kernel has: counters of the hardware under emulation, and, without a module, text that is held.
const NEVER: [&str; 3] = ["hardware-counters", "precise-samples", "text-kcore-qc"];
/// What came after 6.1.
const SINCE_6_12: [&str; 1] = ["bpf-sample-context"];

#[test]
fn doctor_knows_the_kernels_of_the_guests() {
    if !has("doctor_knows_the_kernels_of_the_guests", &[Need::Guest]) {
        return;
    }
    let old = guest().as_deref() == Some("6.1");
    let output = run(&["doctor", "--json"]);
    let report: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let checks: BTreeMap<&str, &str> = report["checks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|check| (check["name"].as_str().unwrap(), check["answer"].as_str().unwrap()))
        .collect();
    println!("{}", stdout(&run(&["doctor"])));
    assert!(checks.len() >= 35, "{checks:?}");
    let wrong: Vec<_> = checks
        .iter()
        .filter(|(name, answer)| {
            let no = NEVER.contains(name) || (old && SINCE_6_12.contains(name));
            **answer != if no { "no" } else { "yes" }
        })
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    if let Some(out) = afterimage_testkit::guest_out() {
        fs::write(out.join("doctor.json"), stdout(&output)).unwrap();
    }
}

/// The things themselves, where doctor only looks whether they are there.
#[test]
fn what_doctor_calls_there_can_be_used() {
    if !has(
        "what_doctor_calls_there_can_be_used",
        &[Need::Guest, Need::Root, Need::Kcore, Need::Kprobes, Need::Modules],
    ) {
        return;
    }
    let mut magic = [0; 4];
    fs::File::open("/proc/kcore").unwrap().read_exact(&mut magic).unwrap();
    assert_eq!(&magic, b"\x7fELF");
    assert!(fs::read_to_string("/proc/modules").unwrap().contains(" Live "), "a module is loaded");
    let tracefs = afterimage_testkit::tracefs().unwrap();
    fs::write(tracefs.join("kprobe_events"), "p:afterimage/try do_exit").unwrap();
    let format = tracefs.join("events/afterimage/try/format");
    let text = fs::read_to_string(&format).unwrap_or_else(|error| {
        panic!("{}: {error}; {:?}", format.display(), fs::read_to_string(tracefs.join("kprobe_events")))
    });
    assert!(text.contains("__probe_ip"), "{text}");
    // Truncating takes all of them away.
    fs::write(tracefs.join("kprobe_events"), "").unwrap();
    let lockdown = fs::read_to_string("/sys/kernel/security/lockdown").unwrap_or_default();
    assert!(lockdown.is_empty() || lockdown.contains("[none]"), "{lockdown}");
}
