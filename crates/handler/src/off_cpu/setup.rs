//! Loading: sizes, constants, targets.

use std::mem::MaybeUninit;
use std::os::fd::AsFd;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags};

use super::{OffCpu, Options, Whose};
use crate::load::{no_constants, own};
use crate::mapping::Mapping;
use crate::skeleton::off_cpu::types::{ai_wait_counts, ai_watch};
use crate::skeleton::off_cpu::{OffCpuSkelBuilder, OpenOffCpuSkel};
use crate::table::{Sizes, map_tables};
use crate::{Error, ErrorKind, Result, cpus, libbpf_log};

/// Threads that there is room for unless told otherwise: 30 MB.
const THREADS: u32 = 8192;
/// Processes or threads that are looked at, those that they start included.
const TARGETS: u32 = 16_384;

const WHAT: &str = "loading what measures time off CPU";

fn put(map: &impl MapCore, key: u32, value: &[u8]) -> Result<()> {
    map.update(&key.to_ne_bytes(), value, MapFlags::ANY).map_err(|e| Error::libbpf(WHAT, &e, Vec::new()))
}

/// How large everything is.
struct Dimensions {
    nr_cpus: u32,
    table_of: Vec<Option<u32>>,
    /// Tables of waits.
    tables: u32,
    /// The same and those of wakers.
    all_tables: u32,
    sizes: Sizes,
}

impl Dimensions {
    fn choose(options: &Options) -> Result<Dimensions> {
        let nr_cpus = cpus::bound()?;
        let mut with_table = if options.cpus.is_empty() { cpus::online()? } else { options.cpus.clone() };
        with_table.sort_unstable();
        with_table.dedup();
        let mut table_of = vec![None; nr_cpus as usize];
        for (number, cpu) in (0..).zip(&with_table) {
            let place = table_of.get_mut(*cpu as usize);
            *place.ok_or_else(|| Error::new(ErrorKind::Options, WHAT, format!("there is no CPU {cpu}")))? =
                Some(number);
        }
        let tables = with_table.len() as u32;
        let all_tables = if options.wakers { 2 * tables } else { tables };
        let sizes = Sizes::choose(options.entries, u64::from(all_tables));
        Ok(Dimensions { nr_cpus, table_of, tables, all_tables, sizes })
    }
}

/// Loads the programs that walk stacks anew only where they may differ; where the kernel does not take these, the others.
pub(super) fn load(options: &Options) -> Result<OffCpu> {
    match options.walk_all || cfg!(not(target_arch = "x86_64")) {
        true => load_way(options, false),
        false => load_way(options, true).or_else(|error| match error.kind() {
            ErrorKind::Verifier => load_way(options, false),
            _ => Err(error),
        }),
    }
}

fn load_way(options: &Options, reuses: bool) -> Result<OffCpu> {
    let dimensions = Dimensions::choose(options)?;
    let mut object = MaybeUninit::uninit();
    let (skeleton, log) = libbpf_log::capture(|| {
        let mut open = OffCpuSkelBuilder::default().open(&mut object)?;
        size(&mut open, options, &dimensions)?;
        open.maps.rodata_data.as_mut().ok_or_else(no_constants)?.ai_reuses = reuses;
        open.load()
    });
    let skeleton = skeleton.map_err(|e| Error::libbpf(WHAT, &e, log).of_the_verifier())?;
    let (maps, progs) = (&skeleton.maps, &skeleton.progs);
    for (cpu, number) in (0..).zip(&dimensions.table_of) {
        put(&maps.ai_table_numbers, cpu, &number.map_or(0, |number| number + 1).to_ne_bytes())?;
    }
    if let Whose::Processes(ids) | Whose::Threads(ids) = &options.whose {
        ids.iter().try_for_each(|id| put(&maps.ai_targets, *id, &[1]))?;
    }
    let fds = [maps.ai_tables.as_fd(), maps.ai_index.as_fd(), maps.ai_entries.as_fd(), maps.ai_arena.as_fd()];
    let cpus = dimensions.nr_cpus as usize;
    let attach = |program: &libbpf_rs::ProgramMut<'_>| {
        let (link, log) = libbpf_log::capture(|| program.attach());
        link.map_err(|e| Error::libbpf("attaching what measures time off CPU", &e, log))
    };
    let mut links = Vec::new();
    if follows(options) {
        links.push(attach(&progs.ai_forked)?);
        links.push(attach(&progs.ai_ended)?);
    }
    if options.wakers {
        links.push(attach(&progs.ai_waking)?);
    }
    links.push(attach(&progs.ai_switch)?);
    let mut programs = vec![("sched_switch", own(progs.ai_switch.as_fd())?)];
    if options.wakers {
        programs.push(("sched_waking", own(progs.ai_waking.as_fd())?));
    }
    Ok(OffCpu {
        tables: map_tables(fds, dimensions.sizes, dimensions.all_tables as usize)?,
        table_of: dimensions.table_of,
        counts: Mapping::new("ai_wait_cpus", maps.ai_wait_cpus.as_fd(), size_of::<ai_wait_counts>(), cpus)?,
        watch: Mapping::new("ai_watches", maps.ai_watches.as_fd(), size_of::<ai_watch>(), 1)?,
        programs,
        open: attach(&progs.ai_open_waits)?,
        wakers: options.wakers,
        reuses,
        waits_tables: dimensions.tables as usize,
        _links: links,
        nr_cpus: dimensions.nr_cpus,
    })
}

fn follows(options: &Options) -> bool {
    options.follow && options.whose != Whose::Everybody
}

fn size(open: &mut OpenOffCpuSkel<'_>, options: &Options, dimensions: &Dimensions) -> libbpf_rs::Result<()> {
    let Dimensions { nr_cpus, tables, all_tables, sizes, .. } = *dimensions;
    let maps = &mut open.maps;
    maps.ai_tables.set_max_entries(all_tables)?;
    for (map, bytes) in [
        (&mut maps.ai_index, sizes.index_bytes()),
        (&mut maps.ai_entries, sizes.entries_bytes()),
        (&mut maps.ai_arena, sizes.arena_bytes()),
    ] {
        map.set_max_entries(2 * all_tables)?;
        map.set_value_size(bytes as u32)?;
    }
    maps.ai_wait_cpus.set_max_entries(nr_cpus)?;
    maps.ai_table_numbers.set_max_entries(nr_cpus)?;
    let threads = options.threads.unwrap_or(THREADS).max(1);
    maps.ai_threads.set_max_entries(threads)?;
    maps.ai_wakes.set_max_entries(if options.wakers { threads } else { 1 })?;
    let targets = match &options.whose {
        Whose::Everybody => 1,
        Whose::Processes(ids) | Whose::Threads(ids) => TARGETS.max(ids.len() as u32),
    };
    maps.ai_targets.set_max_entries(targets)?;
    let constants = maps.rodata_data.as_mut().ok_or_else(no_constants)?;
    constants.ai_chain_max = cpus::chain_max();
    constants.ai_nr_entries = sizes.entries;
    constants.ai_index_mask = sizes.index - 1;
    constants.ai_arena_words = sizes.arena;
    constants.ai_weak_order = cfg!(not(target_arch = "x86_64"));
    constants.ai_nr_tables = tables;
    (constants.ai_syscall_from, constants.ai_syscall_to) = (options.syscall.start, options.syscall.end);
    constants.ai_wakers = options.wakers;
    constants.ai_min_ns = options.min_ns;
    constants.ai_whose = match options.whose {
        Whose::Everybody => 0,
        Whose::Processes(_) => 1,
        Whose::Threads(_) => 2,
    };
    open.progs.ai_waking.set_autoload(options.wakers);
    open.progs.ai_forked.set_autoload(follows(options));
    open.progs.ai_ended.set_autoload(follows(options));
    Ok(())
}
