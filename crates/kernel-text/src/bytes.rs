//! The bytes of kernel text at a time, for those who decode instructions.

use std::fmt;

use crate::images::Images;
use crate::poke::Poke;
use crate::text::{Image, TextId};
use crate::timeline::Timeline;

/// Bytes that are put together in one go.
const PIECE: u64 = 4096;

/// Why bytes cannot be given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Why {
    /// No text was at the address at that time.
    NoText,
    /// The text has no image; what its capture says of that, if anything.
    NoImage(Option<Box<str>>),
    /// The text's images end before the address, as a trampoline's do before the page that the kernel reports.
    OutsideImage,
    /// The images are not there: their ids are known, their bytes are not.
    ImageNotKept,
    /// The address was in a place that was changed, and what stood there is not known at that time.
    Changed,
}

/// Bytes that cannot be given, and those before them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The first address that cannot be given.
    pub at: u64,
    /// Why not.
    pub why: Why,
    /// The text there, if there was one.
    pub text: Option<TextId>,
    /// The bytes from the address that was asked for up to `at`.
    pub got: Vec<u8>,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no bytes at {:#x}: ", self.at)?;
        match &self.why {
            Why::NoText => f.write_str("no text was there at that time"),
            Why::NoImage(None) => f.write_str("the text was not captured"),
            Why::NoImage(Some(reason)) => write!(f, "the text was not captured ({reason})"),
            Why::OutsideImage => f.write_str("the text's image ends before it"),
            Why::ImageNotKept => f.write_str("the text's image is not in the recording"),
            Why::Changed => f.write_str("what was written there at that time is not known"),
        }
    }
}

impl std::error::Error for Missing {}

impl Timeline {
    /// The `len` bytes of text from `addr` on as they stood at `time`: the image nearest before that time (or else after
    /// it), with all changes in between ([`Timeline::poke`]) made or taken back, across texts that follow each other
    /// without a gap.
    ///
    /// # Errors
    /// When a byte cannot be given: which, why, and the bytes before it.
    pub fn bytes(&self, images: &Images, addr: u64, len: usize, time: u64) -> Result<Vec<u8>, Missing> {
        let mut got = Vec::new();
        while got.len() < len {
            let missing =
                |why, text, got: Vec<u8>| Missing { at: addr.saturating_add(got.len() as u64), why, text, got };
            let Some(at) = addr.checked_add(got.len() as u64) else { return Err(missing(Why::NoText, None, got)) };
            let Some(hit) = self.lookup(at, time) else { return Err(missing(Why::NoText, None, got)) };
            if let Err(why) = self.piece(images, hit.text, at, len - got.len(), time, &mut got) {
                return Err(missing(why, Some(hit.text), got));
            }
        }
        Ok(got)
    }

    /// Appends bytes of one text, at least one.
    fn piece(
        &self,
        images: &Images,
        id: TextId,
        at: u64,
        want: usize,
        time: u64,
        got: &mut Vec<u8>,
    ) -> Result<(), Why> {
        let (Some(text), Some(row)) = (self.rows.text(id), self.rows.get(id)) else { return Err(Why::NoText) };
        let end = text.addr.saturating_add(row.covers().into());
        let end = self.starts.next_alive(at, end, time).unwrap_or(end);
        let end = end.min(at.saturating_add(PIECE.min(want as u64)));
        let image = nearest(text.images, time);
        let kept = image.map(|image| images.get(image.id).ok_or(Why::ImageNotKept)).transpose();
        let offset = usize::try_from(at - text.addr).unwrap_or(usize::MAX);
        let base = kept.as_ref().ok().copied().flatten().and_then(|bytes| bytes.get(offset..)).unwrap_or_default();
        let mut bytes: Vec<Option<u8>> = base.iter().copied().map(Some).collect();
        bytes.resize(usize::try_from(end.saturating_sub(at)).unwrap_or(0), None);
        let pokes = self.pokes.over(at, end);
        let lived = |poke: &&&Poke| poke.time >= row.born && poke.time < row.gone;
        let changed = apply(&mut bytes, at, image.map(|image| image.at), time, pokes.iter().filter(lived));
        let before = got.len();
        got.extend(bytes.iter().map_while(|byte| *byte));
        if got.len() > before {
            return Ok(());
        }
        Err(match kept {
            Err(why) => why,
            Ok(_) if changed => Why::Changed,
            Ok(None) => Why::NoImage(text.missing.map(Into::into)),
            Ok(Some(_)) => Why::OutsideImage,
        })
    }
}

/// The last image up to a time, or else the first one after it.
fn nearest(images: &[Image], time: u64) -> Option<&Image> {
    let before = images.iter().filter(|image| image.at <= time).max_by_key(|image| image.at);
    before.or_else(|| images.iter().min_by_key(|image| image.at))
}

/// Makes what was read at `read`, if anything was, into what stood there at `time`; `start` is the address of the first
/// byte. Answers whether the first byte was changed to something that is not known.
fn apply<'p>(
    bytes: &mut [Option<u8>],
    start: u64,
    read: Option<u64>,
    time: u64,
    pokes: impl DoubleEndedIterator<Item = &'p &'p Poke> + Clone,
) -> bool {
    let mut changed = false;
    // Puts one side of a change in place; of those bytes only that are asked for.
    let mut put = |bytes: &mut [Option<u8>], poke: &Poke, to: &[u8], wanted: &mut dyn FnMut(usize) -> bool| {
        for i in 0..poke.old.len().max(poke.new.len()) {
            let Some(place) = (poke.addr + i as u64).checked_sub(start) else { continue };
            let Ok(place) = usize::try_from(place) else { break };
            let Some(byte) = bytes.get_mut(place) else { break };
            if wanted(place) {
                *byte = to.get(i).copied();
                changed = if place == 0 { byte.is_none() } else { changed };
            }
        }
    };
    // Without an image, what was written since the beginning is known all the same.
    let read = read.unwrap_or(0);
    for poke in pokes.clone().filter(|poke| read < poke.time && poke.time <= time) {
        put(bytes, poke, &poke.new, &mut |_| true);
    }
    for poke in pokes.clone().rev().filter(|poke| time < poke.time && poke.time <= read) {
        put(bytes, poke, &poke.old, &mut |_| true);
    }
    // The first change that comes later tells what stood there until then.
    let mut unknown: Vec<bool> = bytes.iter().map(Option::is_none).collect();
    for poke in pokes.filter(|poke| poke.time > time) {
        put(bytes, poke, &poke.old, &mut |place| unknown.get_mut(place).is_some_and(std::mem::take));
    }
    changed
}
