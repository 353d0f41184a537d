//! Compilers that may be installed: Node, Python.

use std::process::Command;

use afterimage_testkit::{Need, has};

use crate::common::{afterimage, file, folder, stderr, text, word};

/// Whether a program runs and says something that fits; says why not.
fn runs(test: &str, program: &str, words: &[&str], fits: impl Fn(&str) -> bool) -> bool {
    let said = Command::new(program).args(words).output();
    let said = said.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    if !fits(said.trim()) {
        println!("{test}: not tried: {program} {words:?} says {:?}", said.trim());
    }
    fits(said.trim())
}

#[test]
fn node_with_perf_basic_prof() {
    if !has("node_with_perf_basic_prof", &[Need::Root]) {
        return;
    }
    if !runs("node_with_perf_basic_prof", "node", &["--version"], |said| said.starts_with('v')) {
        return;
    }
    let _turn = crate::turn();
    let folder = folder();
    let (path, program) = (file(&folder, "data"), file(&folder, "app.js"));
    let source = "function hotInner(n) { let x = 1; for (let i = 0; i < n; i++) x = (x * 31 + i) % 1000003; return x; }\n\
        function hotOuter(end) { let sum = 0; while (Date.now() < end) sum += hotInner(20000); return sum; }\n\
        console.log(process.pid, hotOuter(Date.now() + 1500) > 0);\n";
    std::fs::write(&program, source).unwrap();
    let mut command = afterimage();
    command.args(["record", "-g", "-e", "cpu-clock:u", "-F", "999", "-o"]).arg(&path).arg("--");
    // It leaves a log where it is.
    let output = command.args(["node", "--perf-basic-prof"]).arg(&program).current_dir(&folder).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let said = crate::common::stdout(&output);
    let pid = said.split_whitespace().next().unwrap();
    // Node leaves its map behind.
    std::fs::remove_file(format!("/tmp/perf-{pid}.map")).unwrap();
    let report = text(&["report", "-g", "none", "-i", word(&path), "--sort", "dso,sym", "--children"]);
    // One function may be several: interpreted, compiled, optimized.
    let share = |name: &str| -> f64 {
        let rows = report.lines().filter(|line| line.contains("[JIT] tid") && line.contains(name));
        rows.map(|line| line.trim_start().split('%').next().unwrap().parse::<f64>().unwrap()).sum()
    };
    println!("hotOuter {}, hotInner {}", share("hotOuter"), share("hotInner"));
    assert!(share("hotOuter") > 50.0 || share("hotInner") > 50.0, "{report}");
}

#[test]
fn python_with_perf_trampolines() {
    if !has("python_with_perf_trampolines", &[Need::Root]) {
        return;
    }
    let works = "import sys; print(sys.version_info >= (3, 12) and sys.platform == 'linux')";
    let python = std::env::var("AFTERIMAGE_PYTHON").unwrap_or("python3".to_owned());
    if !runs("python_with_perf_trampolines", &python, &["-X", "perf", "-c", works], |said| said == "True") {
        return;
    }
    let _turn = crate::turn();
    let folder = folder();
    let (path, program) = (file(&folder, "data"), file(&folder, "app.py"));
    let source = "import os, time\n\
        def hot_inner(n):\n    x = 1\n    for i in range(n):\n        x = (x * 31 + i) % 1000003\n    return x\n\
        def hot_outer(end):\n    s = 0\n    while time.monotonic() < end:\n        s += hot_inner(20000)\n    return s\n\
        print(os.getpid(), hot_outer(time.monotonic() + 1.5) > 0)\n";
    std::fs::write(&program, source).unwrap();
    let mut command = afterimage();
    command.args(["record", "-g", "-e", "cpu-clock:u", "-F", "999", "-o"]).arg(&path).arg("--");
    let output = command.args([&python, "-X", "perf"]).arg(&program).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let said = crate::common::stdout(&output);
    let pid = said.split_whitespace().next().unwrap();
    let _ = std::fs::remove_file(format!("/tmp/perf-{pid}.map"));
    let report = text(&["report", "-g", "none", "-i", word(&path), "--sort", "dso,sym", "--children"]);
    assert!(report.contains("py::hot_outer:") && report.contains("py::hot_inner:"), "{report}");
}
