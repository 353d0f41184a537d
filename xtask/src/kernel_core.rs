//! The queue of the kernel module kcore_qc, compiled from Rust to the assembly that the module ships.
//!
//! Who builds a module has the compiler that built the kernel, and often no Rust. So the module's folder holds the queue as
//! assembly, in the kernel's own terms: `SYM_FUNC_START` brings landing places and padding where a kernel wants them, and
//! `RET` what it wants of a return, so that one text serves all configurations and objtool checks it like any other.

use anyhow::{Context, Result, bail, ensure};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const TARGET: &str = "x86_64-unknown-none";
/// Like the kernel's own: in the upper 2 GB, at an address that the loader decides, and without a red zone.
const FLAGS: [&str; 5] = [
    "-Ccode-model=kernel",
    "-Crelocation-model=static",
    "-Cno-redzone=yes",
    "-Cforce-unwind-tables=no",
    "-Ctarget-cpu=x86-64",
];
/// What the kernel has for every module.
const GIVEN: [&str; 3] = ["memset", "memcpy", "memmove"];

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only say whether the file is what the source gives
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let path = crate::root().join("kernel/kcore_qc/core.S");
    let text = translate(&compile()?)?;
    let text = format!("{}{text}", head(&version()?, sources()?));
    if !options.check {
        return fs::write(&path, text).with_context(|| path.display().to_string());
    }
    let there = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    ensure!(there == text, "{} is not what `cargo xtask kernel-core` makes of the source", path.display());
    Ok(())
}

fn head(compiler: &str, sources: u64) -> String {
    format!(
        "/* SPDX-License-Identifier: GPL-2.0 */\n\
         /*\n * The queue: core/src/lib.rs and crates/quiesce, compiled by `cargo xtask kernel-core` with {compiler}.\n \
         * Not edited by hand. Sources: {sources:016x}.\n */\n#include <linux/linkage.h>\n\n\t.text\n"
    )
}

/// A sum (FNV-1a) over the lines of the sources, in the order of their paths, but for comments: so that it can be seen
/// without compiling whether the assembly is of these.
fn sources() -> Result<u64> {
    let mut paths = vec![crate::root().join("kernel/kcore_qc/core/src/lib.rs")];
    let queue = crate::root().join("crates/quiesce/src");
    for entry in fs::read_dir(&queue).with_context(|| queue.display().to_string())? {
        paths.push(entry?.path());
    }
    paths.sort();
    let mut sum = 0xcbf2_9ce4_8422_2325_u64;
    for path in paths {
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//"));
        for byte in lines.flat_map(|line| line.bytes().chain([b'\n'])) {
            sum = (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
    Ok(sum)
}

fn version() -> Result<String> {
    let output = Command::new("rustc").arg("--version").output().context("rustc")?;
    let text = String::from_utf8(output.stdout)?;
    let words: Vec<&str> = text.split_whitespace().take(2).collect();
    Ok(words.join(" "))
}

/// What the compiler makes of it.
fn compile() -> Result<String> {
    let folder = crate::target_dir().join("kernel-core");
    let manifest = crate::root().join("kernel/kcore_qc/core/Cargo.toml");
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.args(["rustc", "--release", "--locked", "--target", TARGET, "--manifest-path"]).arg(&manifest);
    cargo.args(["--", "--emit=asm"]).args(FLAGS).env("CARGO_TARGET_DIR", &folder).stdin(Stdio::null());
    cargo.env_remove("RUSTFLAGS").env_remove("CARGO_ENCODED_RUSTFLAGS");
    let results = folder.join(TARGET).join("release/deps");
    // What an older compiler left is under another name.
    assemblies(&results)?.iter().try_for_each(fs::remove_file)?;
    // The same sources at the same place give the same file again only if cargo has to make it.
    let touched = cargo.arg("--cfg").arg(format!("run=\"{}\"", std::process::id()));
    let status = touched.status().context("cargo")?;
    ensure!(status.success(), "the queue could not be compiled; the target comes with `rustup target add {TARGET}`");
    let [path] = &assemblies(&results)?[..] else { bail!("cargo left not one assembly in {}", results.display()) };
    fs::read_to_string(path).with_context(|| path.display().to_string())
}

fn assemblies(folder: &Path) -> Result<Vec<PathBuf>> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(Vec::new()) };
    let paths = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let ours = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "s");
    Ok(paths.into_iter().filter(ours).collect())
}

/// The compiler's assembly in the kernel's terms.
fn translate(assembly: &str) -> Result<String> {
    let global = |line: &str| line.trim().strip_prefix(".globl").map(|name| name.trim().to_owned());
    let globals: BTreeSet<String> = assembly.lines().filter_map(global).collect();
    let functions: BTreeSet<&str> = assembly.lines().filter_map(function).collect();
    let mut text = String::new();
    let mut inside: Option<&str> = None;
    for line in assembly.lines() {
        let line = line.split("\t#").next().unwrap_or_default().trim_end();
        let word = line.split_whitespace().next().unwrap_or_default();
        match inside {
            None => match function(line) {
                Some(name) => {
                    let local = if globals.contains(name) { "" } else { "_LOCAL" };
                    writeln!(text, "\nSYM_FUNC_START{local}({name})")?;
                    inside = Some(name);
                }
                None => ensure!(is_outside(line), "not known to be right in a kernel: {line:?}"),
            },
            Some(name) if word.starts_with(".Lfunc_end") => {
                writeln!(text, "SYM_FUNC_END({name})")?;
                inside = None;
            }
            Some(_) if word.starts_with(".cfi_") || word.starts_with(".Lfunc_begin") => {}
            Some(_) => writeln!(text, "{}", instruction(line, &functions)?)?,
        }
    }
    ensure!(inside.is_none() && !globals.is_empty(), "the assembly is not whole");
    Ok(text)
}

/// The function whose label this line is.
fn function(line: &str) -> Option<&str> {
    line.strip_suffix(':').filter(|name| !name.starts_with(['.', ' ', '\t']))
}

/// Whether a line between functions says nothing that is needed.
fn is_outside(line: &str) -> bool {
    let line = line.trim();
    let nothing = [".file", ".globl", ".p2align", ".type", ".size", ".cfi_", ".ident", ".Lfunc_end", ".section\t.text"];
    line.is_empty()
        || line == ".text"
        || line.starts_with(".section\t\".note.GNU-stack\"")
        || nothing.iter().any(|word| line.starts_with(word))
}

/// A line of a function. What could do harm in a kernel is refused: other registers than the general ones, calls of
/// what the kernel has not, jumps through tables.
fn instruction(line: &str, functions: &BTreeSet<&str>) -> Result<String> {
    let trimmed = line.trim();
    let (word, rest) = trimmed.split_once('\t').unwrap_or((trimmed, ""));
    if word.starts_with(".LBB") && word.ends_with(':') || word == ".p2align" {
        return Ok(line.to_owned());
    }
    ensure!(!word.starts_with('.') && !word.ends_with(':'), "not known to be right in a kernel: {line:?}");
    ensure!(!["%xmm", "%ymm", "%mm", "%st"].iter().any(|name| rest.contains(name)), "a vector register: {line:?}");
    if matches!(word, "ret" | "retq") {
        return Ok("\tRET".into());
    }
    if !(word.starts_with('j') || word.starts_with("call")) {
        ensure!(!rest.contains("(%rip)"), "data beside the code: {line:?}");
        return Ok(line.to_owned());
    }
    // By the table of a linker that modules have not.
    let target = rest.strip_prefix('*').and_then(|rest| rest.strip_suffix("@GOTPCREL(%rip)")).unwrap_or(rest);
    let known = target.starts_with(".LBB") || functions.contains(target) || GIVEN.contains(&target);
    ensure!(known, "leads to what is not there in a kernel: {line:?}");
    let word = if target == rest { word } else { word.trim_end_matches('q') };
    Ok(format!("\t{word}\t{target}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "\t.file\t\"a\"\n\t.section\t.text.f,\"ax\",@progbits\n\t.globl\tf\n\t.p2align\t4\n\
        \t.type\tf,@function\nf:\n.Lfunc_begin0:\n\t.cfi_startproc\n\tje\t.LBB0_1\n\tjmpq\t*memset@GOTPCREL(%rip)\n\
        .LBB0_1:\n\tretq\n.Lfunc_end0:\n\t.size\tf, .Lfunc_end0-f\n\t.section\t\".note.GNU-stack\",\"\",@progbits\n";

    #[test]
    fn the_assembly_is_of_these_sources() {
        let text = fs::read_to_string(crate::root().join("kernel/kcore_qc/core.S")).unwrap();
        let sources = format!("Sources: {:016x}.", sources().unwrap());
        assert!(text.contains(&sources), "run `cargo xtask kernel-core`: core.S is not of {sources}");
    }

    #[test]
    fn functions_are_in_the_kernels_terms() {
        let expected = "\nSYM_FUNC_START(f)\n\tje\t.LBB0_1\n\tjmp\tmemset\n.LBB0_1:\n\tRET\nSYM_FUNC_END(f)\n";
        assert_eq!(translate(WHOLE).unwrap(), expected);
        let local = translate(&WHOLE.replace("\t.globl\tf\n", "\t.globl\tg\n")).unwrap();
        assert!(local.contains("SYM_FUNC_START_LOCAL(f)"), "{local}");
    }

    #[test]
    fn what_a_kernel_has_not_is_refused() {
        let with = |line: &str| translate(&WHOLE.replace("\tretq\n", line)).unwrap_err().to_string();
        assert!(with("\tcallq\t*panic@GOTPCREL(%rip)\n").contains("not there in a kernel"));
        assert!(with("\tjmpq\t*%rax\n").contains("not there in a kernel"));
        assert!(with("\tmovaps\t%xmm0, (%rdi)\n").contains("vector register"));
        assert!(with("\tleaq\ttable(%rip), %rax\n").contains("data beside the code"));
        assert!(with("\t.quad\t1\n").contains("not known"));
        let data = WHOLE.replace("\t.section\t.text.f", "\t.section\t.rodata.f");
        assert!(translate(&data).is_err());
        assert!(translate(WHOLE.split(".Lfunc_end0").next().unwrap()).unwrap_err().to_string().contains("not whole"));
    }
}
