//! What is known of each text, kept small: a row of 96 bytes and its name.
//!
//! Rows stand in chunks in the order of their numbers. A chunk has the names of its rows, so that both go together once
//! all its rows have been taken out; a text that stays keeps one chunk.

use std::collections::VecDeque;

use afterimage_perf_data::ImageId;

use crate::text::{BpfProgram, Image, Loader, Text, TextId, TextKind};

/// Rows in a chunk.
const ROWS: usize = 64;
/// Where a small table of a chunk has no entry for a row.
const NONE: u8 = u8::MAX;
/// Where the program's function is not known.
const NO_FUNCTION: u16 = u16::MAX;
/// The time of what has not gone.
pub(crate) const NEVER: u64 = u64::MAX;

/// Bits of [`Row::flags`].
pub(crate) mod flag {
    /// Its name or its times may be wrong.
    pub(crate) const UNCERTAIN: u8 = 1;
    /// Altered since it was last told.
    pub(crate) const CHANGED: u8 = 1 << 1;
    /// Its end is that of a free, which is later than the record of its end if there is one.
    pub(crate) const FREED: u8 = 1 << 2;
    /// Its end is known to those who retire texts.
    pub(crate) const ENDED: u8 = 1 << 3;
    /// `id` and `tag` are known.
    pub(crate) const PROGRAM: u8 = 1 << 4;
    /// Its end was told, not concluded from what came after it.
    pub(crate) const TOLD: u8 = 1 << 5;
    /// Only its end was told: when it came is bounded by what was there before.
    pub(crate) const ORPHAN: u8 = 1 << 6;
    /// Its end was concluded from its absence when somebody looked.
    pub(crate) const MISSED: u8 = 1 << 7;
}

/// What is known of one text.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) addr: u64,
    /// 0: not known.
    pub(crate) born: u64,
    /// [`NEVER`] while it lives.
    pub(crate) gone: u64,
    /// As reported; 0: no record told of it.
    pub(crate) len: u32,
    /// True length; 0: not known.
    pub(crate) length: u32,
    id: u32,
    tag: [u8; 8],
    name_at: u32,
    name_len: u16,
    function: u16,
    pub(crate) kind: TextKind,
    pub(crate) flags: u8,
    loader: u8,
    missing: u8,
    /// The next text in a list of those that wait to be retired.
    #[cfg(feature = "capture")]
    pub(crate) link: Option<TextId>,
}

impl Row {
    /// The bytes that it covers: the true length where it is known.
    pub(crate) fn covers(&self) -> u32 {
        if self.length != 0 { self.length } else { self.len }
    }

    /// Whether [`Row::covers`] is the text's own length.
    pub(crate) fn is_exact(&self) -> bool {
        self.length != 0 || self.kind.length_is_exact()
    }

    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub(crate) fn program(&self) -> Option<BpfProgram> {
        self.has(flag::PROGRAM).then_some(BpfProgram { id: self.id, tag: self.tag })
    }

    pub(crate) fn set_program(&mut self, program: BpfProgram) {
        (self.id, self.tag) = (program.id, program.tag);
        self.flags |= flag::PROGRAM;
    }

    pub(crate) fn function(&self) -> Option<u32> {
        (self.function != NO_FUNCTION).then_some(self.function.into())
    }

    pub(crate) fn set_function(&mut self, function: u32) {
        self.function = u16::try_from(function).unwrap_or(NO_FUNCTION);
    }
}

/// The images of one text; nearly all have one.
#[derive(Clone, Debug, Default)]
enum ImageList {
    #[default]
    None,
    One(Image),
    Many(Vec<Image>),
}

impl ImageList {
    fn as_mut_slice(&mut self) -> &mut [Image] {
        match self {
            ImageList::None => &mut [],
            ImageList::One(image) => std::slice::from_mut(image),
            ImageList::Many(images) => images,
        }
    }

    fn as_slice(&self) -> &[Image] {
        match self {
            ImageList::None => &[],
            ImageList::One(image) => std::slice::from_ref(image),
            ImageList::Many(images) => images,
        }
    }

    fn push(&mut self, image: Image) {
        match self {
            ImageList::None => *self = ImageList::One(image),
            ImageList::One(first) => *self = ImageList::Many(vec![*first, image]),
            ImageList::Many(images) => images.push(image),
        }
    }
}

#[derive(Clone, Debug)]
struct Slot {
    row: Row,
    images: ImageList,
}

#[derive(Clone, Debug)]
struct Chunk {
    slots: Vec<Slot>,
    /// Bits of the rows that were taken out.
    taken: u64,
    names: String,
    loaders: Vec<(u32, Box<str>)>,
    reasons: Vec<Box<str>>,
}

impl Chunk {
    fn new() -> Box<Chunk> {
        Box::new(Chunk {
            slots: Vec::with_capacity(ROWS),
            taken: 0,
            names: String::new(),
            loaders: Vec::new(),
            reasons: Vec::new(),
        })
    }

    fn name(&self, row: &Row) -> &str {
        let at = row.name_at as usize;
        self.names.get(at..at + usize::from(row.name_len)).unwrap_or_default()
    }

    /// Where a name stands among the chunk's names. Those who come and go in numbers mostly have one name.
    fn intern(&mut self, name: &str) -> (u32, u16) {
        let mut end = name.len().min(usize::from(u16::MAX));
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        let name = &name[..end];
        let known = self.slots.iter().rev().map(|slot| &slot.row).find(|row| self.name(row) == name);
        if let Some(row) = known {
            return (row.name_at, row.name_len);
        }
        let at = self.names.len() as u32;
        self.names.reserve_exact(name.len());
        self.names.push_str(name);
        (at, name.len() as u16)
    }
}

/// A new text, as far as it is known when it becomes known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct New<'a> {
    pub(crate) addr: u64,
    pub(crate) born: u64,
    pub(crate) gone: u64,
    pub(crate) len: u32,
    pub(crate) length: u32,
    pub(crate) name: &'a str,
    pub(crate) kind: TextKind,
}

/// All texts that have not been taken out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rows {
    chunks: VecDeque<Option<Box<Chunk>>>,
    /// Chunks that went before the first of `chunks`.
    before: usize,
    next: usize,
    held: usize,
}

impl Rows {
    pub(crate) fn add(&mut self, new: &New<'_>) -> Option<TextId> {
        let id = TextId::from_index(self.next)?;
        if self.next % ROWS == 0 {
            self.chunks.push_back(Some(Chunk::new()));
        }
        let chunk = self.chunks.back_mut()?.as_mut()?;
        let (name_at, name_len) = chunk.intern(new.name);
        let row = Row {
            addr: new.addr,
            born: new.born,
            gone: new.gone,
            len: new.len,
            length: new.length,
            id: 0,
            tag: [0; 8],
            name_at,
            name_len,
            function: NO_FUNCTION,
            kind: new.kind,
            flags: 0,
            loader: NONE,
            missing: NONE,
            #[cfg(feature = "capture")]
            link: None,
        };
        chunk.slots.push(Slot { row, images: ImageList::None });
        self.next += 1;
        self.held += 1;
        Some(id)
    }

    fn place(&self, id: TextId) -> Option<(usize, usize)> {
        Some(((id.index() / ROWS).checked_sub(self.before)?, id.index() % ROWS))
    }

    fn chunk(&self, id: TextId) -> Option<(&Chunk, &Slot)> {
        let (chunk, slot) = self.place(id)?;
        let chunk = self.chunks.get(chunk)?.as_ref()?;
        if chunk.taken & 1 << slot != 0 {
            return None;
        }
        Some((chunk, chunk.slots.get(slot)?))
    }

    fn chunk_mut(&mut self, id: TextId) -> Option<(&mut Chunk, usize)> {
        let (chunk, slot) = self.place(id)?;
        let chunk = self.chunks.get_mut(chunk)?.as_mut()?;
        (chunk.taken & 1 << slot == 0 && slot < chunk.slots.len()).then_some((chunk, slot))
    }

    pub(crate) fn get(&self, id: TextId) -> Option<&Row> {
        self.chunk(id).map(|(_, slot)| &slot.row)
    }

    pub(crate) fn get_mut(&mut self, id: TextId) -> Option<&mut Row> {
        let (chunk, slot) = self.chunk_mut(id)?;
        chunk.slots.get_mut(slot).map(|slot| &mut slot.row)
    }

    pub(crate) fn name(&self, id: TextId) -> Option<&str> {
        self.chunk(id).map(|(chunk, slot)| chunk.name(&slot.row))
    }

    pub(crate) fn set_loader(&mut self, id: TextId, loader: Loader<'_>) {
        let Some((chunk, slot)) = self.chunk_mut(id) else { return };
        let known = chunk.loaders.iter().position(|(pid, comm)| *pid == loader.pid && **comm == *loader.comm);
        let at = known.unwrap_or(chunk.loaders.len());
        if at == chunk.loaders.len() {
            chunk.loaders.push((loader.pid, loader.comm.into()));
        }
        // One a row at most, so fewer than NONE.
        if let (Some(slot), Ok(at)) = (chunk.slots.get_mut(slot), u8::try_from(at)) {
            slot.row.loader = at;
        }
    }

    pub(crate) fn set_missing(&mut self, id: TextId, reason: &str) {
        let Some((chunk, slot)) = self.chunk_mut(id) else { return };
        let known = chunk.reasons.iter().position(|known| **known == *reason);
        let at = known.unwrap_or(chunk.reasons.len()).min(usize::from(NONE) - 1);
        match chunk.reasons.get_mut(at) {
            // So many different reasons, changing for ever: the last place is taken over.
            Some(kept) if known.is_none() => *kept = reason.into(),
            Some(_) => {}
            None => chunk.reasons.push(reason.into()),
        }
        if let Some(slot) = chunk.slots.get_mut(slot) {
            slot.row.missing = at as u8;
        }
    }

    pub(crate) fn add_image(&mut self, id: TextId, image: Image) {
        let Some((chunk, slot)) = self.chunk_mut(id) else { return };
        if let Some(slot) = chunk.slots.get_mut(slot) {
            slot.images.push(image);
        }
    }

    /// An image of a text is no proven copy of it.
    pub(crate) fn unprove(&mut self, id: TextId, image: ImageId) {
        let Some((chunk, slot)) = self.chunk_mut(id) else { return };
        let images = chunk.slots.get_mut(slot).map_or(&mut [][..], |slot| slot.images.as_mut_slice());
        images.iter_mut().filter(|known| known.id == image).for_each(|known| known.proven = false);
    }

    /// All of a text but whether it is uncertain for want of records.
    pub(crate) fn text(&self, id: TextId) -> Option<Text<'_>> {
        let (chunk, slot) = self.chunk(id)?;
        let row = &slot.row;
        let len = if row.len != 0 { row.len } else { row.length };
        Some(Text {
            name: chunk.name(row),
            kind: row.kind,
            addr: row.addr,
            len,
            length: row.is_exact().then_some(row.covers()),
            born: row.born,
            gone: (row.gone != NEVER).then_some(row.gone),
            program: row.program(),
            function: row.function(),
            loader: chunk.loaders.get(usize::from(row.loader)).map(|(pid, comm)| Loader { pid: *pid, comm }),
            images: slot.images.as_slice(),
            missing: chunk.reasons.get(usize::from(row.missing)).map(|reason| &**reason),
            uncertain: row.has(flag::UNCERTAIN),
        })
    }

    /// The reported length, `None` where no record told of the text.
    pub(crate) fn reported(&self, id: TextId) -> Option<u32> {
        self.get(id).map(|row| row.len).filter(|len| *len != 0)
    }

    /// Takes a text out: nothing is known of it from now on.
    pub(crate) fn take(&mut self, id: TextId) {
        let Some((at, slot)) = self.place(id) else { return };
        let Some((chunk, _)) = self.chunk_mut(id) else { return };
        chunk.taken |= 1 << slot;
        if let Some(slot) = chunk.slots.get_mut(slot) {
            slot.images = ImageList::None;
        }
        let all = chunk.taken == u64::MAX;
        self.held -= 1;
        if all {
            if let Some(place) = self.chunks.get_mut(at) {
                *place = None;
            }
            while let Some(None) = self.chunks.front() {
                self.chunks.pop_front();
                self.before += 1;
            }
        }
    }

    /// The numbers of all texts, ascending.
    pub(crate) fn ids(&self) -> impl Iterator<Item = TextId> + '_ {
        let chunks = self.chunks.iter().enumerate().filter_map(|(at, chunk)| Some((at, chunk.as_ref()?)));
        chunks.flat_map(|(at, chunk)| {
            let first = (self.before + at) * ROWS;
            let there = (0..chunk.slots.len()).filter(move |slot| chunk.taken & 1 << slot == 0);
            there.filter_map(move |slot| TextId::from_index(first + slot))
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.held
    }

    /// Bytes on the heap.
    pub(crate) fn heap_bytes(&self) -> usize {
        let strings = |chunk: &Chunk| {
            let loaders = chunk.loaders.capacity() * size_of::<(u32, Box<str>)>();
            let comms: usize = chunk.loaders.iter().map(|(_, comm)| comm.len()).sum();
            let reasons = chunk.reasons.capacity() * size_of::<Box<str>>();
            let words: usize = chunk.reasons.iter().map(|reason| reason.len()).sum();
            chunk.names.capacity() + loaders + comms + reasons + words
        };
        let lists = |chunk: &Chunk| -> usize {
            let many = chunk.slots.iter().filter_map(|slot| match &slot.images {
                ImageList::Many(images) => Some(images.capacity() * size_of::<Image>()),
                _ => None,
            });
            many.sum()
        };
        let of = |chunk: &Chunk| {
            size_of::<Chunk>() + chunk.slots.capacity() * size_of::<Slot>() + strings(chunk) + lists(chunk)
        };
        let chunks: usize = self.chunks.iter().flatten().map(|chunk| of(chunk)).sum();
        chunks + self.chunks.capacity() * size_of::<Option<Box<Chunk>>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_as_small_as_promised() {
        assert!(size_of::<Slot>() <= 96);
    }

    #[test]
    fn rows_that_are_taken_out_free_their_chunks() {
        let mut rows = Rows::default();
        let new = New { addr: 1, born: 1, gone: 2, len: 3, length: 0, name: "n", kind: TextKind::Program };
        let ids: Vec<TextId> =
            (0..10 * ROWS).map(|_| rows.add(&new).unwrap_or(TextId(std::num::NonZeroU32::MAX))).collect();
        let full = rows.heap_bytes();
        for id in ids.iter().skip(1) {
            rows.take(*id);
            assert!(rows.get(*id).is_none());
        }
        assert_eq!((rows.len(), rows.ids().collect::<Vec<_>>()), (1, vec![ids[0]]));
        assert!(rows.heap_bytes() < full / 5, "only the first text's chunk is left");
        rows.take(ids[0]);
        rows.take(ids[0]);
        assert_eq!((rows.len(), rows.chunks.len(), rows.before), (0, 0, 10));
        let next = rows.add(&new);
        assert_eq!(next.map(TextId::index), Some(10 * ROWS));
    }
}
