//! A loaded program and what it is called.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use crate::load::btf;
use crate::load::error::{Error, Result};
use crate::load::insn::{Code, Shape, tail_caller, two_subprograms};
use crate::load::log::{Function, Object};
use crate::load::pace::now;
use crate::load::sys::{self, Info, ProgramType};

/// Rounds of a program that only has to be there.
pub(crate) const FEW: i32 = 1;
/// Rounds of a program that samples shall land in; the verifier walks them all.
pub(crate) const MANY: i32 = 1000;

/// A loaded program; it goes when this is dropped.
#[derive(Debug)]
pub(crate) struct Program {
    fd: OwnedFd,
    names: Vec<String>,
    n: u64,
    /// Just before it was loaded.
    pub(crate) born_ns: u64,
    info: Option<Info>,
}

impl Program {
    /// Loads a program with two subprograms. Its birth is before the first of the calls that takes.
    pub(crate) fn load(kind: ProgramType, shape: &Shape<'_>) -> Result<Program> {
        Program::load_code(kind, shape.n, two_subprograms(shape))
    }

    /// Loads a program that jumps to what entry 0 of `map` holds.
    pub(crate) fn load_caller(shape: &Shape<'_>, map: BorrowedFd<'_>) -> Result<Program> {
        use std::os::fd::AsRawFd;
        Program::load_code(ProgramType::Socket, shape.n, tail_caller(shape, map.as_raw_fd()))
    }

    fn load_code(kind: ProgramType, n: u64, code: Code) -> Result<Program> {
        let types = btf::functions(code.functions.iter().map(|(_, name)| name.as_str()));
        let types = sys::load_btf(&types).map_err(|e| {
            Error::unavailable_if(&[libc::ENOSYS, libc::EPERM], "load type information of a BPF program", e)
        })?;
        let born_ns = now();
        let fd = sys::load_program(kind, &code, types.as_fd(), btf::FIRST_FUNCTION);
        // Tracing programs are refused as a kind where the kernel keeps them from everybody.
        let fd = fd.map_err(|e| Error::unavailable_if(&[libc::EPERM], format!("load a program ({kind:?})"), e))?;
        let names = code.functions.into_iter().map(|(_, name)| name).collect();
        Ok(Program { fd, names, n, born_ns, info: None })
    }

    /// Asks the kernel for id, tag and addresses.
    pub(crate) fn ask(&mut self) -> Result<()> {
        let info = sys::program_info(self.fd.as_fd(), self.names.len());
        self.info = Some(info.map_err(|e| Error::failed("ask about a program", e))?);
        Ok(())
    }

    /// The program's descriptor.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }

    /// Runs it so many times. Returns the nanoseconds that took.
    pub(crate) fn run(&self, times: u32) -> Result<u64> {
        let one = sys::test_run(self.fd.as_fd(), times).map_err(|e| Error::failed("run a program", e))?;
        Ok(u64::from(one) * u64::from(times))
    }

    /// The name of its main function in the kernel; without the tag while the kernel was not asked for it.
    pub(crate) fn symbol(&self) -> String {
        self.symbol_of(0)
    }

    fn symbol_of(&self, at: usize) -> String {
        let Some(info) = &self.info else { return self.names[at].clone() };
        // The main function is listed under the tag of the whole program, each other under its own.
        let tag = if at == 0 { info.tag } else { info.tags.get(at).copied().unwrap_or(info.tag) };
        format!("bpf_prog_{}_{}", hex(&tag), self.names[at])
    }

    /// Removes it and says what it was.
    pub(crate) fn close(self, kind: &'static str) -> Object {
        // When it surely was there.
        let mut object = self.describe(kind).with("closing_ns", now());
        drop(self.fd);
        object.gone_ns = now();
        object
    }

    /// What it is; its end is open.
    pub(crate) fn describe(&self, kind: &'static str) -> Object {
        let mut object = Object::new(kind, self.n, self.born_ns);
        object.name = Some(self.symbol());
        if let Some(info) = &self.info {
            object.id = Some(info.id);
            object.tag = Some(hex(&info.tag));
            object.address = info.addresses.first().copied();
        }
        object.functions = (0..self.names.len()).map(|at| self.function(at)).collect();
        object
    }

    fn function(&self, at: usize) -> Function {
        let info = self.info.as_ref();
        Function {
            name: self.symbol_of(at),
            address: info.and_then(|info| info.addresses.get(at)).copied(),
            length: info.and_then(|info| info.lengths.get(at)).copied(),
        }
    }
}

fn hex(tag: &[u8; 8]) -> String {
    tag.iter().map(|byte| format!("{byte:02x}")).collect()
}
