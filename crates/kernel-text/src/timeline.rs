//! Which text was at an address at a time.
//!
//! ```text
//!   address ▲
//!           │      ┌─────────── prog B ───────┐        (born, gone)
//!     start ┼──────┤                          ├──┬── prog C ──────────▶ still there
//!           │  ┌── trampoline (4096 reported) ────────────┐
//!     start ┼──┘                                          └───
//!           └──┴───┴──────────────────────────┴──┴────────┴──────────▶ time
//! ```
//!
//! Every start address keeps the lives of the texts that began there, in time order. A look-up takes the closest start
//! at or below the address that was alive at the time, and answers only if the address is within that text's length:
//! the kernel packs texts without gaps between an image's true end and the next start, so a range that reaches past the
//! next living start (a trampoline's reported page) ends there.
//!
//! What is told of one start gives the same lives in whatever order it comes: an end that comes before its beginning
//! makes a text whose beginning is not known, and the beginning finds it.

use afterimage_perf_data::ImageId;
use afterimage_perf_data::record::Ksymbol;

use crate::change::Coming;
use crate::loads::{Loaded, Loads};
use crate::poke::Pokes;
use crate::rows::{NEVER, Rows};
use crate::starts::Starts;
use crate::text::{BpfProgram, Image, KSYMBOL_BPF, Loader, Text, TextId, TextKind};

/// A text that came or went: the content of a `PERF_RECORD_KSYMBOL`.
#[doc(alias = "PERF_RECORD_KSYMBOL")]
#[derive(Clone, Copy, Debug)]
pub struct KsymChange<'a> {
    /// Kernel address of the first byte.
    pub addr: u64,
    /// Reported length in bytes.
    pub len: u32,
    /// The kernel's symbol; ends at the first NUL.
    pub name: &'a [u8],
    /// `ksym_type` of the record.
    pub ksym_type: u16,
    /// Whether it went (`PERF_RECORD_KSYMBOL_FLAGS_UNREGISTER`).
    pub unregister: bool,
    /// Thread that the record came from, 0 if unknown. It ties a program's functions to its load record.
    pub origin: u32,
    /// Who loaded it: the task that a registration came from, where it is known.
    pub loader: Option<Loader<'a>>,
}

impl<'a> KsymChange<'a> {
    /// What a record says; `loader` is who loads the text, where it is known.
    pub fn of(symbol: &Ksymbol<'a>, loader: Option<Loader<'a>>) -> KsymChange<'a> {
        KsymChange {
            addr: symbol.addr,
            len: symbol.len,
            name: symbol.name,
            ksym_type: symbol.kind,
            unregister: symbol.unregister(),
            origin: symbol.id.tid.unwrap_or(0),
            loader,
        }
    }
}

/// A text that was seen otherwise than by a record: when it was freed or loaded, or by reading what is there.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// Kernel address of the first byte.
    pub addr: u64,
    /// True length in bytes, or 0 where only the start is known.
    pub len: u32,
    /// The kernel's symbol, up to the first NUL; empty where it has none or none is known.
    pub name: &'a [u8],
    /// What kind of code it is.
    pub kind: TextKind,
    /// The BPF program's tag.
    pub tag: Option<[u8; 8]>,
    /// The BPF program's id.
    pub id: Option<u32>,
    /// Which of the program's functions it is, 0 the main one.
    pub function: Option<u32>,
    /// Who loaded it.
    pub loader: Option<Loader<'a>>,
}

/// Where an address lies in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextHit {
    /// The text.
    pub text: TextId,
    /// Bytes from its start.
    pub offset: u64,
}

/// The kernel text that came and went during a recording.
///
/// Changes may come out of time order, and look-ups may be of any time. A change and a look-up cost O(log n), plus what
/// is walked: starts below the address where nothing was alive at the time, at most 32 one by one and the rest in
/// groups, up to where nothing reaches the address any more.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    pub(crate) rows: Rows,
    pub(crate) starts: Starts,
    pub(crate) pokes: Pokes,
    /// Times at which records were lost, and at which all there was was read anew; both in order.
    pub(crate) losses: Vec<u64>,
    pub(crate) scans: Vec<u64>,
    loads: Loads,
    /// Texts of which only the end was told.
    pub(crate) orphans: usize,
    pub(crate) version: u64,
    pub(crate) ignored: u64,
    /// For those who follow the changes: texts that were altered, and texts that ended. Empty unless followed.
    pub(crate) followed: bool,
    pub(crate) changed: Vec<TextId>,
    pub(crate) ended: Vec<TextId>,
}

impl Timeline {
    /// A timeline in which nothing has happened yet.
    pub fn new() -> Timeline {
        Timeline::default()
    }

    /// Takes one change into account, `time` in nanoseconds of the recording's clock (0: before the recording).
    /// Answers the text that came or went, if the change was of use: a registration without a length (a program that
    /// is only interpreted) and a second unregistration are not.
    pub fn apply(&mut self, time: u64, change: &KsymChange<'_>) -> Option<TextId> {
        if change.len == 0 || change.addr.checked_add(u64::from(change.len)).is_none() {
            self.ignored += 1;
            return None;
        }
        let name = until_nul(change.name);
        let kind = TextKind::of(change.ksym_type, name);
        let name = String::from_utf8_lossy(name);
        let coming = Coming { addr: change.addr, len: change.len, length: 0, name: &name, kind };
        if change.unregister {
            let text = self.went(time, &coming);
            self.ignored += u64::from(text.is_none());
            return text;
        }
        let text = self.comes(time, &coming)?;
        if let Some(loader) = change.loader {
            self.set_loader(text, loader);
        }
        if change.ksym_type == KSYMBOL_BPF {
            if let Some(loaded) = self.loads.function(time, change.origin, text) {
                self.belong(&loaded);
            }
        }
        Some(text)
    }

    /// Takes a `PERF_RECORD_BPF_EVENT` of type load into account, `time` as in [`Timeline::apply`]: the programs' functions
    /// that `origin` registered up to then, and since its last load, belong to the program, from the one with its tag on. A
    /// program with subprograms has a tag of its own that none of its functions has in its name: then all of them do, for
    /// the kernel tells of them in one go. Functions that are told of a little later than the load find it by their times.
    #[doc(alias = "PERF_RECORD_BPF_EVENT")]
    pub fn program_loaded(&mut self, time: u64, origin: u32, program: BpfProgram) {
        for loaded in self.loads.load(time, origin, program) {
            self.belong(&loaded);
        }
    }

    /// Tells functions which program they are of.
    fn belong(&mut self, loaded: &Loaded) {
        let Loaded { program, functions } = loaded;
        let tags = functions.iter().filter_map(|id| Some((*id, tag_in(self.rows.name(*id)?)?)));
        let tags: Vec<(TextId, [u8; 8])> = tags.collect();
        let main = tags.iter().rposition(|(_, tag)| *tag == program.tag);
        for (function, (id, tag)) in tags.iter().skip(main.unwrap_or(0)).enumerate() {
            let Some(row) = self.rows.get_mut(*id) else { continue };
            row.set_program(BpfProgram { id: program.id, tag: if function == 0 { program.tag } else { *tag } });
            row.set_function(function as u32);
            match (function, row.kind) {
                (0, TextKind::Subprogram) => row.kind = TextKind::Program,
                (1.., TextKind::Program) => row.kind = TextKind::Subprogram,
                _ => (),
            }
            self.mark(*id);
        }
    }

    /// Takes into account that a text was seen being freed: it ends now, unless a record has ended it already, and its
    /// true length is known from then on. A text that no record told of (a classic BPF program, a module) becomes known
    /// by it. `None` for an address range that cannot be.
    pub fn freed(&mut self, time: u64, seen: &Seen<'_>) -> Option<TextId> {
        let name = String::from_utf8_lossy(until_nul(seen.name));
        let coming = self.range_of(seen, &name)?;
        let text = self.is_freed(time, seen, &coming)?;
        self.details(text, seen);
        // Its true length may be news.
        self.bound_others(seen.addr, text);
        Some(text)
    }

    /// Takes into account that a text was seen coming by another way than a KSYMBOL record, such as the tracepoint of a
    /// module's load. `None` for an address range that cannot be.
    pub fn came(&mut self, time: u64, seen: &Seen<'_>) -> Option<TextId> {
        let name = String::from_utf8_lossy(until_nul(seen.name));
        let coming = self.range_of(seen, &name)?;
        let text = self.comes(time, &coming)?;
        self.details(text, seen);
        self.covers(seen.addr, text);
        Some(text)
    }

    /// Records were lost at this time: what lived then and is not told to have ended later is uncertain until
    /// [`Timeline::rescan`].
    pub fn lost(&mut self, time: u64) {
        let at = self.losses.partition_point(|loss| *loss <= time);
        if at.checked_sub(1).and_then(|before| self.losses.get(before)) != Some(&time) {
            self.losses.insert(at, time);
            self.version += 1;
            // The load that these belong to may have been lost.
            self.loads.clear();
        }
    }

    /// Adds an image to a text.
    pub fn image(&mut self, text: TextId, image: Image) {
        self.rows.add_image(text, image);
        self.mark(text);
    }

    /// Takes back that an image is a proven copy of a text: it turned out to be more than the text.
    pub fn unproven(&mut self, text: TextId, image: ImageId) {
        self.rows.unprove(text, image);
        self.mark(text);
    }

    /// Says why a text has no image.
    pub fn missing(&mut self, text: TextId, reason: &str) {
        self.rows.set_missing(text, reason);
        self.mark(text);
    }

    /// Marks a text as uncertain, such as one whose length was derived from its bytes.
    pub fn doubt(&mut self, text: TextId) {
        self.set(text, crate::rows::flag::UNCERTAIN);
    }

    /// Takes a `PERF_RECORD_TEXT_POKE` into account: from `time` on, `new` stands where `old` stood.
    #[doc(alias = "PERF_RECORD_TEXT_POKE")]
    pub fn poke(&mut self, time: u64, addr: u64, old: &[u8], new: &[u8]) {
        self.pokes.add(time, addr, old, new);
    }

    /// The text that covered `addr` at `time`.
    #[inline]
    pub fn lookup(&self, addr: u64, time: u64) -> Option<TextHit> {
        let (start, life) = self.starts.closest(addr, time)?;
        let offset = addr - start;
        (offset < u64::from(life.len)).then_some(TextHit { text: life.text, offset })
    }

    /// The text that covers `addr` after all changes so far.
    pub fn lookup_now(&self, addr: u64) -> Option<TextHit> {
        self.lookup(addr, NEVER)
    }

    /// Where the next text begins above `addr` and below `end` that went after `since`, or did not go: what stood at `addr`
    /// since then had ended there.
    pub fn next_start(&self, addr: u64, end: u64, since: u64) -> Option<u64> {
        self.starts.next(addr, end, |lives| lives.as_slice().iter().any(|life| life.gone > since))
    }

    /// A text by its number; `None` once it was retired.
    pub fn text(&self, id: TextId) -> Option<Text<'_>> {
        let text = self.rows.text(id)?;
        Some(Text { uncertain: text.uncertain || self.is_in_doubt(id), ..text })
    }

    /// All texts in the order in which they became known.
    pub fn texts(&self) -> impl Iterator<Item = (TextId, Text<'_>)> {
        self.rows.ids().filter_map(|id| Some((id, self.text(id)?)))
    }

    /// How many texts there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are no texts.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a text of the timeline may ever have covered `addr`: a cheap test that spares look-ups.
    pub fn may_cover(&self, addr: u64) -> bool {
        self.may_overlap(addr, addr)
    }

    /// Whether a text of the timeline may ever have covered an address from `low` to `high`, both included.
    pub fn may_overlap(&self, low: u64, high: u64) -> bool {
        self.starts.bounds().is_some_and(|(first, end)| high >= first && low < end)
    }

    /// Rises with every change, so that what was looked up can be kept until then.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Changes that were of no use: registrations without a length, unregistrations of what was gone already.
    pub fn ignored(&self) -> u64 {
        self.ignored
    }

    /// Bytes on the heap for texts and where they are, without those of images and of pokes.
    pub fn heap_bytes(&self) -> usize {
        self.rows.heap_bytes() + self.starts.heap_bytes()
    }
}

/// The tag in the symbol `bpf_prog_<tag>_<name>` of a program's function.
fn tag_in(name: &str) -> Option<[u8; 8]> {
    let tag = name.strip_prefix("bpf_prog_")?.get(..16)?;
    u64::from_str_radix(tag, 16).ok().map(u64::to_be_bytes)
}

pub(crate) fn until_nul(name: &[u8]) -> &[u8] {
    name.split(|byte| *byte == 0).next().unwrap_or_default()
}
