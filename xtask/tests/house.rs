//! Rules of the house that the compiler does not keep: which crate may use which, one lint table, file sizes.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What each crate may use. Development dependencies are free: tests may use anything.
const EDGES: &[(&str, &[&str])] = &[
    ("quiesce", &[]),
    ("perf-data", &[]),
    ("perf-event", &["perf-data"]),
    ("handler", &["perf-event", "perf-data"]),
    ("kernel-text", &["perf-data", "perf-event?capture", "quiesce?capture"]),
    ("symbols", &["kernel-text"]),
    ("unwind", &[]),
    ("profile", &["perf-data", "kernel-text", "symbols", "unwind"]),
    ("export", &["profile"]),
    ("recorder", &["quiesce", "perf-data", "perf-event", "handler", "kernel-text", "symbols", "profile"]),
];

/// Nothing but tests, benches and each other uses these.
const TOOLS: [&str; 3] = ["testkit", "xtask", "guest"];

/// Crates that hold no `unsafe` at all, and say so to the compiler.
const SAFE: [&str; 6] = ["quiesce", "perf-data", "profile", "kernel-text", "export", "unwind"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

struct Edge {
    to: String,
    dev: bool,
    optional: bool,
    features: Vec<String>,
}

/// Package name without `afterimage-`, and what it depends on inside the workspace.
fn workspace() -> BTreeMap<String, (Value, Vec<Edge>)> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let short = |name: &Value| name.as_str().unwrap().trim_start_matches("afterimage-").to_owned();
    let packages = metadata["packages"].as_array().unwrap();
    let names: BTreeSet<String> = packages.iter().map(|package| short(&package["name"])).collect();
    let edges = |package: &Value| {
        let all = package["dependencies"].as_array().unwrap().iter();
        all.filter(|edge| names.contains(&short(&edge["name"])))
            .map(|edge| Edge {
                to: short(&edge["name"]),
                dev: edge["kind"] == "dev",
                optional: edge["optional"] == true,
                features: edge["features"].as_array().unwrap().iter().map(|f| f.as_str().unwrap().to_owned()).collect(),
            })
            .collect()
    };
    packages.iter().map(|package| (short(&package["name"]), (package.clone(), edges(package)))).collect()
}

#[test]
fn crates_use_only_what_they_may() {
    let allowed: BTreeMap<&str, &[&str]> = EDGES.iter().copied().collect();
    for (name, (_, edges)) in workspace() {
        for edge in edges.iter().filter(|edge| !edge.dev) {
            if name == "xtask" || name == "guest" {
                continue;
            }
            assert!(!TOOLS.contains(&edge.to.as_str()), "{name} uses {}, which is for tests", edge.to);
            if name == "afterimage" {
                continue;
            }
            let may = allowed.get(name.as_str()).unwrap_or_else(|| panic!("{name} has no line in EDGES"));
            let free = may.contains(&edge.to.as_str());
            let behind_capture = edge.optional && may.contains(&format!("{}?capture", edge.to).as_str());
            assert!(free || behind_capture, "{name} may not use {}", edge.to);
            if name == "symbols" {
                assert!(!edge.features.iter().any(|f| f == "capture"), "symbols takes kernel-text without capture");
            }
        }
    }
}

#[test]
fn every_crate_has_the_lint_table() {
    for (name, (package, _)) in workspace() {
        let manifest = fs::read_to_string(package["manifest_path"].as_str().unwrap()).unwrap();
        assert!(manifest.contains("[lints]\nworkspace = true"), "{name} does not take the workspace's lints");
        assert_eq!(package["license"], "Apache-2.0 OR MIT", "{name}");
        assert_eq!(package["rust_version"], "1.85", "{name}");
    }
}

#[test]
fn crates_that_promise_to_be_safe_are() {
    for name in SAFE {
        let lib = fs::read_to_string(root().join("crates").join(name).join("src/lib.rs")).unwrap();
        assert!(lib.contains("#![forbid(unsafe_code)]"), "{name} does not forbid unsafe code");
    }
}

/// A file over 600 lines says why in its first ten: a line with the words "long because".
#[test]
fn long_files_say_why() {
    let mut files = Vec::new();
    for folder in ["src", "crates", "xtask", "benches", "tests"] {
        sources(&root().join(folder), &mut files);
    }
    assert!(files.len() > 20, "{} source files found", files.len());
    for file in files {
        let text = String::from_utf8_lossy(&fs::read(&file).unwrap()).into_owned();
        let reason = || text.lines().take(10).any(|line| line.to_lowercase().contains("long because"));
        let lines = text.lines().count();
        assert!(lines <= 600 || reason(), "{}: {lines} lines and no reason", file.display());
    }
}

/// Source files below `folder`; the kernel's type header is data.
fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.map(|entry| entry.unwrap().path()) {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let extension = path.extension().unwrap_or_default();
        if path.is_dir() && name != "target" && name != "corpus" {
            sources(&path, into);
        } else if ["rs", "c", "h"].iter().any(|known| extension == *known) && !name.starts_with("vmlinux") {
            into.push(path);
        }
    }
}
