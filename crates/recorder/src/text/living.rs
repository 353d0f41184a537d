//! Text that nobody copies as it goes, or that is rewritten while it stays: it is read where it stands, at a pass.
//!
//! What was read is proven when the next pass knows of no end before the reading. The dispatchers of XDP are changed in
//! place at every attachment and tell of none, so they are read again at each pass that has news of text.

use std::collections::BTreeSet;

use afterimage_kernel_text::capture::{Capturer, end_of_text};
use afterimage_kernel_text::{Text, TextId, TextKind, Timeline, Way};

use super::monotonic;

/// Texts that are read in one pass, at most; the rest is read in the next one.
const AT_ONCE: usize = 256;
/// The longest text that is read like this.
const LONGEST: u64 = 64 << 10;

/// Texts that stand, and copies that wait for their proof.
#[derive(Debug, Default)]
pub(crate) struct Living {
    unread: BTreeSet<TextId>,
    rewritten: BTreeSet<TextId>,
    waiting: Vec<(TextId, Read)>,
}

/// One copy of a text that stood.
#[derive(Debug)]
pub(crate) struct Read {
    pub(crate) time: u64,
    pub(crate) bytes: Vec<u8>,
    pub(crate) way: Way,
    /// It is known to end where the text does.
    whole: bool,
    pub(crate) proven: bool,
}

impl Living {
    /// A text came that is not a program's.
    pub(crate) fn came(&mut self, text: TextId) {
        self.unread.insert(text);
    }

    /// The recording ends: every text that stands and has no copy is read now.
    pub(crate) fn all(&mut self, timeline: &Timeline) {
        let bare = timeline.texts().filter(|(_, text)| text.gone.is_none() && text.images.is_empty());
        self.unread.extend(bare.map(|(id, _)| id));
    }

    /// Whether there is something to read or to confirm.
    pub(crate) fn is_busy(&self) -> bool {
        !self.unread.is_empty() || !self.waiting.is_empty()
    }

    /// Reads what came since, and, where there is news of text, what is rewritten in place.
    pub(crate) fn read(&mut self, timeline: &Timeline, capturer: &Capturer, news: bool) {
        let again = self.rewritten.iter().filter(|_| news);
        let next: BTreeSet<TextId> = self.unread.iter().chain(again).copied().take(AT_ONCE).collect();
        for id in next {
            self.unread.remove(&id);
            let Some(text) = timeline.text(id).filter(|text| text.gone.is_none()) else {
                self.rewritten.remove(&id);
                continue;
            };
            if text.kind == TextKind::Dispatcher {
                self.rewritten.insert(id);
            }
            // The reported page of a trampoline ends where the next text begins.
            let shown = text.length.is_none() && !text.kind.length_is_exact() && text.kind != TextKind::Dispatcher;
            let reported = u64::from(text.length.unwrap_or(text.len));
            let end = text.addr.saturating_add(reported);
            let next = timeline.next_start(text.addr, end, text.born).filter(|_| shown);
            let len = next.map_or(reported, |next| next - text.addr);
            if len > LONGEST {
                continue;
            }
            let mut bytes = vec![0; len as usize];
            let time = monotonic();
            if let Ok(way) = capturer.read(text.addr, &mut bytes) {
                let (end, whole) = end_of_text(text.addr, &bytes, next.is_some());
                bytes.truncate(if shown { end } else { bytes.len() });
                self.waiting.push((id, Read { time, bytes, way, whole: whole || !shown, proven: false }));
            }
        }
    }

    /// The copies of the last pass, now that all is known of that time.
    pub(crate) fn confirm(&mut self, timeline: &Timeline) -> Vec<(TextId, Read)> {
        let mut confirmed = std::mem::take(&mut self.waiting);
        for (id, read) in &mut confirmed {
            let there = |text: &Text<'_>| text.gone.is_none_or(|gone| gone > read.time);
            // Where records were lost, its end may have been told by one of them.
            read.proven = read.whole && timeline.text(*id).is_some_and(|text| there(&text) && !text.uncertain);
        }
        confirmed
    }

    /// The copies that will not be confirmed any more.
    pub(crate) fn unconfirmed(&mut self) -> Vec<(TextId, Read)> {
        std::mem::take(&mut self.waiting)
    }
}
