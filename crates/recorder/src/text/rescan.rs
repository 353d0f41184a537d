//! After records of the sideband were lost: what programs there are is asked anew.

use std::time::{Duration, Instant};

use afterimage_kernel_text::capture::by_id::{self, Program};
use afterimage_kernel_text::{Seen, TextKind, Timeline};

use super::monotonic;

/// A machine that loads programs faster than their records are read loses some all the time; asking is not free.
const APART: Duration = Duration::from_secs(5);
/// What can be asked for.
const KINDS: [TextKind; 2] = [TextKind::Program, TextKind::Subprogram];

/// Whether to ask, and when that was last done.
#[derive(Debug, Default)]
pub(crate) struct Rescan {
    due: bool,
    last: Option<Instant>,
}

impl Rescan {
    /// Records were lost.
    pub(crate) fn lost(&mut self) {
        self.due = true;
    }

    /// Asks, where that is due, and tells the timeline.
    pub(crate) fn run(&mut self, timeline: &mut Timeline) {
        if !self.due || self.last.is_some_and(|last| last.elapsed() < APART) {
            return;
        }
        (self.due, self.last) = (false, Some(Instant::now()));
        let programs = by_id::programs();
        let time = monotonic();
        let known: Vec<Seen<'_>> = programs.iter().flat_map(functions).collect();
        // Where nothing may be asked for, nothing is not the answer.
        if !known.is_empty() {
            timeline.rescan(time, &known, &KINDS);
        }
    }
}

fn functions(program: &Program) -> impl Iterator<Item = Seen<'_>> {
    program.functions.iter().enumerate().map(|(at, function)| {
        let tag = if at == 0 { Some(program.tag) } else { program.info.prog_tags.get(at).map(|tag| tag.0) };
        Seen {
            addr: function.address,
            len: function.length,
            name: function.name.as_bytes(),
            kind: if at == 0 { TextKind::Program } else { TextKind::Subprogram },
            tag,
            id: Some(program.id),
            function: Some(at as u32),
            loader: None,
        }
    })
}
