//! Static keys, busy processes, and how a refusal is told.

use std::process::{Command, Stdio};

use afterimage_testkit::{Need, guest, has};

use crate::support::{command, number, objects, watch};

#[test]
fn a_static_key_patches_branches_both_ways() {
    if !has("a_static_key_patches_branches_both_ways", &[Need::Root]) {
        return;
    }
    let mut keys = vec!["page-faults", "context-switches", "cpu-migrations"];
    if guest().is_some() {
        keys.push("schedstats");
    }
    for key in keys {
        let seen = watch(&format!("static-key --key {key} --count 3 --life 1ms"));
        assert_eq!(seen.objects.len(), 3);
        for object in &seen.objects {
            // The development machine's kernel reports no change of text at all.
            let pokes = seen.pokes_in(object, 0..u64::MAX);
            assert!(pokes >= 2 || guest().is_none(), "{pokes} changes of text in {object}");
        }
    }
}

#[test]
fn busy_processes_tell_what_they_used() {
    if !has("busy_processes_tell_what_they_used", &[]) {
        return;
    }
    let output = command("busy --seconds 0.3 --processes 2").stderr(Stdio::inherit()).output().unwrap();
    let objects = objects(&output.stdout);
    assert_eq!(objects.len(), 2);
    assert_ne!(objects[0]["pid"], objects[1]["pid"]);
    for object in &objects {
        let used = |name: &str| number(&object["cpu_ns"], name);
        let all = used("busy_sixty") + used("busy_thirty") + used("busy_ten");
        assert!(all >= 300_000_000, "{object}");
        assert!(used("busy_sixty") > used("busy_thirty") && used("busy_thirty") > used("busy_ten"), "{object}");
    }
}

/// What is built for guests keeps frame pointers: twenty levels of recursion stand on the stack, one by one.
#[test]
fn stacks_of_busy_processes_are_whole() {
    if !has("stacks_of_busy_processes_are_whole", &[Need::Guest, Need::Root]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("data");
    let afterimage = |words: &[&str]| {
        let output = Command::new("afterimage").args(words).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let path = path.to_str().unwrap();
    let load = [env!("CARGO_BIN_EXE_load"), "busy", "--seconds", "2"];
    afterimage(&[&["record", "-g", "-F", "499", "-o", path, "--"], &load[..]].concat());
    let script = afterimage(&["script", "-i", path, "-F", "ip,sym"]);
    let stacks: Vec<&str> = script.split("\n\n").filter(|stack| stack.contains(" busy_ten\n")).collect();
    // A sample in the first instructions of a function, or in code without frame pointers, skips a caller.
    let whole = stacks.iter().filter(|stack| {
        let levels = stack.lines().filter(|line| line.ends_with(" busy_level")).count();
        levels == 20 && stack.contains("busy::run\n") && stack.contains(" main\n")
    });
    let whole = whole.count();
    println!("{whole} of {} stacks of busy_ten are whole", stacks.len());
    assert!(stacks.len() >= 30 && whole * 10 >= stacks.len() * 9, "{whole} of {}: {:?}", stacks.len(), stacks.first());
}

#[test]
fn what_a_kernel_has_not_is_told_in_one_line() {
    if !has("what_a_kernel_has_not_is_told_in_one_line", &[Need::Root]) {
        return;
    }
    let mut cases = Vec::new();
    if Need::Kprobes.missing().is_some() {
        cases.push("kprobe");
    }
    if Need::Modules.missing().is_some() {
        cases.push("module --module /proc/self/exe");
    }
    if !std::path::Path::new("/proc/sys/kernel/sched_schedstats").exists() {
        cases.push("static-key --key schedstats");
    }
    for arguments in cases {
        let output = command(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(77), "load {arguments}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.starts_with("load: ") && said.lines().count() == 1 && said.matches(": ").count() >= 2, "{said}");
    }
    let failed = command("xdp --interface none-of-that-name").output().unwrap();
    assert_eq!(failed.status.code(), Some(1));
    assert_eq!(command("bpf --life sometimes").output().unwrap().status.code(), Some(2));
}

#[test]
fn a_log_is_a_file_of_the_same_lines() {
    if !has("a_log_is_a_file_of_the_same_lines", &[Need::Root]) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let output = command("cbpf --count 3 --log").arg(&path).output().unwrap();
    assert!(output.status.success() && output.stdout.is_empty());
    assert_eq!(objects(&std::fs::read(&path).unwrap()).len(), 3);
}
