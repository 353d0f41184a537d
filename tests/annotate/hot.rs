//! BPF programs that run hot: made from `hot.bpf.c`, loaded, run, freed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions};
use libbpf_rs::{Object, ObjectBuilder, ProgramInput, ProgramMut};

/// The source, for looking lines up.
pub(crate) const SOURCE: &str = include_str!("hot.bpf.c");
/// The functions beside the main one, in the order in which they stand, and their shares in percent.
pub(crate) const PARTS: [(&str, f64); 3] = [("sixty", 60.0), ("thirty", 30.0), ("ten", 10.0)];

/// The line of the source, counted from 1, that holds some text.
pub(crate) fn line_of(text: &str) -> u64 {
    let at = SOURCE.lines().position(|line| line.contains(text)).unwrap();
    at as u64 + 1
}

/// A loaded program.
pub(crate) struct Hot {
    /// `None` once it was freed.
    object: Option<Object>,
    pub(crate) id: u32,
    /// Kernel address, symbol and machine code of each function, the main one first.
    pub(crate) functions: Vec<Function>,
}

pub(crate) struct Function {
    pub(crate) address: u64,
    pub(crate) name: String,
    pub(crate) code: Vec<u8>,
}

impl Hot {
    /// Compiles and loads the program of a variant.
    pub(crate) fn load(folder: &Path, variant: &str, constant: u32) -> Hot {
        Hot::load_compiled(&compile(folder, variant, constant), variant)
    }

    /// Loads what [`compile`] made.
    pub(crate) fn load_compiled(object: &Path, variant: &str) -> Hot {
        let object = ObjectBuilder::default().open_file(object).unwrap().load().unwrap();
        let wanted = format!("{variant}_main");
        let kept = &wanted[..wanted.len().min(15)];
        let infos = ProgInfoIter::with_query_opts(ProgInfoQueryOptions::default().include_all());
        // Ids ascend: of several of one name the last one is this.
        let info = infos.filter(|info| info.name.to_string_lossy() == kept).last().expect("the program is not listed");
        let mut rest = info.jited_prog_insns.as_slice();
        let mut functions = Vec::new();
        for (at, (address, len)) in info.jited_ksyms.iter().zip(&info.jited_func_lens).enumerate() {
            let (code, behind) = rest.split_at(*len as usize);
            rest = behind;
            let part = if at == 0 { "main" } else { PARTS[at - 1].0 };
            let tag = if at == 0 { info.tag.0 } else { info.prog_tags[at].0 };
            let tag: String = tag.iter().map(|byte| format!("{byte:02x}")).collect();
            let name = format!("bpf_prog_{tag}_{variant}_{part}");
            functions.push(Function { address: address.addr() as u64, name, code: code.to_vec() });
        }
        assert_eq!(functions.len(), 4);
        Hot { object: Some(object), id: info.id, functions }
    }

    /// Runs it until it used so much time itself, by the kernel's count.
    pub(crate) fn run(&mut self, time: Duration) {
        let mut used = Duration::ZERO;
        while used < time {
            for program in self.object.iter_mut().flat_map(|object| object.progs_mut()) {
                used += run_some(&program);
            }
        }
    }

    /// Frees it, and waits until the kernel has nothing left of it. Its description stays.
    pub(crate) fn free(&mut self) {
        self.object = None;
        let start = Instant::now();
        let listed = || {
            let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap();
            self.functions.iter().any(|function| symbols.contains(&function.name))
        };
        while listed() {
            assert!(start.elapsed() < Duration::from_secs(60), "{} is still there", self.functions[0].name);
            std::thread::sleep(Duration::from_millis(10));
        }
        // Its place is given back by a worker, behind a grace period.
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// Compiles the program of a variant.
pub(crate) fn compile(folder: &Path, variant: &str, constant: u32) -> PathBuf {
    let (source, object) = (folder.join("hot.bpf.c"), folder.join(format!("{variant}.o")));
    std::fs::write(&source, SOURCE).unwrap();
    let output = Command::new("clang")
        .args(["-O2", "-g", "-target", "bpf", "-mcpu=v3", "-Wall", "-Werror"])
        .args([format!("-DVARIANT={variant}"), format!("-DCONSTANT={constant:#x}")])
        .arg("-c")
        .arg(&source)
        .arg("-o")
        .arg(&object)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    object
}

/// The time that it took.
fn run_some(program: &ProgramMut<'_>) -> Duration {
    const TIMES: u32 = 2000;
    let data = [0u8; 64];
    let input = ProgramInput { data_in: Some(&data), repeat: TIMES, ..ProgramInput::default() };
    program.test_run(input).unwrap().duration * TIMES
}
