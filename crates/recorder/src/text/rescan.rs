//! After records of the sideband were lost: what programs there are is asked anew.
//!
//! The answer is of a moment between two passes, and records of that moment may lie unread in the rings. So it is told to
//! the timeline with the next pass, which has read them: then what no record told of was lost, and is not just late.

use std::time::{Duration, Instant};

use afterimage_kernel_text::capture::by_id::{self, Program};
use afterimage_kernel_text::{Seen, TextKind, Timeline};

use super::monotonic;

/// A machine that loads programs faster than their records are read loses some all the time; asking is not free.
const APART: Duration = Duration::from_secs(5);
/// What can be asked for.
const KINDS: [TextKind; 2] = [TextKind::Program, TextKind::Subprogram];

/// Whether to ask, when that was last done, and what the answer was.
#[derive(Debug, Default)]
pub(crate) struct Rescan {
    due: bool,
    last: Option<Instant>,
    answer: Option<Answer>,
}

/// The programs that were there, and when the asking began.
#[derive(Debug)]
struct Answer {
    time: u64,
    programs: Vec<Program>,
}

impl Rescan {
    /// Records were lost.
    pub(crate) fn lost(&mut self) {
        self.due = true;
    }

    /// Tells the timeline the last answer, if it is of a time before this one. All rings have been read since.
    pub(crate) fn tell(&mut self, before: u64, timeline: &mut Timeline) {
        let Some(Answer { time, programs }) = self.answer.take_if(|answer| answer.time <= before) else { return };
        let known: Vec<Seen<'_>> = programs.iter().flat_map(functions).collect();
        // Where nothing may be asked for, nothing is not the answer.
        if !known.is_empty() {
            timeline.rescan(time, &known, &KINDS);
        }
    }

    /// Asks, where that is due.
    pub(crate) fn ask(&mut self) {
        if !self.due || self.last.is_some_and(|last| last.elapsed() < APART) {
            return;
        }
        (self.due, self.last) = (false, Some(Instant::now()));
        let time = monotonic();
        self.answer = Some(Answer { time, programs: by_id::programs() });
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
