//! What can be had of programs as they are loaded: a reader of its own sideband, woken by the first byte.
//!
//! Between a program's load and its end lie microseconds to months. Woken at once, we read it by its id, which holds it as
//! long as the read takes, or, where it has lost its last user already, copy its text by address before the grace period
//! ends that its memory waits for.

use std::collections::HashSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, PoisonError};

use afterimage_perf_data::features::BpfBtf;
use afterimage_perf_data::record::{BpfEvent, Ksymbol, RawRecord, decode, kind};
use afterimage_perf_data::{Endian, Layout, Record};
use afterimage_perf_event::facts::Facts;
use afterimage_perf_event::open::{Opened, Options as OpenOptions};
use afterimage_perf_event::sideband;
use afterimage_perf_event::sys::{Kernel, Real, bpf};

use super::captured::{Captured, CapturedProgram, Pass, Stats};
use super::error::{CaptureError, CaptureErrorKind};
use super::reader::Reader;
use crate::{TextKind, Way};

/// The longest text that is copied by its address.
const LONGEST: u32 = 4 << 20;

/// The sideband of the capture and what is done about its records.
#[derive(Debug)]
pub(super) struct Loads {
    opened: Opened,
    actions: Actions,
}

#[derive(Debug)]
struct Actions {
    layout: Layout,
    /// Copies by address, where they are made.
    window: Option<Arc<Mutex<Reader>>>,
    by_id: bool,
    budget: Budget,
    /// Types that were read already.
    types: HashSet<u32>,
    stats: Stats,
}

/// How many programs are read by id in a second of the records' time.
#[derive(Debug)]
struct Budget {
    a_second: u32,
    second: u64,
    left: u32,
}

impl Budget {
    fn take(&mut self, time: u64) -> bool {
        let second = time / 1_000_000_000;
        if second != self.second {
            (self.second, self.left) = (second, self.a_second);
        }
        self.left.checked_sub(1).map(|left| self.left = left).is_some()
    }
}

impl Loads {
    /// Opens the events.
    pub(super) fn open(
        window: Option<Arc<Mutex<Reader>>>,
        by_id: bool,
        a_second: u32,
        pages: usize,
    ) -> Result<Loads, CaptureError> {
        let kernel: Arc<dyn Kernel> = Arc::new(Real);
        let opened = sideband::open_bpf_text(&kernel, &Facts::system(), OpenOptions { pages });
        let opened = opened
            .map_err(|error| CaptureError::new(CaptureErrorKind::System, "events that tell of programs", error))?;
        let attr = opened.specs.first().map(|spec| spec.attr.clone()).unwrap_or_default();
        let layout = Layout::new(&attr, Endian::NATIVE);
        let budget = Budget { a_second, second: 0, left: a_second };
        let actions = Actions { layout, window, by_id, budget, types: HashSet::new(), stats: Stats::default() };
        Ok(Loads { opened, actions })
    }

    /// Descriptors that are readable when there is something to do.
    pub(super) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.opened.rings.iter().map(|ring| ring.fd())
    }

    /// Takes every record that is there and does what it asks for.
    pub(super) fn drain(&mut self, into: &mut Pass) {
        let actions = &mut self.actions;
        for ring in &mut self.opened.rings {
            let until = ring.head();
            // One whose content makes no sense goes on behind the damage; that records were lost is all that can be said.
            if ring.drain(until, &mut |record| actions.take(record, into)).is_err() {
                actions.stats.records_lost += 1;
            }
        }
    }

    /// Adds what was done.
    pub(super) fn stats(&self, stats: &mut Stats) {
        let own = &self.actions.stats;
        stats.window_copied = own.window_copied;
        stats.window_failed = own.window_failed;
        stats.by_id = own.by_id;
        stats.by_id_gone = own.by_id_gone;
        stats.by_id_skipped = own.by_id_skipped;
        stats.records_lost = own.records_lost;
    }
}

impl Actions {
    fn take(&mut self, record: &[u8], into: &mut Pass) {
        let Ok(raw) = RawRecord::parse(record, 0, Endian::NATIVE) else { return };
        if !matches!(raw.header.kind, kind::KSYMBOL | kind::BPF_EVENT | kind::LOST) {
            return;
        }
        match decode(&raw, &self.layout) {
            Ok(Record::Ksymbol(symbol)) if !symbol.unregister() => self.copy(&symbol, into),
            Ok(Record::BpfEvent(event)) if self.by_id && event.kind == BpfEvent::LOAD => self.read(&event, into),
            Ok(Record::Lost(lost)) => self.stats.records_lost += lost.lost,
            _ => (),
        }
    }

    /// Copies a text by its address. What stands there now may be another's already.
    fn copy(&mut self, symbol: &Ksymbol<'_>, into: &mut Pass) {
        let Some(reader) = self.window.clone() else { return };
        let kind = TextKind::of(symbol.kind, symbol.name);
        // Others are written after their registration, and are longer or shorter than it says.
        if !kind.length_is_exact() || !kind.is_bpf() || symbol.len == 0 || symbol.len > LONGEST {
            return;
        }
        let mut bytes = vec![0; symbol.len as usize];
        let read = reader.lock().unwrap_or_else(PoisonError::into_inner).read(symbol.addr, &mut bytes);
        // What fills the place of a text that is gone can only tell that it is.
        let gone = bytes.iter().all(|byte| *byte == 0xcc) || bytes.iter().all(|byte| *byte == 0);
        let failed: Option<Box<str>> = match read {
            Err(error) => Some(error.to_string().into()),
            Ok(()) if gone => Some("it had been freed before it could be copied".into()),
            Ok(()) => None,
        };
        if failed.is_some() {
            self.stats.window_failed += 1;
            bytes.clear();
        } else {
            self.stats.window_copied += 1;
        }
        into.texts.push(Captured {
            time: symbol.id.time.unwrap_or(0),
            addr: symbol.addr,
            len: symbol.len,
            name: symbol.name.split(|byte| *byte == 0).next().unwrap_or_default().to_vec(),
            kind,
            way: Way::RcuWindow,
            bytes,
            failed,
            ..empty()
        });
    }

    /// Reads a program by its id, which keeps it from going meanwhile.
    fn read(&mut self, event: &BpfEvent, into: &mut Pass) {
        let time = event.id.time.unwrap_or(0);
        if !self.budget.take(time) {
            self.stats.by_id_skipped += 1;
            return;
        }
        let read = bpf::program(event.prog_id).and_then(|program| {
            let info = bpf::program_info(program.as_fd())?;
            let types = Some(info.btf_id()).filter(|id| *id != 0 && !self.types.contains(id));
            let types = types.and_then(|id| Some(BpfBtf { id, data: bpf::types(id).ok()? }));
            Ok((info, types))
        });
        let Ok((info, types)) = read else {
            self.stats.by_id_gone += 1;
            return;
        };
        self.stats.by_id += 1;
        self.types.extend(types.as_ref().map(|types| types.id));
        let program = CapturedProgram { time, info, types };
        functions(&program, event, &mut into.texts);
        into.programs.push(program);
    }
}

/// The program's functions, each with its part of the code.
fn functions(program: &CapturedProgram, event: &BpfEvent, into: &mut Vec<Captured>) {
    let info = &program.info;
    let lengths = info.jited_func_lens();
    let tags: Vec<[u8; 8]> = info.prog_tags().collect();
    let mut code = info.jited_insns();
    for (at, (addr, len)) in info.jited_ksyms().iter().zip(&lengths).enumerate() {
        let Some((bytes, rest)) = code.split_at_checked(*len as usize) else { return };
        code = rest;
        if addr == 0 || *len == 0 {
            continue;
        }
        into.push(Captured {
            time: program.time,
            addr,
            len: *len,
            // The main function goes by the tag of the whole program.
            tag: if at == 0 { Some(event.tag) } else { tags.get(at).copied() },
            own_tag: tags.get(at).copied(),
            id: Some(event.prog_id),
            function: Some(at as u32),
            kind: if at == 0 { TextKind::Program } else { TextKind::Subprogram },
            way: Way::ById,
            proven: true,
            bytes: bytes.to_vec(),
            group: event.prog_id.into(),
            functions: lengths.len() as u32,
            ..empty()
        });
    }
}

pub(super) fn empty() -> Captured {
    Captured {
        time: 0,
        addr: 0,
        len: 0,
        name: Vec::new(),
        tag: None,
        own_tag: None,
        id: None,
        function: None,
        kind: TextKind::Unknown,
        way: Way::RcuWindow,
        proven: false,
        bytes: Vec::new(),
        freed: false,
        came: false,
        failed: None,
        owner: 0,
        group: 0,
        functions: 0,
        program_type: 0,
        derived: false,
    }
}
