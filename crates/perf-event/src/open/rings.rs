//! Mapping rings, all of one size, and sending the events of a place to them.

use std::collections::HashMap;
use std::io;
use std::os::fd::AsFd;

use super::{Note, OpenError, OpenErrorKind, Place};
use crate::ring::Ring;
use crate::spec::{EventClass, EventSpec};
use crate::sys::Kernel;

/// What shares a ring: the spec of a software event or nothing, the CPU, and the thread where there is no CPU.
type Key = (Option<usize>, i32, i32);

fn key(specs: &[EventSpec], place: &Place) -> Key {
    let own = specs[place.spec].class == EventClass::Software;
    let tid = if place.cpu < 0 { place.tid } else { -1 };
    (own.then_some(place.spec), place.cpu, tid)
}

/// Rings, for each place the index of its ring, and the data pages they got.
pub(super) type Mapped = (Vec<Ring>, Vec<usize>, usize);

/// Maps a ring for each key and redirects the other events of that key to it.
pub(super) fn map(
    kernel: &dyn Kernel,
    specs: &[EventSpec],
    places: &[Place],
    pages: usize,
    notes: &mut Vec<Note>,
) -> Result<Mapped, OpenError> {
    let mut owners: Vec<usize> = Vec::new();
    let mut ring_of = Vec::with_capacity(places.len());
    let mut rings_by_key: HashMap<Key, usize> = HashMap::new();
    for (index, place) in places.iter().enumerate() {
        let ring = *rings_by_key.entry(key(specs, place)).or_insert_with(|| {
            owners.push(index);
            owners.len() - 1
        });
        ring_of.push(ring);
    }
    let (rings, got) = map_all(kernel, specs, places, &owners, pages, notes)?;
    for (index, place) in places.iter().enumerate() {
        let owner = owners[ring_of[index]];
        if owner != index {
            let target = places[owner].fd.as_fd();
            let redirected = kernel.set_output(place.fd.as_fd(), Some(target));
            redirected.map_err(|cause| OpenError::other(&specs[place.spec], cause))?;
        }
    }
    Ok((rings, ring_of, got))
}

/// Maps all rings with as many pages as fit for all of them.
fn map_all(
    kernel: &dyn Kernel,
    specs: &[EventSpec],
    places: &[Place],
    owners: &[usize],
    asked: usize,
    notes: &mut Vec<Note>,
) -> Result<(Vec<Ring>, usize), OpenError> {
    let mut pages = asked.max(1);
    loop {
        let mapped: io::Result<Vec<Ring>> =
            owners.iter().map(|owner| Ring::map(kernel, &places[*owner].fd, pages)).collect();
        let cause = match mapped {
            Ok(rings) => {
                if pages < asked {
                    notes.push(shrunk(pages, asked));
                }
                return Ok((rings, pages));
            }
            Err(cause) => cause,
        };
        // EPERM is the limit of locked memory, ENOMEM a machine without room for so large a ring.
        let smaller_may_fit = matches!(cause.raw_os_error(), Some(libc::EPERM | libc::ENOMEM));
        if !smaller_may_fit || pages == 1 {
            let event = owners.first().map_or_else(String::new, |owner| specs[places[*owner].spec].name.clone());
            let kind = if smaller_may_fit { OpenErrorKind::NoRing } else { OpenErrorKind::Other };
            return Err(OpenError { event, kind, cause: Some(cause) });
        }
        pages = (pages / 2).next_power_of_two();
    }
}

fn shrunk(got: usize, asked: usize) -> Note {
    let kib = |pages: usize| pages * rustix::param::page_size() / 1024;
    Note(format!(
        "rings of {} KiB instead of {} KiB: locked memory is limited (kernel.perf_event_mlock_kb, ulimit -l)",
        kib(got),
        kib(asked)
    ))
}
