//! Texts whose end was read, and that are copied now: the kernel holds them, or they have perhaps not been freed yet.

use std::collections::BTreeSet;

use afterimage_kernel_text::capture::{Extent, Heard};
use afterimage_kernel_text::{TextId, Way};

use super::{Texts, monotonic};

/// So many ends are a reason for a pass: until then the kernel holds all of these texts.
const MANY: usize = 2048;

/// The ends that this pass has read.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    texts: BTreeSet<TextId>,
    heard: Heard,
}

impl Ended {
    /// A record told that the text went.
    pub(crate) fn went(&mut self, text: TextId) {
        self.texts.insert(text);
        self.heard.unregistered = true;
    }

    /// It was seen being freed, or coming where no record will tell that it goes.
    pub(crate) fn told(&mut self, text: TextId) {
        self.texts.insert(text);
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
}

impl Texts {
    /// The rings of the news were read between two passes. Where the kernel holds nothing, what went is copied at once.
    pub(crate) fn after_news(&mut self) {
        if self.capturer.as_ref().is_some_and(|capturer| capturer.copies_at_end() && !capturer.holds()) {
            self.copy_ended();
        }
    }

    /// Copies what ended. Only after the last copy can be said whether any of them was of something else.
    pub(super) fn copy_ended(&mut self) {
        let ended = std::mem::take(&mut self.ended.texts);
        let Some(capturer) = self.capturer.as_mut().filter(|_| !ended.is_empty()) else { return };
        let mut copies = Vec::new();
        for id in ended {
            let Some(text) = self.live.timeline.text(id) else { continue };
            if text.images.iter().any(|image| image.way == Way::KcoreQc && image.proven) {
                continue;
            }
            let extent = match text.length {
                Some(length) => Extent::Exact(length),
                None if text.kind.length_is_exact() => Extent::Exact(text.len),
                None => Extent::AtMost(text.len),
            };
            let (time, has_image) = (monotonic(), !text.images.is_empty());
            match capturer.copy(text.addr, extent) {
                Ok(bytes) => copies.push((id, extent, time, bytes)),
                Err(error) if !has_image => {
                    self.live.timeline.missing(id, &format!("it could not be read in /proc/kcore: {error}"));
                }
                Err(_) => (),
            }
        }
        let (way, proven) = capturer.check(copies.len());
        for (id, extent, time, bytes) in copies {
            if matches!(extent, Extent::AtMost(_)) {
                self.live.timeline.doubt(id);
            }
            self.image(id, &bytes, time, way, proven);
            if way == Way::KcoreQc && !proven {
                self.live.timeline.missing(id, "the kernel held less text than it promised");
            }
        }
    }
}
