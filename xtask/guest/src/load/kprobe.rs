//! Probes in kernel functions, by perf events of the `kprobe` PMU. At a function's entry the kernel uses ftrace; inside
//! of a function it copies the probed instruction into a slot of a page "kprobe_insn_page" and, where it can replace the
//! probe's breakpoint by a jump, makes a second slot in a "kprobe_optinsn_page".

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;
use std::os::fd::OwnedFd;

use afterimage_perf_data::Attr;
use clap::ValueEnum;
use serde_json::json;

use crate::load::cli::Common;
use crate::load::error::{Error, Result};
use crate::load::event;
use crate::load::kallsyms;
use crate::load::log::{Log, Object};
use crate::load::pace::{Life, now};
use crate::load::places::{self, PLACES};

const KIND: &str = "kprobe";
const PMU: &str = "/sys/bus/event_source/devices/kprobe/type";
/// How far into a function we look for instructions.
const DEEPEST: u64 = 40;

/// Where in a function to probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Place {
    /// At entries and inside.
    Any,
    /// At the entry only.
    Entry,
    /// At the instructions behind the entry only.
    Inside,
}

/// Finds places to probe. Which offsets are instructions only the kernel knows; what it refuses is not tried again.
struct Finder {
    pmu: u32,
    /// Function (in [`PLACES`]) and offset, those still worth trying.
    left: Vec<(usize, u64)>,
    next: usize,
    refused: BTreeSet<i32>,
}

struct Probe {
    event: OwnedFd,
    function: usize,
    offset: u64,
    object: Object,
    calls: u64,
}

/// Sets probes and removes them again.
pub(crate) fn run(common: &Common, place: Place, log: &mut Log) -> Result<()> {
    let mut finder = Finder::new(place)?;
    if common.life == Life::Hot {
        return hot(common, &mut finder, log);
    }
    for n in common.pace() {
        let probe = finder.probe(n)?;
        common.life.pass();
        log.object(&probe.remove())?;
    }
    Ok(())
}

/// A few probes in functions that are called all the time.
fn hot(common: &Common, finder: &mut Finder, log: &mut Log) -> Result<()> {
    let mut probes = common.hot_numbers(10).map(|n| finder.probe(n)).collect::<Result<Vec<_>>>()?;
    let file = places::file().map_err(|e| Error::failed("open the own program", e))?;
    let end = common.hot_end();
    while now() < end && !probes.is_empty() {
        probes.iter_mut().for_each(|probe| probe.calls += PLACES[probe.function].visit(&file));
    }
    let pages = kallsyms::find(&|name| name == "kprobe_insn_page" || name == "kprobe_optinsn_page")?;
    let pages: Vec<_> = pages
        .into_iter()
        .map(|(name, address)| json!({ "name": name, "address": address.map(|address| format!("{address:#x}")) }))
        .collect();
    for probe in probes {
        log.object(&probe.remove().with("pages", pages.clone()))?;
    }
    Ok(())
}

impl Finder {
    fn new(place: Place) -> Result<Finder> {
        let text = fs::read_to_string(PMU).map_err(|e| {
            Error::unavailable_if(&[libc::ENOENT], format!("probes of kernel functions: read {PMU}"), e)
        })?;
        let pmu = text.trim().parse();
        let pmu = pmu.map_err(|_| Error::failed(format!("read {PMU}"), std::io::ErrorKind::InvalidData.into()))?;
        let offsets = match place {
            Place::Any => 0..DEEPEST,
            Place::Entry => 0..1,
            Place::Inside => 1..DEEPEST,
        };
        // By turns over the functions, so that even a few probes are in all of them.
        let left = offsets.flat_map(|offset| (0..PLACES.len()).map(move |function| (function, offset))).collect();
        Ok(Finder { pmu, left, next: 0, refused: BTreeSet::new() })
    }

    /// Sets a probe at the next place that the kernel accepts.
    fn probe(&mut self, n: u64) -> Result<Probe> {
        while !self.left.is_empty() {
            self.next %= self.left.len();
            let (function, offset) = self.left[self.next];
            let object = Object::new(KIND, n, now());
            match self.open(PLACES[function], offset) {
                Ok(event) => {
                    self.next += 1;
                    return Ok(Probe { event, function, offset, object, calls: 0 });
                }
                // No such function, not the start of an instruction, or one that may not be probed.
                Err(e) if [libc::ENOENT, libc::EILSEQ, libc::EINVAL].contains(&e.raw_os_error().unwrap_or(0)) => {
                    self.refused.extend(e.raw_os_error());
                    self.left.remove(self.next);
                }
                Err(e) => return Err(Error::unavailable_if(&[libc::EOPNOTSUPP], "set a probe", e)),
            }
        }
        let why = format!("the kernel refuses every place (errors {:?})", self.refused);
        Err(Error::unavailable("set a probe", why))
    }

    fn open(&self, place: places::Place, offset: u64) -> std::io::Result<OwnedFd> {
        let function = CString::new(place.function)?;
        // The kernel copies the name while it opens the event.
        let attr = Attr { kind: self.pmu, config1: function.as_ptr() as u64, config2: offset, ..Attr::default() };
        event::open(&attr)
    }
}

impl Probe {
    fn remove(self) -> Object {
        drop(self.event);
        let mut object = self.object;
        object.gone_ns = now();
        let function = PLACES[self.function].function;
        object.with("function", function).with("offset", self.offset).with("calls", self.calls)
    }
}
