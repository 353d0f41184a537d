//! The few kernel symbols that a recording begins with, by a program on the kernel's iterator over its symbols (Linux 6.0;
//! src/bpf/symbols.bpf.h).
//!
//! It shows what `/proc/kallsyms` shows, to those whom that shows it, but the kernel need not write a hundred thousand lines
//! for the ten that are wanted.

use std::fmt;
use std::io::{self, Read};

use libbpf_rs::{Iter, Link, Object};

use super::object;

/// The program's name.
pub(super) const PROGRAM: &str = "ai_symbols";
/// struct ai_symbol
const SIZE: usize = 8 + OWNER + NAME;
const OWNER: usize = 24;
const NAME: usize = 128;

/// The loaded program. It runs only as it is read.
pub(super) struct Symbols(Link);

impl fmt::Debug for Symbols {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Symbols").finish_non_exhaustive()
    }
}

impl Symbols {
    /// The program of a loaded object; `None` where the kernel has no such iterator.
    pub(super) fn of(object: &Object) -> Option<Symbols> {
        object::attach(object, PROGRAM).ok().map(Symbols)
    }

    /// The symbols as they are now, in the order and the form of `/proc/kallsyms`.
    pub(super) fn read(&self) -> io::Result<String> {
        let mut iterator = Iter::new(&self.0).map_err(io::Error::other)?;
        let mut bytes = Vec::new();
        iterator.read_to_end(&mut bytes)?;
        Ok(bytes.chunks_exact(SIZE).filter_map(line).collect())
    }
}

/// One symbol as a line. All of them are text that only the file's own unit refers to: `t`.
fn line(symbol: &[u8]) -> Option<String> {
    let address = u64::from_ne_bytes(*symbol.first_chunk()?);
    let text = |at: usize, len: usize| {
        let bytes = symbol.get(at..at + len)?.split(|byte| *byte == 0).next()?;
        std::str::from_utf8(bytes).ok()
    };
    let (owner, name) = (text(8, OWNER)?, text(8 + OWNER, NAME)?);
    Some(match owner {
        "" => format!("{address:016x} t {name}\n"),
        owner => format!("{address:016x} t {name}\t[{owner}]\n"),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn symbol(address: u64, owner: &str, name: &str) -> Vec<u8> {
        let mut bytes = address.to_ne_bytes().to_vec();
        bytes.extend(owner.bytes());
        bytes.resize(8 + OWNER, 0);
        bytes.extend(name.bytes());
        bytes.resize(SIZE, 0);
        bytes
    }

    #[test]
    fn lines_are_those_of_kallsyms() {
        let of = |address, owner, name| line(&symbol(address, owner, name)).unwrap();
        assert_eq!(of(0xffff_ffff_8100_0000, "", "_text"), "ffffffff81000000 t _text\n");
        assert_eq!(of(0, "bpf", "bpf_trampoline_6"), "0000000000000000 t bpf_trampoline_6\t[bpf]\n");
        assert_eq!(line(&[1, 2, 3]), None);
        let mut damaged = symbol(1, "bpf", "x");
        damaged[8 + OWNER] = 0xff;
        assert_eq!(line(&damaged), None);
    }
}
