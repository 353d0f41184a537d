//! The last branches of a sample: ` FROM/TO/M|P|-/X|-/A|-/CYCLES/KIND `, the newest first.

use std::io::Write as _;

use afterimage_perf_data::record::{BranchEntry, BranchStack};
use afterimage_profile::{CpuMode, State, TimedSample};

use super::fields::{Field, Fields};
use super::frames::FrameLines;

/// Appends the branches, by address or by name.
pub(super) fn write(
    out: &mut Vec<u8>,
    stack: &BranchStack<'_>,
    lines: &mut FrameLines<'_>,
    state: &State,
    sample: &TimedSample<'_>,
    fields: Fields,
) {
    let named = !fields.has(Field::BrStack) && fields.has(Field::BrStackSym);
    for branch in stack.iter() {
        for (separator, addr) in [(if named { "" } else { " " }, branch.from), ("/", branch.to)] {
            out.extend_from_slice(separator.as_bytes());
            if named {
                lines.bare(out, state, sample, addr, true);
            } else {
                let _ = write!(out, "{addr:#x}");
            }
            if fields.has(Field::Dso) {
                lines.bare(out, state, sample, addr, false);
            }
        }
        flags(out, &branch);
    }
}

fn flags(out: &mut Vec<u8>, branch: &BranchEntry) {
    let predicted = match (branch.predicted(), branch.mispredicted()) {
        (true, _) => 'P',
        (false, true) => 'M',
        (false, false) => '-',
    };
    let transaction = if branch.in_transaction() { 'X' } else { '-' };
    let abort = if branch.abort() { 'A' } else { '-' };
    // Writing to a Vec does not fail.
    let _ = write!(out, "/{predicted}/{transaction}/{abort}/{}/{} ", branch.cycles(), branch.kind_name());
}

/// Whose code an address of a branch is: branches lead into the kernel and out of it.
pub(super) fn mode_of(sample: &TimedSample<'_>, addr: u64) -> CpuMode {
    match sample.mode() {
        CpuMode::Kernel | CpuMode::User if addr >> 63 == 1 => CpuMode::Kernel,
        CpuMode::Kernel | CpuMode::User => CpuMode::User,
        other => other,
    }
}
