//! The timeline of a running recording: told pass by pass, and bounded.
//!
//! A text that has gone can still be spoken of: by samples that were taken in it and by records that lie unread in the
//! ring of another CPU. So it stays until three passes over all rings have gone by; `afterimage-quiesce` holds the
//! argument. Then it leaves the timeline, and what is left is what lives, and what went lately.

use afterimage_perf_data::TextDesc;
use afterimage_quiesce::{Lists, Store};

use crate::rows::{Rows, flag};
use crate::text::TextId;
use crate::timeline::Timeline;

/// A timeline that tells what changed and lets go of what is over.
#[derive(Debug)]
pub struct Live {
    /// The timeline.
    pub timeline: Timeline,
    gone: Lists<TextId>,
    /// Changes in place that are forgotten once there are twice as many.
    pokes: usize,
    passes: [u64; 3],
}

impl Default for Live {
    fn default() -> Self {
        Live::new()
    }
}

/// What a pass leaves behind.
#[derive(Clone, Debug, Default)]
pub struct Passed {
    /// Texts that are new or were altered since the last pass, as they are now.
    pub changed: Vec<TextDesc>,
    /// Texts that left the timeline, as they were then: none of them is altered any more.
    pub retired: Vec<TextDesc>,
}

impl Live {
    /// A timeline in which nothing has happened yet.
    pub fn new() -> Live {
        let mut timeline = Timeline::new();
        timeline.followed = true;
        Live { timeline, gone: Lists::new(), pokes: 0, passes: [0; 3] }
    }

    /// A complete pass over all rings has ended, and everything read in it has been told to the timeline; `time` is when
    /// it began, in ns of the recording's clock. Costs what changed, not what there is.
    pub fn pass(&mut self, time: u64) -> Passed {
        let changed = self.changed();
        let timeline = &mut self.timeline;
        for text in std::mem::take(&mut timeline.ended) {
            // Closed lists would give it back at once; these are closed only by `close`, which takes all by value.
            let _open = self.gone.defer(&mut timeline.rows, text);
        }
        self.gone.advance();
        let mut retired = Vec::new();
        while let Some(text) = self.gone.pop(&mut timeline.rows) {
            retired.extend(timeline.take_out(text));
        }
        self.passes.rotate_right(1);
        let [first, ..] = &mut self.passes;
        *first = time;
        let [.., oldest] = self.passes;
        timeline.forget_losses(oldest);
        if timeline.pokes.len() > 2 * self.pokes + 1024 {
            timeline.forget(oldest);
            self.pokes = timeline.pokes.len();
        }
        Passed { changed, retired }
    }

    /// The end of the recording: what changed since the last pass, and the timeline for good.
    pub fn close(mut self) -> (Passed, Timeline) {
        let changed = self.changed();
        self.gone.close();
        while self.gone.pop(&mut self.timeline.rows).is_some() {}
        self.timeline.followed = false;
        (Passed { changed, retired: Vec::new() }, self.timeline)
    }

    fn changed(&mut self) -> Vec<TextDesc> {
        let timeline = &mut self.timeline;
        let changed = std::mem::take(&mut timeline.changed);
        for text in &changed {
            if let Some(row) = timeline.rows.get_mut(*text) {
                row.flags &= !flag::CHANGED;
            }
        }
        changed.into_iter().filter_map(|text| timeline.desc(text)).collect()
    }
}

/// A text's own row holds its place in the lists.
impl Store for Rows {
    type Node = TextId;

    fn next(&self, node: TextId) -> Option<TextId> {
        self.get(node).and_then(|row| row.link)
    }

    fn set_next(&mut self, node: TextId, next: Option<TextId>) {
        if let Some(row) = self.get_mut(node) {
            row.link = next;
        }
    }
}
