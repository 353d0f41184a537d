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
//! Every start address keeps the list of what happened there, in time order. A look-up takes the closest start at or
//! below the address that is alive at the time, and answers only if the address is within that text's length: the
//! kernel packs texts without gaps between an image's true end and the next start, so a range that reaches past the
//! next living start (a trampoline's reported page) ends there.

use std::collections::{BTreeMap, HashMap};

use crate::text::{BpfProgram, Text, TextId, TextKind};

/// Programs registered by one task whose load record has not come yet; more are forgotten, oldest first.
/// A program has at most 256 functions.
const WAITING_FUNCTIONS: usize = 512;

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
}

/// Where an address lies in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextHit {
    /// The text.
    pub text: TextId,
    /// Bytes from its start.
    pub offset: u64,
}

/// What happened at one start address.
#[derive(Clone, Copy, Debug)]
struct Event {
    time: u64,
    what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Came(TextId),
    /// Carries a text if its registration was never seen.
    Went(Option<TextId>),
}

/// The kernel text that came and went during a recording.
///
/// Changes may come out of time order. A change costs O(log n) when it is the newest at its address. A look-up at or
/// after the newest change costs O(log n); one in the past also passes over the starts within the longest text's
/// length below the address that are not alive then.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    texts: Vec<Text>,
    places: BTreeMap<u64, Vec<Event>>,
    /// What is alive after the newest change.
    alive: BTreeMap<u64, TextId>,
    newest: u64,
    longest: u32,
    low: u64,
    high: u64,
    waiting: HashMap<u32, Vec<TextId>>,
    version: u64,
    ignored: u64,
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
        let Some(end) = change.addr.checked_add(u64::from(change.len)).filter(|_| change.len != 0) else {
            self.ignored += 1;
            return None;
        };
        self.version += 1;
        self.newest = self.newest.max(time);
        self.longest = self.longest.max(change.len);
        self.low = if self.high == 0 { change.addr } else { self.low.min(change.addr) };
        self.high = self.high.max(end);

        let mut events = self.places.remove(&change.addr).unwrap_or_default();
        let at = events.partition_point(|event| event.time <= time);
        let text = if change.unregister {
            self.went(time, change, &mut events, at)
        } else {
            Some(self.came(time, change, &mut events, at))
        };
        match events.last() {
            Some(Event { what: What::Came(text), .. }) => self.alive.insert(change.addr, *text),
            _ => self.alive.remove(&change.addr),
        };
        self.places.insert(change.addr, events);
        if text.is_none() {
            self.ignored += 1;
        }
        text
    }

    fn came(&mut self, time: u64, change: &KsymChange<'_>, events: &mut Vec<Event>, at: usize) -> TextId {
        let before = at.checked_sub(1).and_then(|i| events.get(i)).copied();
        let after = events.get(at).copied();
        // The scan of what was loaded already (time 0) and the record of the load itself may both tell of one text;
        // and an unregistration may have been read before its registration.
        let known = match (before, after) {
            (Some(Event { time: 0, what: What::Came(text) }), _) if self.is_same(text, change) => Some(text),
            (_, Some(Event { what: What::Came(text), .. })) if time == 0 && self.is_same(text, change) => Some(text),
            (_, Some(Event { what: What::Went(Some(text)), .. })) if self.is_same(text, change) => Some(text),
            _ => None,
        };
        let text = known.unwrap_or_else(|| self.add(change, time, None));
        if let (Some(known), true) = (self.texts.get_mut(text.index()), time != 0) {
            known.born = time;
        }
        events.insert(at, Event { time, what: What::Came(text) });
        self.end_lives(events, at);
        if let Some(Event { what: What::Went(orphan), .. }) = events.get_mut(at + 1) {
            if *orphan == Some(text) {
                *orphan = None;
            }
        }
        if change.ksym_type == crate::text::KSYMBOL_BPF {
            let waiting = self.waiting.entry(change.origin).or_default();
            if waiting.len() >= WAITING_FUNCTIONS {
                waiting.clear();
            }
            waiting.push(text);
        }
        text
    }

    fn went(&mut self, time: u64, change: &KsymChange<'_>, events: &mut Vec<Event>, at: usize) -> Option<TextId> {
        let before = at.checked_sub(1).and_then(|i| events.get(i)).copied();
        let (text, orphan) = match before {
            Some(Event { what: What::Came(text), .. }) => (Some(text), None),
            Some(Event { what: What::Went(_), .. }) => (None, None),
            None => {
                let text = self.add(change, 0, Some(time));
                (Some(text), Some(text))
            }
        };
        events.insert(at, Event { time, what: What::Went(orphan) });
        self.end_lives(events, at);
        text
    }

    /// Sets the end of the lives that the new event at `at` touches: the one before it, and its own.
    fn end_lives(&mut self, events: &[Event], at: usize) {
        for i in at.saturating_sub(1)..=at {
            let Some(Event { time, what: What::Came(text) }) = events.get(i) else { continue };
            // Only what the scan told (time 0) can be told a second time, by the record of the load.
            let last = match time {
                0 => events.iter().rposition(|event| event.what == What::Came(*text)).unwrap_or(i),
                _ => i,
            };
            let gone = events.get(last + 1).map(|event| event.time);
            if let Some(text) = self.texts.get_mut(text.index()) {
                text.gone = gone;
            }
        }
    }

    fn is_same(&self, text: TextId, change: &KsymChange<'_>) -> bool {
        self.texts
            .get(text.index())
            .is_some_and(|text| text.len == change.len && text.name.as_bytes() == until_nul(change.name))
    }

    fn add(&mut self, change: &KsymChange<'_>, born: u64, gone: Option<u64>) -> TextId {
        let name = until_nul(change.name);
        // A file is limited to fewer records than this, each takes 32 bytes or more.
        let id = TextId(u32::try_from(self.texts.len()).unwrap_or(u32::MAX));
        self.texts.push(Text {
            name: String::from_utf8_lossy(name).into(),
            kind: TextKind::of(change.ksym_type, name),
            addr: change.addr,
            len: change.len,
            born,
            gone,
            program: None,
        });
        id
    }

    /// Takes a `PERF_RECORD_BPF_EVENT` of type load into account: the functions that `origin` registered since its
    /// last load, from the one with this tag on, belong to the program.
    #[doc(alias = "PERF_RECORD_BPF_EVENT")]
    pub fn program_loaded(&mut self, origin: u32, program: BpfProgram) {
        let waiting = self.waiting.remove(&origin).unwrap_or_default();
        let first = format!("bpf_prog_{:016x}", u64::from_be_bytes(program.tag));
        let main = waiting.iter().rposition(|id| self.text(*id).is_some_and(|text| text.name.starts_with(&first)));
        for id in waiting.iter().skip(main.unwrap_or(waiting.len())) {
            if let Some(text) = self.texts.get_mut(id.index()) {
                text.program = Some(program);
            }
        }
    }

    /// The text that covered `addr` at `time`.
    pub fn lookup(&self, addr: u64, time: u64) -> Option<TextHit> {
        if addr < self.low || addr >= self.high {
            return None;
        }
        if time >= self.newest {
            return self.lookup_now(addr);
        }
        for (start, events) in self.places.range(..=addr).rev() {
            let offset = addr - start;
            if offset >= u64::from(self.longest) {
                return None;
            }
            if let Some(text) = alive_at(events, time) {
                return self.within(text, offset);
            }
        }
        None
    }

    /// The text that covers `addr` after all changes so far.
    pub fn lookup_now(&self, addr: u64) -> Option<TextHit> {
        let (start, text) = self.alive.range(..=addr).next_back()?;
        self.within(*text, addr - start)
    }

    fn within(&self, text: TextId, offset: u64) -> Option<TextHit> {
        self.text(text).filter(|known| offset < u64::from(known.len)).map(|_| TextHit { text, offset })
    }

    /// A text by its number.
    pub fn text(&self, id: TextId) -> Option<&Text> {
        self.texts.get(id.index())
    }

    /// All texts in the order in which they became known.
    pub fn texts(&self) -> impl ExactSizeIterator<Item = (TextId, &Text)> {
        self.texts.iter().enumerate().map(|(i, text)| (TextId(u32::try_from(i).unwrap_or(u32::MAX)), text))
    }

    /// Whether a text of the timeline may ever have covered `addr`: a cheap test that spares look-ups.
    pub fn may_cover(&self, addr: u64) -> bool {
        self.may_overlap(addr, addr)
    }

    /// Whether a text of the timeline may ever have covered an address from `low` to `high`, both included.
    pub fn may_overlap(&self, low: u64, high: u64) -> bool {
        high >= self.low && low < self.high
    }

    /// Rises with every change, so that what was looked up can be kept until then.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Changes that were of no use: registrations without a length, unregistrations of what was gone already.
    pub fn ignored(&self) -> u64 {
        self.ignored
    }
}

fn alive_at(events: &[Event], time: u64) -> Option<TextId> {
    let next = events.partition_point(|event| event.time <= time);
    match next.checked_sub(1).and_then(|last| events.get(last)) {
        Some(Event { what: What::Came(text), .. }) => Some(*text),
        Some(Event { what: What::Went(_), .. }) => None,
        None => match events.first() {
            Some(Event { what: What::Went(text), .. }) => *text,
            _ => None,
        },
    }
}

fn until_nul(name: &[u8]) -> &[u8] {
    name.split(|byte| *byte == 0).next().unwrap_or_default()
}
