//! BPF programs that run hot: made from `hot.bpf.c`, loaded, run, freed.

use std::path::Path;
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
        let object = ObjectBuilder::default().open_file(&object).unwrap().load().unwrap();
        let wanted = format!("{variant}_main");
        let kept = &wanted[..wanted.len().min(15)];
        let mut infos = ProgInfoIter::with_query_opts(ProgInfoQueryOptions::default().include_all());
        let info = infos.find(|info| info.name.to_string_lossy() == kept).expect("the program is not listed");
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

    /// Runs it for some time of the clock on the wall.
    pub(crate) fn run(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            for program in self.object.iter_mut().flat_map(|object| object.progs_mut()) {
                run_some(&program);
            }
        }
    }
}

fn run_some(program: &ProgramMut<'_>) {
    let data = [0u8; 64];
    program.test_run(ProgramInput { data_in: Some(&data), repeat: 2000, ..ProgramInput::default() }).unwrap();
}
