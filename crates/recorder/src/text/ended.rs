//! Texts whose end was read, and that are copied now: the kernel holds them, or they have perhaps not been freed yet.

use std::collections::{BTreeMap, BTreeSet};

use afterimage_kernel_text::capture::{Copied, Extent, Heard, ReadError};
use afterimage_kernel_text::{Text, TextId, Timeline, Way};

use super::{Texts, monotonic};

/// So many ends are a reason for a pass: until then the kernel holds all of these texts.
const MANY: usize = 2048;
/// Copies are put away before they are more than so many bytes.
const AT_ONCE: usize = 16 << 20;

/// The ends that this pass has read.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    /// Each with whether it was told of in time: the kernel still holds what was freed then.
    texts: BTreeMap<TextId, bool>,
    /// Texts that were copied up to where their bytes seemed to end.
    without_length: BTreeSet<TextId>,
    heard: Heard,
    /// Copies of texts that were told of too late.
    late: u64,
}

/// What copies texts at their end, see [`Capturer::copy`](afterimage_kernel_text::capture::Capturer::copy).
type Copy<'c> = &'c mut dyn FnMut(u64, Extent) -> Result<Copied, ReadError>;

/// One text that was to be copied.
#[derive(Debug)]
pub(super) struct Outcome {
    text: TextId,
    extent: Extent,
    in_time: bool,
    time: u64,
    copied: Result<Copied, ReadError>,
}

impl Outcome {
    /// Why the copy is not proven, where the kernel has kept what it promised or not.
    fn unproven(&self, kept: bool) -> Option<&'static str> {
        match &self.copied {
            _ if !kept => Some("the kernel held less text than it promised"),
            _ if !self.in_time => Some("its end was told of too late for the kernel to hold it"),
            Ok(copied) if !copied.whole => Some("where it ends is not known"),
            _ => None,
        }
    }
}

impl Ended {
    /// A record told of the text's end, or of its beginning when it had ended already.
    pub(crate) fn went(&mut self, text: TextId) {
        self.texts.insert(text, true);
    }

    /// A record told of an end, whichever text's.
    pub(crate) fn unregistered(&mut self) {
        self.heard.unregistered = true;
    }

    /// It was seen being freed, or coming where no record will tell that it goes.
    pub(crate) fn told(&mut self, text: TextId, in_time: bool) {
        *self.texts.entry(text).or_default() |= in_time;
        self.heard.freed = true;
    }

    /// Records were lost.
    pub(crate) fn lost(&mut self) {
        self.heard.lost = true;
    }

    /// Whether there are so many that they should not wait.
    pub(crate) fn is_many(&self) -> bool {
        self.texts.len() >= MANY
    }

    /// What the pass that ends now has read.
    pub(crate) fn heard(&mut self) -> Heard {
        std::mem::take(&mut self.heard)
    }

    /// Copies of texts that were told of too late.
    pub(crate) fn late(&self) -> u64 {
        self.late
    }

    /// Copies the next of them, no more than are put away together. None are left when it gives none.
    fn next(&mut self, timeline: &Timeline, copy: Copy<'_>) -> Vec<Outcome> {
        let (mut outcomes, mut bytes) = (Vec::new(), 0);
        while bytes < AT_ONCE {
            let Some((id, in_time)) = self.texts.pop_first() else { break };
            let Some(text) = timeline.text(id).filter(|text| self.wants(id, text, in_time)) else { continue };
            let extent = extent(timeline, &text);
            let time = monotonic();
            let copied = copy(text.addr, extent);
            bytes += copied.as_ref().map_or(0, |copied| copied.bytes.len());
            if copied.is_ok() && matches!(extent, Extent::AtMost { .. }) {
                self.without_length.insert(id);
            } else {
                self.without_length.remove(&id);
            }
            self.late += u64::from(copied.is_ok() && !in_time);
            outcomes.push(Outcome { text: id, extent, in_time, time, copied });
        }
        self.without_length.retain(|id| timeline.text(*id).is_some());
        outcomes
    }

    /// Whether a text is to be copied, which may have been before: at its beginning, by another way, or without its length.
    fn wants(&self, id: TextId, text: &Text<'_>, in_time: bool) -> bool {
        // What comes too late may be of something else.
        if !in_time {
            return text.images.is_empty();
        }
        let end = text.gone.unwrap_or(0);
        let copied = text.images.iter().any(|image| image.way == Way::KcoreQc && image.proven && image.at >= end);
        !copied || text.length.is_some() && self.without_length.contains(&id)
    }
}

/// How much is to be copied of a text.
fn extent(timeline: &Timeline, text: &Text<'_>) -> Extent {
    match text.length {
        Some(length) => Extent::Exact(length),
        None if text.kind.length_is_exact() => Extent::Exact(text.len),
        None => {
            let end = text.addr.saturating_add(text.len.into());
            let next = timeline.next_start(text.addr, end, text.born);
            let len = next.map_or(text.len, |next| (next - text.addr) as u32);
            Extent::AtMost { len, next: next.is_some() }
        }
    }
}

impl Texts {
    /// The rings of the news were read between two passes. Where the kernel holds nothing, what went is copied at once.
    pub(crate) fn after_news(&mut self) {
        if self.capturer.as_ref().is_some_and(|capturer| capturer.copies_at_end() && !capturer.holds()) {
            self.copy_ended();
        }
    }

    /// Copies what ended, and puts it away piece by piece. Only after the last copy of a piece can be said whether any of them
    /// was of something else.
    pub(super) fn copy_ended(&mut self) {
        while let Some(capturer) = &mut self.capturer {
            let outcomes = self.ended.next(&self.live.timeline, &mut |addr, extent| capturer.copy(addr, extent));
            if outcomes.is_empty() {
                break;
            }
            let (way, kept) = capturer.check(outcomes.iter().filter(|outcome| outcome.copied.is_ok()).count());
            outcomes.into_iter().for_each(|outcome| self.ended_as(outcome, way, kept));
        }
    }

    /// A text was copied at its end, or not.
    fn ended_as(&mut self, outcome: Outcome, way: Way, kept: bool) {
        let unproven = outcome.unproven(kept);
        let Outcome { text, extent, time, copied, .. } = outcome;
        match copied {
            Ok(copied) => {
                if matches!(extent, Extent::AtMost { .. }) {
                    self.live.timeline.doubt(text);
                }
                self.image(text, &copied.bytes, time, way, way == Way::KcoreQc && unproven.is_none());
                let proven = self.live.timeline.text(text).is_some_and(|text| text.images.iter().any(|i| i.proven));
                if let Some(reason) = unproven.filter(|_| way == Way::KcoreQc && !proven) {
                    self.live.timeline.missing(text, reason);
                }
            }
            Err(error) if self.live.timeline.text(text).is_some_and(|text| text.images.is_empty()) => {
                self.live.timeline.missing(text, &format!("it could not be read in /proc/kcore: {error}"));
            }
            Err(_) => (),
        }
    }
}

#[cfg(test)]
mod tests;
