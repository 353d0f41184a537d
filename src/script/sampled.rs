//! Fields that few samples have, as perf prints them; those that perf does not print, as words of our own.

use std::io::Write as _;

use afterimage_perf_data::record::{ReadValues, Regs, Sample, StackUser};
use afterimage_perf_data::{DataSrc, EventDesc, Registers};
use afterimage_profile::{State, TimedSample};

use super::digits::{decimal, hex, pad};
use super::fields::{Field, Fields};
use crate::terminal::clean;

/// The fields here that stand before the address.
const BEFORE: Fields = Fields::of(&[Field::DataSrc, Field::Weight, Field::InsLat, Field::RetireLat, Field::Cgroup]);
/// Those behind it.
const BEHIND: Fields = Fields::of(&[
    Field::Iregs,
    Field::Uregs,
    Field::BrStack,
    Field::BrStackSym,
    Field::PhysAddr,
    Field::DataPageSize,
    Field::CodePageSize,
    Field::Read,
    Field::UserStack,
    Field::Aux,
    Field::Transaction,
    Field::Id,
    Field::StreamId,
]);

/// Whether a sample has to be decoded for the fields here.
pub(super) fn takes_decoding(fields: Fields) -> bool {
    fields.any(BEFORE) || fields.any(BEHIND)
}

/// The names of an event's registers, in the order of their values.
#[derive(Clone, Debug, Default)]
pub(super) struct RegisterNames {
    interrupted: Vec<String>,
    user: Vec<String>,
}

impl RegisterNames {
    /// `machine`: as the recording names it; perf takes a recording that does not for one of this machine.
    pub(super) fn of(event: &EventDesc, machine: Option<&str>) -> Self {
        let registers = Registers::of(machine.unwrap_or(std::env::consts::ARCH));
        let names = |mask| registers.of_mask(mask).map(|name| name.into_owned()).collect();
        RegisterNames { interrupted: names(event.attr.sample_regs_intr), user: names(event.attr.sample_regs_user) }
    }

    /// Names and values of the registers at the interrupt.
    pub(super) fn interrupted<'n>(&'n self, regs: &Regs<'n>) -> impl Iterator<Item = (&'n str, u64)> {
        self.interrupted.iter().map(String::as_str).zip(regs.values.iter())
    }

    /// Names and values of the registers that user code had.
    pub(super) fn user<'n>(&'n self, regs: &Regs<'n>) -> impl Iterator<Item = (&'n str, u64)> {
        self.user.iter().map(String::as_str).zip(regs.values.iter())
    }
}

/// The width of the widest data source so far: perf pads the others to it.
#[derive(Debug, Default)]
pub(super) struct Widest(usize);

/// Appends the fields before the address.
pub(super) fn before(
    out: &mut Vec<u8>,
    all: &Sample<'_>,
    state: &State,
    sample: &TimedSample<'_>,
    fields: Fields,
    widest: &mut Widest,
) {
    if !fields.any(BEFORE) {
        return;
    }
    if let (true, Some(source)) = (fields.has(Field::DataSrc), all.data_src) {
        let from = out.len();
        hex(out, source, 16);
        // Writing to a Vec does not fail.
        let _ = write!(out, " {}", DataSrc(source));
        let written = out.len() - from;
        widest.0 = widest.0.max(written);
        pad(out, b' ', widest.0 - written);
    }
    if let (true, Some(weight)) = (fields.has(Field::Weight), weight(all, sample)) {
        decimal(out, weight, 16);
    }
    let (instruction, retire) = latencies(all);
    if fields.has(Field::InsLat) {
        decimal(out, instruction, 16);
    }
    if fields.has(Field::RetireLat) {
        decimal(out, retire, 16);
    }
    if let (true, Some(id)) = (fields.has(Field::Cgroup), all.cgroup) {
        out.push(b' ');
        out.extend_from_slice(state.cgroup(id).map_or("unknown".into(), |path| clean(path)).as_bytes());
    }
}

/// The weight: the whole word, or its lower half where it holds three.
pub(super) fn weight(all: &Sample<'_>, sample: &TimedSample<'_>) -> Option<u64> {
    all.weight.map(|word| if sample.has_weight_struct() { word & 0xffff_ffff } else { word })
}

/// Cycles until the instruction, and the one before it, were done (`union perf_sample_weight`).
pub(super) fn latencies(all: &Sample<'_>) -> (u64, u64) {
    let word = all.weight.unwrap_or(0);
    (word >> 32 & 0xffff, word >> 48)
}

/// Appends registers.
pub(super) fn registers(out: &mut Vec<u8>, all: &Sample<'_>, names: &RegisterNames, fields: Fields) {
    if let (true, Some(regs)) = (fields.has(Field::Iregs), &all.regs_intr) {
        register(out, regs, names.interrupted(regs));
    }
    if let (true, Some(regs)) = (fields.has(Field::Uregs), &all.regs_user) {
        register(out, regs, names.user(regs));
    }
}

fn register<'n>(out: &mut Vec<u8>, regs: &Regs<'_>, named: impl Iterator<Item = (&'n str, u64)>) {
    if regs.abi == 0 {
        return;
    }
    let _ = write!(out, " ABI:{} ", regs.abi);
    for (name, value) in named {
        let _ = write!(out, "{name:>5}:{value:#x} ");
    }
}

/// Appends what stands at the end of the line.
pub(super) fn behind(out: &mut Vec<u8>, all: &Sample<'_>, fields: Fields) {
    if !fields.any(BEHIND) {
        return;
    }
    if let (true, Some(address)) = (fields.has(Field::PhysAddr), all.phys_addr) {
        hex(out, address, 16);
    }
    for (field, size) in [(Field::DataPageSize, all.data_page_size), (Field::CodePageSize, all.code_page_size)] {
        if let (true, Some(size)) = (fields.has(field), size) {
            page_size(out, size);
        }
    }
    if let (true, Some(values)) = (fields.has(Field::Read), &all.read) {
        read(out, values);
    }
    if let (true, Some(StackUser { bytes, dyn_size })) = (fields.has(Field::UserStack), &all.stack_user) {
        let _ = write!(out, " ustack:{dyn_size}/{}", bytes.len());
    }
    if let (true, Some(aux)) = (fields.has(Field::Aux), all.aux) {
        let _ = write!(out, " aux:{}", aux.len());
    }
    if let (true, Some(flags)) = (fields.has(Field::Transaction), all.transaction) {
        let _ = write!(out, " transaction:{flags:#x}");
    }
    if let (true, Some(id)) = (fields.has(Field::Id), all.identifier.or(all.id)) {
        let _ = write!(out, " id:{id}");
    }
    if let (true, Some(id)) = (fields.has(Field::StreamId), all.stream_id) {
        let _ = write!(out, " stream_id:{id}");
    }
}

/// A size in the largest unit of which it is more than one.
fn page_size(out: &mut Vec<u8>, size: u64) {
    let (mut number, mut unit) = (size, 0);
    while number / 1024 > 1 && unit < 3 {
        number /= 1024;
        unit += 1;
    }
    let _ = match size {
        0 => write!(out, " N/A"),
        _ => write!(out, " {number}{}", ["B", "K", "M", "G"][unit]),
    };
}

/// Counter values: ` read:VALUE`, or ` read:ID=VALUE,…` where they have ids; then for how long they counted, ns.
fn read(out: &mut Vec<u8>, values: &ReadValues<'_>) {
    out.extend_from_slice(b" read:");
    for (nth, one) in values.iter().enumerate() {
        if nth != 0 {
            out.push(b',');
        }
        if let Some(id) = one.id {
            let _ = write!(out, "{id}=");
        }
        let _ = write!(out, "{}", one.value);
        if let Some(lost) = one.lost.filter(|lost| *lost != 0) {
            let _ = write!(out, "(lost:{lost})");
        }
    }
    if let Some(enabled) = values.enabled() {
        let _ = write!(out, " enabled:{enabled}");
    }
    if let Some(running) = values.running() {
        let _ = write!(out, " running:{running}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_sizes_are_written_as_perf_does() {
        for (size, text) in [
            (0, " N/A"),
            (512, " 512B"),
            (1024, " 1024B"),
            (1536, " 1536B"),
            (3000, " 2K"),
            (4096, " 4K"),
            (2 << 20, " 2M"),
            (1 << 30, " 1024M"),
            (1 << 40, " 1024G"),
            (5 << 60, " 5368709120G"),
        ] {
            let mut out = Vec::new();
            page_size(&mut out, size);
            assert_eq!(String::from_utf8(out).unwrap(), text);
        }
    }
}
