//! Texts to and from a recording.

use afterimage_perf_data::texts::Loader as LoaderDesc;
use afterimage_perf_data::{ImageUse, TextDesc};

use crate::lives::Life;
use crate::rows::{NEVER, New, flag};
use crate::text::{BpfProgram, Image, Loader, TextId, TextKind, Way};
use crate::timeline::Timeline;

impl Timeline {
    /// All texts as a recording keeps them; the number of each is [`TextId::index`].
    pub fn describe(&self) -> Vec<TextDesc> {
        self.rows.ids().filter_map(|id| self.desc(id)).collect()
    }

    /// One text as a recording keeps it.
    pub fn desc(&self, id: TextId) -> Option<TextDesc> {
        let text = self.text(id)?;
        let program = text.program;
        Some(TextDesc {
            number: id.index() as u64,
            kind: text.kind.key().to_owned(),
            name: (!text.name.is_empty()).then(|| text.name.to_owned()),
            id: program.map(|program| program.id).filter(|id| *id != 0),
            tag: program
                .filter(|program| program.tag != [0; 8])
                .map(|program| format!("{:016x}", u64::from_be_bytes(program.tag))),
            function: text.function,
            address: text.addr,
            length: text.length,
            length_reported: self.rows.reported(id),
            born_ns: (text.born != 0).then_some(text.born),
            gone_ns: text.gone,
            loader: text.loader.map(|loader| LoaderDesc { pid: loader.pid, comm: loader.comm.to_owned() }),
            images: text.images.iter().map(image_use).collect(),
            reason: text.missing.map(str::to_owned),
            uncertain: text.uncertain,
        })
    }

    /// Takes in the texts of a recording, before anything else: the records that follow find them again. What makes no
    /// sense (a range that cannot be, lives that overlap) is left out or cut. Answers how many were taken in; none if
    /// the timeline is not empty.
    pub fn adopt(&mut self, texts: &[TextDesc]) -> usize {
        if !self.is_empty() {
            return 0;
        }
        let mut ids = Vec::with_capacity(texts.len());
        let mut lives = Vec::with_capacity(texts.len());
        for text in texts {
            let covers = text.length.or(text.length_reported).unwrap_or(0);
            let whole = covers != 0 && text.address.checked_add(covers.into()).is_some();
            let Some(id) = whole.then(|| self.adopt_one(text)).flatten() else { continue };
            ids.push(id);
            lives.push((text.address, text.gone_ns.unwrap_or(NEVER), text.born_ns.unwrap_or(0), id, covers));
        }
        // The lives at one start follow each other, so the order of their ends is theirs.
        lives.sort_unstable();
        let mut last: Option<(u64, u64, usize)> = None;
        for (addr, gone, born, id, len) in lives {
            let (ended, place) = match last {
                Some((start, ended, place)) if start == addr => (ended, place + 1),
                _ => (0, 0),
            };
            let born = born.max(ended).min(gone);
            self.starts.insert(addr, Life { born, gone, text: id, len }, place);
            last = Some((addr, gone, place));
        }
        let orphans: Vec<TextId> = ids.iter().copied().filter(|id| self.is_orphan(*id)).collect();
        for id in &orphans {
            let Some(row) = self.rows.get_mut(*id) else { continue };
            row.flags |= flag::ORPHAN;
        }
        self.orphans = orphans.len();
        for id in orphans {
            let Some(addr) = self.rows.get(id).map(|row| row.addr) else { continue };
            self.bound(addr, id);
        }
        self.version += 1;
        ids.len()
    }

    /// Whether only the end of an adopted text was seen, at its free.
    fn is_orphan(&self, id: TextId) -> bool {
        self.rows.get(id).is_some_and(|row| row.born == 0 && row.gone != NEVER && row.len == 0)
    }

    fn adopt_one(&mut self, text: &TextDesc) -> Option<TextId> {
        let new = New {
            addr: text.address,
            born: text.born_ns.unwrap_or(0),
            gone: text.gone_ns.unwrap_or(NEVER),
            len: text.length_reported.unwrap_or(0),
            length: text.length.unwrap_or(0),
            name: text.name.as_deref().unwrap_or_default(),
            kind: TextKind::from_key(&text.kind).unwrap_or(TextKind::Unknown),
        };
        let id = self.rows.add(&new)?;
        let row = self.rows.get_mut(id)?;
        row.flags |= if text.uncertain { flag::UNCERTAIN } else { 0 };
        row.flags |= if text.gone_ns.is_some() { flag::TOLD } else { 0 };
        let tag = text.tag.as_deref().and_then(|tag| u64::from_str_radix(tag, 16).ok());
        if text.id.is_some() || tag.is_some() {
            row.set_program(BpfProgram { id: text.id.unwrap_or(0), tag: tag.unwrap_or(0).to_be_bytes() });
        }
        if let Some(function) = text.function {
            row.set_function(function);
        }
        if let Some(loader) = &text.loader {
            self.rows.set_loader(id, Loader { pid: loader.pid, comm: &loader.comm });
        }
        if let Some(reason) = &text.reason {
            self.rows.set_missing(id, reason);
        }
        text.images.iter().filter_map(image_of).for_each(|image| self.rows.add_image(id, image));
        Some(id)
    }
}

fn image_use(image: &Image) -> ImageUse {
    ImageUse { image: image.id, at_ns: image.at, way: image.way.key().to_owned(), proven: image.proven }
}

/// An image that was read in a way that is not known here is left out.
fn image_of(image: &ImageUse) -> Option<Image> {
    Some(Image { id: image.image, at: image.at_ns, way: Way::from_key(&image.way)?, proven: image.proven })
}
