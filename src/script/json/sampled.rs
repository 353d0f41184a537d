//! The fields that not every sample has: each is there where the sample has it.

use afterimage_perf_data::DataSrc;
use afterimage_perf_data::record::{BranchStack, ReadValues, Regs, Sample};
use afterimage_profile::{State, TimedSample};

use super::object::{Open, display};
use crate::script::sampled::{RegisterNames, latencies, weight};

/// Appends them, but for branches and raw data.
pub(super) fn write(
    object: &mut Open<'_>,
    all: &Sample<'_>,
    state: &State,
    sample: &TimedSample<'_>,
    names: &RegisterNames,
) {
    for (key, number) in
        [("id", all.identifier.or(all.id)), ("stream_id", all.stream_id), ("weight", weight(all, sample))]
    {
        if number.is_some() {
            object.number(key, number);
        }
    }
    if sample.has_weight_struct() {
        let (instruction, retire) = latencies(all);
        object.number("ins_lat", instruction);
        object.number("retire_lat", retire);
    }
    if let Some(source) = all.data_src {
        data_src(object, source);
    }
    for (key, word) in [("transaction", all.transaction), ("phys_addr", all.phys_addr)] {
        if let Some(word) = word {
            object.address(key, word);
        }
    }
    if let Some(id) = all.cgroup {
        object.number("cgroup", id);
        if let Some(path) = state.cgroup(id) {
            object.text("cgroup_path", path);
        }
    }
    for (key, size) in [("data_page_size", all.data_page_size), ("code_page_size", all.code_page_size)] {
        if size.is_some() {
            object.number(key, size);
        }
    }
    if let Some(values) = &all.read {
        read(object, values);
    }
    if let Some(regs) = &all.regs_intr {
        registers(object, "iregs", regs, names.interrupted(regs));
    }
    if let Some(regs) = &all.regs_user {
        registers(object, "uregs", regs, names.user(regs));
    }
    if let Some(stack) = &all.stack_user {
        object.number("ustack_bytes", stack.dyn_size.min(stack.bytes.len() as u64));
    }
    if let Some(aux) = all.aux {
        object.number("aux_bytes", aux.len() as u64);
    }
}

fn data_src(object: &mut Open<'_>, word: u64) {
    let source = DataSrc(word);
    let mut parts = Open::object(object.key("data_src"));
    parts.address("value", word);
    parts.plain("operation", source.operation());
    parts.plain("level", source.level());
    parts.plain("snoop", source.snoop());
    parts.plain("translation", source.translation());
    parts.plain("locked", source.locked());
    parts.plain("blocked", source.blocked().trim_start());
    parts.close();
}

fn read(object: &mut Open<'_>, values: &ReadValues<'_>) {
    let mut read = Open::object(object.key("read"));
    let mut list = Open::list(read.key("values"));
    for one in values.iter() {
        let mut value = Open::object(list.item());
        value.number("value", one.value);
        if one.id.is_some() {
            value.number("id", one.id);
        }
        if one.lost.is_some() {
            value.number("lost", one.lost);
        }
        value.close();
    }
    list.close();
    for (key, time) in [("enabled_ns", values.enabled()), ("running_ns", values.running())] {
        if time.is_some() {
            read.number(key, time);
        }
    }
    read.close();
}

/// Registers by name; of a register in two parts the second has a `'` behind its name.
fn registers<'n>(object: &mut Open<'_>, key: &str, regs: &Regs<'_>, named: impl Iterator<Item = (&'n str, u64)>) {
    let mut registers = Open::object(object.key(key));
    registers.number("abi", regs.abi);
    let mut last = "";
    for (name, value) in named {
        match name == last {
            true => display(registers.named(&format!("{name}'")), format_args!("\"{value:#x}\"")),
            false => registers.address(name, value),
        }
        last = name;
    }
    registers.close();
}

/// Appends the last branches, the newest first. `place` writes what an address belongs to.
pub(super) fn branches(object: &mut Open<'_>, stack: &BranchStack<'_>, mut place: impl FnMut(&mut Open<'_>, u64)) {
    if stack.hw_index.is_some() {
        object.number("branch_hw_index", stack.hw_index);
    }
    let mut list = Open::list(object.key("branches"));
    for (nth, branch) in stack.iter().enumerate() {
        let mut one = Open::object(list.item());
        for (key, addr) in [("from", branch.from), ("to", branch.to)] {
            let mut end = Open::object(one.key(key));
            end.address("ip", addr);
            place(&mut end, addr);
            end.close();
        }
        one.truth("predicted", branch.predicted());
        one.truth("mispredicted", branch.mispredicted());
        one.truth("in_transaction", branch.in_transaction());
        one.truth("abort", branch.abort());
        one.number("cycles", u64::from(branch.cycles()));
        one.plain("kind", branch.kind_name());
        if let Some(count) = stack.counters.and_then(|counters| counters.get(nth)) {
            one.address("counters", count);
        }
        one.close();
    }
    list.close();
}
