//! Machine code as text: x86 by iced-x86, 64-bit ARM by capstone (feature `aarch64`), BPF by our own printer. Code of other
//! machines is shown as words.
//!
//! Nothing is ever left out: bytes that are no instruction stand there as `(bad)`, and the lines cover all bytes.

#[cfg(feature = "aarch64")]
mod arm;
pub(crate) mod bpf;
#[cfg(test)]
mod oracle;
mod words;
mod x86;

use std::str::FromStr;

use afterimage_symbols::Machine;

/// How instructions are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Style {
    /// As the GNU tools write them.
    #[default]
    Att,
    /// As Intel's manuals write them.
    Intel,
}

impl FromStr for Style {
    type Err = ();

    fn from_str(word: &str) -> Result<Style, ()> {
        match word {
            "att" => Ok(Style::Att),
            "intel" => Ok(Style::Intel),
            _ => Err(()),
        }
    }
}

/// One instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// Bytes from the start of the code.
    pub(crate) offset: u64,
    /// Its bytes.
    pub(crate) len: usize,
    /// The instruction, without a name for it in front and without its address.
    pub(crate) text: String,
    /// The address that it branches to, if that stands in it.
    pub(crate) target: Option<u64>,
}

/// The instructions of some code that lies at `start`. `name` gives the text of the operand of a branch to an address,
/// and of the remark behind an address that is relative to the instruction.
pub(crate) fn decode(
    machine: Machine,
    style: Style,
    code: &[u8],
    start: u64,
    name: &mut dyn FnMut(u64) -> String,
) -> Vec<Line> {
    match machine {
        Machine::X86_64 => x86::decode(64, style, code, start, name),
        Machine::X86 => x86::decode(32, style, code, start, name),
        #[cfg(feature = "aarch64")]
        Machine::Aarch64 => arm::decode(code, start, name),
        _ => words::decode(code),
    }
}
