//! The series in kernel/patch: whether it applies to Debian's kernel source, whether what it touches compiles, and a
//! kernel with it to boot in a guest.

use crate::guest::apt;
use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PACKAGE: &str = "linux-source-6.12";
/// What says which series a tree has.
const STAMP: &str = ".series";
/// What the kernel's build needs beside a compiler: commands, and Debian's packages that have them.
const NEEDED: [(&str, &str); 4] = [("flex", "flex"), ("bison", "bison"), ("bc", "bc"), ("patch", "patch")];
/// For type information, which tests of trampolines need.
const PAHOLE: (&str, &str) = ("pahole", "pahole");

#[derive(clap::Args)]
#[group(required = true)]
pub(crate) struct Options {
    /// Get Debian's source, apply the series, compile what it touches, with and without the option that it adds
    #[arg(long)]
    check: bool,
    /// Build a kernel that can be booted in a guest; takes minutes, and 3 GB below target
    #[arg(long)]
    build: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let series = series()?;
    let version = version()?;
    let folder = crate::target_dir().join("kernel-patch").join(&version);
    let tree = source(&folder, &series)?;
    println!("{} patches apply to {PACKAGE} {version}", series.len());
    if options.check {
        let objects = objects(&series, touched);
        compile(&tree, &folder.join("build"), true, &objects)?;
        println!("compiled with CONFIG_PROC_KCORE_QC: {}", objects.join(" "));
        let objects = self::objects(&series, changed);
        compile(&tree, &folder.join("without"), false, &objects)?;
        println!("compiled without it: {}", objects.join(" "));
    }
    if options.build {
        need(&PAHOLE)?;
        let build = folder.join("build");
        compile(&tree, &build, true, &["bzImage".into(), "modules".into()])?;
        let image = folder.join("vmlinuz-6.12-kcore-qc");
        fs::copy(build.join("arch/x86/boot/bzImage"), &image).context("the kernel that make built")?;
        println!("built; now: cargo xtask guest --kernel {} guest-qc", image.display());
    }
    Ok(())
}

/// A patch of the series: its path and text.
struct Patch {
    path: PathBuf,
    text: String,
}

/// All patches in order, without the cover letter.
fn series() -> Result<Vec<Patch>> {
    let folder = crate::root().join("kernel/patch");
    let entries = fs::read_dir(&folder).with_context(|| folder.display().to_string())?;
    let mut paths: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "patch"));
    paths.sort();
    let read = |path: PathBuf| Ok(Patch { text: fs::read_to_string(&path)?, path });
    let patches = paths.into_iter().skip(1).map(read).collect::<Result<Vec<_>>>()?;
    ensure!(!patches.is_empty(), "{} holds no series", folder.display());
    Ok(patches)
}

/// The files that a patch changes or makes, from its lines `+++ b/PATH`.
fn touched(patch: &str) -> Vec<&str> {
    patch.lines().filter_map(|line| line.strip_prefix("+++ b/")).collect()
}

/// The files that a patch changes: those that were there before, from its lines `--- a/PATH`.
fn changed(patch: &str) -> Vec<&str> {
    patch.lines().filter_map(|line| line.strip_prefix("--- a/")).collect()
}

/// What make is asked for: the objects of the sources that the series touches or changes, each once.
fn objects(series: &[Patch], of: impl Fn(&str) -> Vec<&str>) -> Vec<String> {
    let all: BTreeSet<&str> = series.iter().flat_map(|patch| of(&patch.text)).collect();
    let source = |path: &&str| !path.starts_with("tools/") && path.ends_with(".c");
    all.into_iter().filter(source).map(|path| format!("{}.o", path.trim_end_matches(".c"))).collect()
}

/// The version of the source that apt would give.
fn version() -> Result<String> {
    let policy = || {
        let output = Command::new("apt-cache").args(["policy", PACKAGE]).output().context("apt-cache")?;
        candidate(&String::from_utf8_lossy(&output.stdout)).with_context(|| format!("apt knows no {PACKAGE}"))
    };
    policy().or_else(|_| apt::update().and_then(|()| policy()))
}

fn candidate(said: &str) -> Option<String> {
    let line = said.lines().find_map(|line| line.trim().strip_prefix("Candidate: "))?;
    (line != "(none)").then(|| line.to_owned())
}

/// The source with the series applied. Unpacked anew when either changed.
fn source(folder: &Path, series: &[Patch]) -> Result<PathBuf> {
    let tree = folder.join("tree").join(PACKAGE);
    let stamp = {
        let mut hasher = DefaultHasher::new();
        series.iter().for_each(|patch| patch.text.hash(&mut hasher));
        format!("{:016x}\n", hasher.finish())
    };
    if fs::read_to_string(tree.join(STAMP)).is_ok_and(|found| found == stamp) {
        return Ok(tree);
    }
    need(&("patch", "patch"))?;
    let package = folder.join("package");
    if !package.exists() {
        apt::unpack(&[PACKAGE.into()], &package)?;
    }
    let above = folder.join("tree");
    let _ = fs::remove_dir_all(&above);
    fs::create_dir_all(&above)?;
    let archive = package.join("usr/src").join(format!("{PACKAGE}.tar.xz"));
    done(Command::new("tar").arg("xf").arg(archive).arg("-C").arg(&above), "unpacking the source")?;
    for patch in series {
        // As it is, or not at all: a piece that fits only nearly may be in the wrong place.
        let mut command = Command::new("patch");
        command.args(["-p1", "--fuzz=0", "--batch", "--silent", "-i"]).arg(&patch.path).current_dir(&tree);
        done(&mut command, &format!("{} does not apply", patch.path.display()))?;
    }
    fs::write(tree.join(STAMP), stamp)?;
    Ok(tree)
}

/// Makes targets in a build folder of the small configuration.
fn compile(tree: &Path, build: &Path, with: bool, targets: &[String]) -> Result<()> {
    NEEDED.iter().try_for_each(need)?;
    let make = || {
        let jobs = std::thread::available_parallelism().map_or(1, usize::from);
        let mut make = Command::new("make");
        make.arg("-s").arg(format!("-j{jobs}")).arg("-C").arg(tree).arg(format!("O={}", build.display()));
        make.env_remove("MAKEFLAGS").env_remove("MFLAGS");
        make
    };
    let added = fs::read_to_string(crate::root().join("kernel/patch/config"))?;
    let switch = if with { "CONFIG_PROC_KCORE_QC=y" } else { "# CONFIG_PROC_KCORE_QC is not set" };
    let wanted = format!("{added}{switch}\n");
    let seen = build.join(".wanted");
    if fs::read_to_string(&seen).ok().as_ref() != Some(&wanted) {
        fs::create_dir_all(build)?;
        done(make().arg("tinyconfig"), "make tinyconfig")?;
        let config = build.join(".config");
        let tiny = fs::read_to_string(&config)?;
        fs::write(&config, format!("{tiny}{wanted}"))?;
        done(make().arg("olddefconfig"), "make olddefconfig")?;
        let config = fs::read_to_string(&config)?;
        ensure!(
            config.lines().any(|line| line == "CONFIG_TEXT_HOLD=y") == with,
            "the option is not as it was asked for"
        );
        fs::write(seen, wanted)?;
    }
    done(make().args(targets), "make")
}

fn need((command, package): &(&str, &str)) -> Result<()> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let there = std::env::split_paths(&path).any(|folder| folder.join(command).is_file());
    ensure!(there, "{command} is missing; with Debian: apt-get install {package}");
    Ok(())
}

/// Runs a command to its end. What it says is shown if it fails.
fn done(command: &mut Command, what: &str) -> Result<()> {
    let output = command.stdin(Stdio::null()).output().with_context(|| what.to_owned())?;
    if !output.status.success() {
        let said = [output.stdout, output.stderr].concat();
        bail!("{what}: {}", String::from_utf8_lossy(&said).trim());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_series_is_whole() {
        let series = series().unwrap();
        for (n, patch) in series.iter().enumerate() {
            let number = format!("Subject: [PATCH 6.12 {}/{}] ", n + 1, series.len());
            assert!(patch.text.contains(&number), "{}: {number}", patch.path.display());
            assert!(patch.text.contains("\nSigned-off-by: afterimage developers "), "{}", patch.path.display());
        }
        let objects = objects(&series, touched);
        assert!(
            objects.contains(&"fs/proc/kcore.o".into()) && objects.contains(&"mm/text_hold.o".into()),
            "{objects:?}"
        );
        assert!(!objects.iter().any(|object| object.starts_with("tools/")));
        let before = super::objects(&series, changed);
        assert!(before.len() < objects.len() && !before.contains(&"mm/text_hold.o".into()), "{before:?}");
    }

    #[test]
    fn the_series_and_the_module_have_the_same_calls() {
        let root = crate::root();
        let module = fs::read_to_string(root.join("kernel/kcore_qc/kcore_qc.h")).unwrap();
        let series: String = series().unwrap().into_iter().map(|patch| patch.text).collect();
        let calls = module.lines().filter(|line| line.starts_with("#define KCORE_QC") || line.starts_with("\t__u"));
        let mut count = 0;
        for line in calls {
            // Comments differ: the module has places where the series has memory.
            let code = line.split("/*").next().unwrap().trim_end();
            assert!(
                series.lines().any(|added| added.strip_prefix('+').is_some_and(|added| added.starts_with(code))),
                "{code}"
            );
            count += 1;
        }
        assert_eq!(count, 11);
    }

    #[test]
    fn the_candidate_is_read() {
        assert_eq!(candidate("x:\n  Installed: (none)\n  Candidate: 6.12.1-1\n"), Some("6.12.1-1".into()));
        assert_eq!(candidate("x:\n  Candidate: (none)\n"), None);
    }
}
