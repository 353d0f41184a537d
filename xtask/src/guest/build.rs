//! What goes into a guest, built so that it needs nothing of the machine around it.

use super::child::bound;
use super::suite::Member;
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Static linking needs the target named, so that build scripts are left as they are.
const TARGET: &str = "x86_64-unknown-linux-gnu";
const PROFILE: &str = "guest";
/// Static, and with frame pointers: what runs in guests is sampled there, and stacks are walked by them.
const RUSTFLAGS: &str = "-C target-feature=+crt-static -C force-frame-pointers=yes";

/// Programs and tests, where cargo put them.
#[derive(Clone, Debug)]
pub(crate) struct Built {
    /// Each member that was asked for.
    pub(crate) tests: Vec<(Member, PathBuf)>,
    /// `guest-init`, the load generators and the command itself.
    pub(crate) programs: Vec<PathBuf>,
}

impl Built {
    /// The program with this file name.
    pub(crate) fn program(&self, name: &str) -> Result<&Path> {
        let found = self.programs.iter().find(|path| path.file_name().is_some_and(|file| file == name));
        found.map(PathBuf::as_path).with_context(|| format!("cargo built no {name}"))
    }
}

/// Builds tests, and the programs of packages, in `folder`, which is a target directory of its own: other flags would
/// throw away what others build.
pub(crate) fn build(members: &[Member], packages: &[&str], folder: &Path) -> Result<Built> {
    let mut tests = cargo(folder);
    tests.args(["test", "--no-run"]);
    for member in members {
        tests.args(["-p", member.package]);
        match member.target {
            Some(target) => tests.args(["--test", target]),
            None => tests.arg("--lib"),
        };
    }
    let artifacts = if members.is_empty() { Vec::new() } else { artifacts(&mut tests)? };
    let mut found = Vec::new();
    for member in members {
        let path = artifacts.iter().find(|artifact| is_test_of(artifact, member)).and_then(executable);
        found.push((*member, path.with_context(|| format!("cargo built no {}", member.name()))?));
    }
    let mut programs = cargo(folder);
    programs.args(["build", "--bins"]);
    for package in packages {
        programs.args(["-p", package]);
    }
    let programs = self::artifacts(&mut programs)?.iter().filter_map(executable).collect();
    Ok(Built { tests: found, programs })
}

fn cargo(folder: &Path) -> Command {
    let mut command = bound(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    command.current_dir(crate::root()).env("RUSTFLAGS", RUSTFLAGS);
    command.env_remove("CARGO_ENCODED_RUSTFLAGS").env("CARGO_TARGET_DIR", folder);
    command
}

/// Runs cargo and gives its messages about what it built.
fn artifacts(command: &mut Command) -> Result<Vec<Value>> {
    command.args(["--profile", PROFILE, "--target", TARGET, "--message-format=json-render-diagnostics"]);
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().context("cargo")?;
    ensure!(output.status.success(), "cargo could not build what goes into the guest");
    let text = String::from_utf8(output.stdout)?;
    let messages = text.lines().map(serde_json::from_str::<Value>).collect::<Result<Vec<_>, _>>()?;
    let artifacts: Vec<Value> = messages.into_iter().filter(|m| m["reason"] == "compiler-artifact").collect();
    if artifacts.is_empty() {
        bail!("cargo said nothing about what it built");
    }
    Ok(artifacts)
}

fn executable(artifact: &Value) -> Option<PathBuf> {
    artifact["executable"].as_str().map(PathBuf::from)
}

fn is_test_of(artifact: &Value, member: &Member) -> bool {
    let manifest = artifact["manifest_path"].as_str().map(Path::new);
    let kind = &artifact["target"]["kind"][0];
    artifact["profile"]["test"] == true
        && manifest == Some(&member.manifest_folder().join("Cargo.toml"))
        && match member.target {
            Some(target) => kind == "test" && artifact["target"]["name"] == target,
            None => kind == "lib",
        }
}
