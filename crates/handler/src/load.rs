//! Loading: sizes the maps, sets the constants, and keeps descriptors of what the handlers need later.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{OpenObject, OpenProgramMut};

use crate::mapping::Mapping;
use crate::program::{Program, Shared, SharedMaps};
use crate::skeleton::builtins::types::{ai_control, ai_counters, ai_cpu};
use crate::skeleton::builtins::{BuiltinsMaps, BuiltinsSkelBuilder, OpenBuiltinsMaps, OpenBuiltinsProgs};
use crate::skeleton::common::CommonSkelBuilder;
use crate::skeleton::stub::StubSkelBuilder;
use crate::skeleton::stub_plain::StubPlainSkelBuilder;
use crate::slots::Slots;
use crate::table::{Sizes, Tables, map_tables};
use crate::{Builtin, Error, ErrorKind, EventConfig, Mechanism, Options, Result, cpus, libbpf_log};

/// Flags of an event, as in internal.bpf.h.
const AI_STACK: u32 = 1 << 8;
const AI_NO_KERNEL_STACK: u32 = 1 << 9;
const AI_NO_USER_STACK: u32 = 1 << 10;

/// Everything that outlives the load.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) slots: Slots,
    pub(crate) outputs: OwnedFd,
    pub(crate) shared: Arc<SharedMaps>,
    pub(crate) cpus: Mapping<ai_cpu>,
    pub(crate) counters: Mapping<ai_counters>,
    pub(crate) tables: Option<Tables>,
    pub(crate) builtins: Vec<Program>,
    /// One for each event.
    pub(crate) stubs: Vec<OwnedFd>,
}

/// What the maps are sized by.
#[derive(Clone, Debug)]
pub(crate) struct Dimensions {
    /// Bound of CPU numbers, the stride of everything indexed by (event, CPU).
    pub(crate) nr_cpus: u32,
    /// CPUs that have tables.
    pub(crate) table_cpus: Vec<u32>,
    events: u32,
    chain_max: u32,
    sizes: Sizes,
}

impl Dimensions {
    pub(crate) fn choose(options: &Options) -> Result<Dimensions> {
        let bad = |cause: String| Error::new(ErrorKind::Options, "loading handlers", cause);
        let events = u32::try_from(options.events.len()).ok().filter(|&n| (1..=4096).contains(&n));
        let events = events.ok_or_else(|| bad(format!("{} events: 1 to 4096 can be served", options.events.len())))?;
        let nr_cpus = cpus::bound()?;
        let mut table_cpus = if options.cpus.is_empty() { cpus::online()? } else { options.cpus.clone() };
        table_cpus.sort_unstable();
        table_cpus.dedup();
        if let Some(cpu) = table_cpus.iter().find(|&&cpu| cpu >= nr_cpus) {
            return Err(bad(format!("there is no CPU {cpu}")));
        }
        let tables = u64::from(events) * table_cpus.len() as u64;
        let chain_max = cpus::chain_max();
        let sizes = Sizes::choose(options.count_slots, tables);
        Ok(Dimensions { nr_cpus, table_cpus, events, chain_max, sizes })
    }

    fn tables(&self) -> u32 {
        self.events * self.table_cpus.len() as u32
    }
}

/// Refuses what the kernel would refuse if it could see through a tail call, or would do wrong.
pub(crate) fn check_rules(options: &Options, mechanism: Mechanism) -> Result<()> {
    let unwinds = options.wants(Builtin::Emit) || options.wants(Builtin::Count);
    if mechanism == Mechanism::Kfuncs || !unwinds {
        return Ok(());
    }
    check_unwinding(&options.events)
}

/// Refuses events whose stacks a program cannot take by itself.
pub(crate) fn check_unwinding(events: &[EventConfig]) -> Result<()> {
    let refuse = |cause: String| Err(Error::new(ErrorKind::Unsupported, "loading handlers", cause));
    if let Some(index) = events.iter().position(|e| !e.may_unwind()) {
        return refuse(format!(
            "event {index} is precise and this kernel shows programs no sample: use call graphs of kernel and user, or \
             drop the p modifier"
        ));
    }
    let chain_words = cpus::chain_words();
    if events.iter().any(|e| e.callchain) && chain_words > cpus::CHAIN_MAX {
        let most = cpus::CHAIN_MAX;
        return refuse(format!("kernel.perf_event_max_stack allows {chain_words} words a stack, more than {most}"));
    }
    Ok(())
}

/// Loads everything for one mechanism.
pub(crate) fn load(options: &Options, dimensions: &Dimensions, mechanism: Mechanism) -> Result<Loaded> {
    check_rules(options, mechanism)?;
    let maps = common(dimensions)?;
    let events = options.events.iter().enumerate();
    let stubs = events.map(|(index, event)| load_stub(index as u32, event, &maps, dimensions, mechanism));
    let stubs = stubs.collect::<Result<Vec<_>>>()?;
    let (builtins, tables) = builtins(options, dimensions, mechanism, &maps)?;
    let (nr_cpus, events) = (dimensions.nr_cpus as usize, dimensions.events as usize);
    Ok(Loaded {
        slots: Slots::new(
            own(maps.slots.as_fd())?,
            Mapping::new("ai_control", maps.control.as_fd(), size_of::<ai_control>(), 1)?,
        ),
        outputs: own(maps.outputs.as_fd())?,
        cpus: Mapping::new("ai_cpus", maps.cpus.as_fd(), size_of::<ai_cpu>(), nr_cpus)?,
        counters: Mapping::new("ai_counters", maps.counters.as_fd(), size_of::<ai_counters>(), events * nr_cpus)?,
        tables,
        builtins,
        stubs,
        shared: Arc::new(maps),
    })
}

/// A built-in handler that came later.
#[derive(Debug)]
pub(crate) struct Late {
    pub(crate) program: Program,
    /// With `count`.
    pub(crate) tables: Option<Tables>,
}

/// Loads one more built-in handler over the maps that stubs run on. Its own maps are new.
pub(crate) fn load_late(builtin: Builtin, shared: &Shared) -> Result<Late> {
    let (dimensions, mechanism) = (shared.dimensions.as_ref(), shared.mechanism);
    let options = Options { builtin, also: Vec::new(), ..Options::clone(&shared.options) };
    check_rules(&options, mechanism)?;
    let (programs, tables) = builtins(&options, dimensions, mechanism, &shared.maps)?;
    let none = || Error::new(ErrorKind::Options, format!("loading {builtin}"), "it is no program");
    Ok(Late { program: programs.into_iter().next().ok_or_else(none)?, tables })
}

/// The maps that everything is loaded over.
fn common(dimensions: &Dimensions) -> Result<SharedMaps> {
    let Dimensions { nr_cpus, events, .. } = *dimensions;
    let mut object = MaybeUninit::uninit();
    let (skeleton, log) = libbpf_log::capture(|| {
        let mut open = CommonSkelBuilder::default().open(&mut object)?;
        open.maps.ai_cpus.set_max_entries(nr_cpus)?;
        open.maps.ai_counters.set_max_entries(events * nr_cpus)?;
        open.maps.ai_outputs.set_max_entries(events * nr_cpus)?;
        open.load()
    });
    let skeleton = skeleton.map_err(|e| Error::libbpf("loading the handlers", &e, log))?;
    let maps = &skeleton.maps;
    Ok(SharedMaps {
        slots: own(maps.ai_slots.as_fd())?,
        control: own(maps.ai_control.as_fd())?,
        cpus: own(maps.ai_cpus.as_fd())?,
        counters: own(maps.ai_counters.as_fd())?,
        outputs: own(maps.ai_outputs.as_fd())?,
    })
}

/// The built-in handlers that are wanted, with the tables of `count`. Without any, nothing is loaded: the object refers to
/// the kernel's types, whatever is loaded of it.
fn builtins(
    options: &Options,
    dimensions: &Dimensions,
    mechanism: Mechanism,
    shared: &SharedMaps,
) -> Result<(Vec<Program>, Option<Tables>)> {
    let wanted: Vec<Builtin> =
        [Builtin::Emit, Builtin::Count].into_iter().filter(|builtin| options.wants(*builtin)).collect();
    if wanted.is_empty() {
        return Ok((Vec::new(), None));
    }
    let mut object = MaybeUninit::uninit();
    let (skeleton, log) = libbpf_log::capture(|| {
        let mut open = BuiltinsSkelBuilder::default().open(&mut object)?;
        size_maps(&mut open.maps, options, dimensions)?;
        open.maps.ai_slots.reuse_fd(shared.slots.as_fd())?;
        open.maps.ai_control.reuse_fd(shared.control.as_fd())?;
        open.maps.ai_cpus.reuse_fd(shared.cpus.as_fd())?;
        open.maps.ai_counters.reuse_fd(shared.counters.as_fd())?;
        open.maps.ai_outputs.reuse_fd(shared.outputs.as_fd())?;
        choose_programs(&mut open.progs, options, mechanism);
        open.load()
    });
    let skeleton = skeleton.map_err(|e| Error::libbpf("loading the handlers", &e, log))?;
    let (maps, progs) = (&skeleton.maps, &skeleton.progs);
    let program = |builtin: Builtin| {
        let program = match (builtin, mechanism) {
            (Builtin::Count, Mechanism::Kfuncs) => &progs.ai_count_kern,
            (Builtin::Count, Mechanism::Plain) => &progs.ai_count_plain,
            (_, Mechanism::Kfuncs) => &progs.ai_emit_kern,
            (_, Mechanism::Plain) => &progs.ai_emit_plain,
        };
        Ok(Program { id: builtin.into(), name: builtin.name().to_owned(), fd: Arc::new(own(program.as_fd())?) })
    };
    let programs = wanted.into_iter().map(program).collect::<Result<Vec<_>>>()?;
    let tables = options.wants(Builtin::Count).then(|| tables(maps, dimensions)).transpose()?;
    Ok((programs, tables))
}

fn tables(maps: &BuiltinsMaps<'_>, dimensions: &Dimensions) -> Result<Tables> {
    let fds = [maps.ai_tables.as_fd(), maps.ai_index.as_fd(), maps.ai_entries.as_fd(), maps.ai_arena.as_fd()];
    map_tables(fds, dimensions.sizes, dimensions.tables() as usize)
}

pub(crate) fn own(fd: BorrowedFd<'_>) -> Result<OwnedFd> {
    fd.try_clone_to_owned().map_err(|e| Error::io("keeping a descriptor", &e))
}

/// Sets sizes and constants. What is not wanted keeps maps of one small value.
fn size_maps(maps: &mut OpenBuiltinsMaps<'_>, options: &Options, dimensions: &Dimensions) -> libbpf_rs::Result<()> {
    let Dimensions { nr_cpus, chain_max, sizes, .. } = *dimensions;
    if options.wants(Builtin::Emit) {
        maps.ai_scratch.set_max_entries(nr_cpus)?;
    }
    if options.wants(Builtin::Count) {
        let tables = dimensions.tables();
        maps.ai_tables.set_max_entries(tables)?;
        for (map, bytes) in [
            (&mut maps.ai_index, sizes.index_bytes()),
            (&mut maps.ai_entries, sizes.entries_bytes()),
            (&mut maps.ai_arena, sizes.arena_bytes()),
        ] {
            map.set_max_entries(2 * tables)?;
            map.set_value_size(bytes as u32)?;
        }
    }
    let constants = maps.rodata_data.as_mut().ok_or_else(no_constants)?;
    constants.ai_nr_cpus = nr_cpus;
    constants.ai_chain_max = chain_max;
    constants.ai_nr_tables = dimensions.table_cpus.len() as u32;
    constants.ai_nr_entries = sizes.entries;
    constants.ai_index_mask = sizes.index - 1;
    constants.ai_arena_words = sizes.arena;
    constants.ai_weak_order = cfg!(not(target_arch = "x86_64"));
    constants.ai_chain = options.chain;
    Ok(())
}

pub(crate) fn no_constants() -> libbpf_rs::Error {
    libbpf_rs::Error::from(io::Error::other("the object has no constants"))
}

fn choose_programs(progs: &mut OpenBuiltinsProgs<'_>, options: &Options, mechanism: Mechanism) {
    let choose = |program: &mut OpenProgramMut<'_>, builtin, of| {
        program.set_autoload(mechanism == of && options.wants(builtin));
    };
    choose(&mut progs.ai_emit_kern, Builtin::Emit, Mechanism::Kfuncs);
    choose(&mut progs.ai_count_kern, Builtin::Count, Mechanism::Kfuncs);
    choose(&mut progs.ai_emit_plain, Builtin::Emit, Mechanism::Plain);
    choose(&mut progs.ai_count_plain, Builtin::Count, Mechanism::Plain);
}

/// Loads the stub of one event over the maps that exist.
fn load_stub(
    index: u32,
    event: &EventConfig,
    shared: &SharedMaps,
    dimensions: &Dimensions,
    mechanism: Mechanism,
) -> Result<OwnedFd> {
    let mut object: MaybeUninit<OpenObject> = MaybeUninit::uninit();
    // The two objects are of one source, but of two types.
    macro_rules! load {
        ($builder:ty, $program:ident) => {{
            let (skeleton, log) = libbpf_log::capture(|| {
                let mut open = <$builder>::default().open(&mut object)?;
                open.maps.ai_slots.reuse_fd(shared.slots.as_fd())?;
                open.maps.ai_control.reuse_fd(shared.control.as_fd())?;
                open.maps.ai_cpus.reuse_fd(shared.cpus.as_fd())?;
                open.maps.ai_counters.reuse_fd(shared.counters.as_fd())?;
                let constants = open.maps.rodata_data.as_mut().ok_or_else(no_constants)?;
                constants.ai_nr_cpus = dimensions.nr_cpus;
                constants.ai_event = index;
                constants.ai_event_flags = flags_of(event);
                open.load()
            });
            let skeleton = skeleton.map_err(|e| Error::libbpf("loading the stub", &e, log))?;
            own(skeleton.progs.$program.as_fd())
        }};
    }
    match mechanism {
        Mechanism::Kfuncs => load!(StubSkelBuilder, ai_stub_kern),
        Mechanism::Plain => load!(StubPlainSkelBuilder, ai_stub_plain),
    }
}

fn flags_of(event: &EventConfig) -> u32 {
    let flag = |set: bool, flag: u32| if set { flag } else { 0 };
    flag(event.callchain, AI_STACK)
        | flag(event.exclude_callchain_kernel, AI_NO_KERNEL_STACK)
        | flag(event.exclude_callchain_user, AI_NO_USER_STACK)
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use afterimage_perf_data::{AiHdr, EmitPayload};

    use crate::skeleton::builtins::types::{ai_emit, ai_hdr};

    /// The header in C, as its object's BTF describes it, and its Rust twin read the same bytes alike.
    #[test]
    fn the_header_is_the_same_in_c_and_rust() {
        let c = ai_hdr {
            version: AiHdr::VERSION,
            size: 0x0203,
            kind: 0x0405,
            handler: 0x0607,
            generation: 0x0809_0a0b,
            cpu: 0x0c0d_0e0f,
            time: 0x1011_1213_1415_1617,
            ip: 0x1819_1a1b_1c1d_1e1f,
            seq: 0x2021_2223_2425_2627,
        };
        assert_eq!(size_of::<ai_hdr>(), AiHdr::SIZE);
        // SAFETY: a plain C structure of 40 bytes without padding, see its fields.
        let bytes: [u8; 40] = unsafe { std::mem::transmute(c) };
        let rust = AiHdr::decode(&bytes).unwrap();
        assert_eq!((rust.version, rust.size, rust.kind, rust.handler), (c.version, c.size, c.kind, c.handler));
        assert_eq!((rust.generation, rust.cpu), (c.generation, c.cpu));
        assert_eq!((rust.time, rust.ip, rust.seq), (c.time, c.ip, c.seq));
        assert_eq!(offset_of!(ai_emit, chain), EmitPayload::FIXED);
    }
}
