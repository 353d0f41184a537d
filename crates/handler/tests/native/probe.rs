//! What doctor is told about BPF on this machine.

use afterimage_handler::probe;
use afterimage_perf_event::probe::Answer;
use afterimage_testkit::{Need, has};

/// With privileges nothing is unknown, and what the other tests use is there.
#[test]
fn every_probe_has_an_answer() {
    if !has("every_probe_has_an_answer", &[Need::Root, Need::Bpf]) {
        return;
    }
    let checks = probe::all();
    for check in &checks {
        println!("{} {}: {}; {}", check.name, check.answer.as_str(), check.why, check.consequence);
        assert!(!check.why.is_empty() && !check.consequence.is_empty());
    }
    let answer = |name: &str| checks.iter().find(|c| c.name == name).map(|c| c.answer);
    for name in
        ["bpf-privileges", "kernel-btf", "bpf-perf-event", "bpf-kernel-memory", "bpf-shared-arrays", "handler-rings"]
    {
        assert_eq!(answer(name), Some(Answer::Yes), "{name}");
    }
    assert_ne!(answer("bpf-fentry"), Some(Answer::Unknown));
    let mut names: Vec<_> = checks.iter().map(|c| c.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), checks.len());
}

/// Without privileges a probe does not take a refusal for an absence. The test runs itself again as nobody.
#[test]
fn without_privileges_nothing_is_denied_for_good() {
    const NAME: &str = "without_privileges_nothing_is_denied_for_good";
    const AS_NOBODY: &str = "AFTERIMAGE_TEST_AS_NOBODY";
    if std::env::var_os(AS_NOBODY).is_some() {
        return as_nobody();
    }
    if !has(NAME, &[Need::Root, Need::Setpriv]) {
        return;
    }
    // Where this binary lies nobody may not look.
    let copy = std::env::temp_dir().join(format!("afterimage-probe-{}", std::process::id()));
    std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    let output = std::process::Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all", "--"])
        .arg(&copy)
        .args(["--exact", &format!("probe::{NAME}"), "--nocapture"])
        .env(AS_NOBODY, "1")
        .output();
    std::fs::remove_file(&copy).unwrap();
    let output = output.unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&output.stderr));
}

fn as_nobody() {
    for check in probe::all() {
        println!("{} {}: {}", check.name, check.answer.as_str(), check.why);
        if ["bpf-perf-event", "bpf-sample-context", "bpf-tp-btf", "bpf-fentry"].contains(&check.name) {
            assert_eq!(check.answer, Answer::Unknown, "{}: {}", check.name, check.why);
            assert!(check.fix.is_some());
        }
    }
}
