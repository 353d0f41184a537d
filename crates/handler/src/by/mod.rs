//! The handler `by`: samples counted in the kernel under keys that the user names, with a value for each.
//!
//! Its program stands in a slot like any other. The table is that of `count`: for each event and CPU a half that is being
//! filled and one that is being emptied, in memory that both sides see.

mod keys;
mod label;

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use afterimage_perf_data::Attr;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};

pub use keys::{Field, Key, Value, bucket_range};
pub use label::{GivenBy, Label};

use crate::load::{check_unwinding, no_constants, own};
use crate::object::LoadedObject;
use crate::program::Labels;
use crate::skeleton::by::{BySkelBuilder, OpenByMaps};
use crate::table::{CountEntry, DrainStats, Sizes, Tables, map_tables};
use crate::{Error, ErrorKind, EventConfig, HandlerId, Handlers, Mechanism, Result, Shared, cpus, libbpf_log};

/// What to count by.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The keys; none counts all samples together.
    pub keys: Vec<Key>,
    /// What is made of the samples of a key.
    pub value: Value,
    /// Distinct keys of each half of a table; `None` chooses by the number of tables. Rounded up to a power of two, within
    /// 64 and 32,768.
    pub entries: Option<u32>,
    /// Every event has an address of its own, see [`has_address`]: then programs with helpers alone see it, too.
    pub addressed: bool,
    /// Where [`Key::Label`] is a key: the label, and the object that gives it.
    pub label: Option<GivenBy>,
}

/// Whether each sample of an event has an address of data, whether it is asked for or not: page faults and breakpoints.
pub fn has_address(attr: &Attr) -> bool {
    /// `PERF_TYPE_*`.
    const SOFTWARE: u32 = 1;
    const BREAKPOINT: u32 = 5;
    /// `PERF_COUNT_SW_PAGE_FAULTS`, `_MIN` and `_MAJ`.
    const FAULTS: [u64; 3] = [2, 5, 6];
    attr.kind == BREAKPOINT || (attr.kind == SOFTWARE && FAULTS.contains(&attr.config))
}

/// The tables of a loaded program.
#[derive(Debug)]
pub(crate) struct By {
    tables: Tables,
    /// Number of the table of each CPU that has one, by CPU.
    table_of: Arc<[Option<u32>]>,
    nr_tables: u32,
    events: u32,
    /// The object that gives the label, where one is a key.
    labels: Option<LoadedObject>,
}

impl Handlers {
    /// Loads the handler `by` beside the stubs, and makes it the current one. Where a stack is a key, the events have to take
    /// callchains.
    ///
    /// # Errors
    /// For keys and fields that this kernel does not show to programs, and when the kernel refuses the program.
    pub fn load_by(&mut self, options: &Options) -> Result<HandlerId> {
        let (shared, mechanism) = (self.shared(), self.mechanism());
        check(shared.configs(), options, mechanism)?;
        let Programs { mut by, counting, labels } = load(&shared, options, mechanism)?;
        let id = match (&options.label, labels) {
            (Some(given), Some(Given { map, program })) => {
                let labels = Labels { name: given.name.clone(), map: Arc::new(map) };
                let shared = Shared { labels: Some(labels), ..shared };
                given.object.gives_label(&given.name)?;
                let object = given.object.load(&shared, shared.configs(), self.next_id(), &[])?;
                self.run_behind(object.program()?, counting)?;
                by.labels = Some(object);
                self.add("by", program)
            }
            _ => self.add("by", counting),
        };
        self.swap(id)?;
        self.by = Some(by);
        Ok(id)
    }

    /// The types of the label's values, as the object has them; empty where no label is a key.
    pub fn by_types(&self) -> &[u8] {
        let labels = self.by.as_ref().and_then(|by| by.labels.as_ref());
        labels.map_or(&[], |object| object.btf.as_slice())
    }

    /// How full the fullest table of `by` is, in percent: of its entries, or of the room for their stacks.
    pub fn by_fill(&self) -> u64 {
        self.by.as_ref().map_or(0, |by| by.tables.fill())
    }

    /// Hands out what `by` has counted for one event on one CPU since the last drain, and forgets it. Of each entry those
    /// fields are set that are keys; of user addresses also process and exec. The program goes on in the table's other half.
    pub fn drain_by(&mut self, event: usize, cpu: u32, f: &mut dyn FnMut(&CountEntry<'_>)) -> DrainStats {
        let Some(by) = &mut self.by else { return DrainStats::default() };
        let behind = by.labels.as_ref().map_or(0, |_| Label::WORDS);
        let mut f = |entry: &CountEntry<'_>| {
            let (chain, label) = entry.chain.split_at(entry.chain.len().saturating_sub(behind));
            f(&CountEntry { chain, label, ..*entry });
        };
        match by.table_of.get(cpu as usize).copied().flatten() {
            Some(number) if event < by.events as usize => {
                by.tables.drain(event * by.nr_tables as usize + number as usize, &mut f)
            }
            _ => DrainStats::default(),
        }
    }
}

/// Refuses what a program that has helpers alone cannot see.
fn check(events: &[EventConfig], options: &Options, mechanism: Mechanism) -> Result<()> {
    if options.keys.contains(&Key::Label) != options.label.is_some() {
        let cause = "a label is a key where an object gives it, and there alone";
        return Err(Error::new(ErrorKind::Options, "counting by a label", cause));
    }
    if mechanism == Mechanism::Kfuncs {
        return Ok(());
    }
    if options.keys.iter().any(|key| key.is_stack()) {
        check_unwinding(events)?;
    }
    let refuse = |cause: &str| Err(Error::new(ErrorKind::Unsupported, options.value.to_string(), cause));
    match options.value.field() {
        Some(Field::Weight) => refuse("this kernel shows programs no weight (Linux 6.2 does)"),
        Some(Field::Addr) if !options.addressed => {
            refuse("this kernel shows programs the addresses of page faults and breakpoints alone")
        }
        _ => Ok(()),
    }
}

/// What was loaded.
struct Programs {
    by: By,
    /// The program that counts.
    counting: OwnedFd,
    /// With a label.
    labels: Option<Given>,
}

/// What a label needs besides.
struct Given {
    /// ai_labels.
    map: OwnedFd,
    /// The program that runs the object, then the one that counts.
    program: OwnedFd,
}

fn load(shared: &Shared, options: &Options, mechanism: Mechanism) -> Result<Programs> {
    let tables = shared.events * shared.nr_tables;
    let sizes = Sizes::choose(options.entries, u64::from(tables));
    let mut object = MaybeUninit::uninit();
    let (skeleton, log) = libbpf_log::capture(|| {
        let mut open = BySkelBuilder::default().open(&mut object)?;
        share(&mut open.maps, shared)?;
        open.maps.ai_tables.set_max_entries(tables)?;
        open.maps.ai_labels.set_max_entries(shared.nr_cpus)?;
        for (map, bytes) in [
            (&mut open.maps.ai_index, sizes.index_bytes()),
            (&mut open.maps.ai_entries, sizes.entries_bytes()),
            (&mut open.maps.ai_arena, sizes.arena_bytes()),
        ] {
            map.set_max_entries(2 * tables)?;
            map.set_value_size(bytes as u32)?;
        }
        let constants = open.maps.rodata_data.as_mut().ok_or_else(no_constants)?;
        constants.ai_nr_cpus = shared.nr_cpus;
        constants.ai_chain_max = cpus::chain_max();
        constants.ai_nr_tables = shared.nr_tables;
        constants.ai_nr_entries = sizes.entries;
        constants.ai_index_mask = sizes.index - 1;
        constants.ai_arena_words = sizes.arena;
        constants.ai_weak_order = cfg!(not(target_arch = "x86_64"));
        constants.ai_by_keys = options.keys.iter().fold(0, |bits, key| bits | key.bits());
        constants.ai_by_value = options.value.number();
        constants.ai_by_field = options.value.field().map_or(0, Field::number);
        constants.ai_by_label = options.label.is_some();
        open.progs.ai_by_labels.set_autoload(options.label.is_some());
        open.progs.ai_by_kern.set_autoload(mechanism == Mechanism::Kfuncs);
        open.progs.ai_by_plain.set_autoload(mechanism == Mechanism::Plain);
        open.load()
    });
    let skeleton = skeleton.map_err(|e| Error::libbpf("loading the handler by", &e, log))?;
    let maps = &skeleton.maps;
    let fds = [maps.ai_tables.as_fd(), maps.ai_index.as_fd(), maps.ai_entries.as_fd(), maps.ai_arena.as_fd()];
    let by = By {
        tables: map_tables(fds, sizes, tables as usize)?,
        table_of: Arc::clone(&shared.table_of),
        nr_tables: shared.nr_tables,
        events: shared.events,
        labels: None,
    };
    let counting = match mechanism {
        Mechanism::Kfuncs => own(skeleton.progs.ai_by_kern.as_fd())?,
        Mechanism::Plain => own(skeleton.progs.ai_by_plain.as_fd())?,
    };
    let given = || Ok(Given { map: own(maps.ai_labels.as_fd())?, program: own(skeleton.progs.ai_by_labels.as_fd())? });
    let labels = options.label.as_ref().map(|_| given()).transpose()?;
    Ok(Programs { by, counting, labels })
}

/// Puts the maps of the stubs in place of the object's own.
fn share(maps: &mut OpenByMaps<'_>, shared: &Shared) -> libbpf_rs::Result<()> {
    for (name, map) in [
        ("ai_slots", &mut maps.ai_slots),
        ("ai_control", &mut maps.ai_control),
        ("ai_cpus", &mut maps.ai_cpus),
        ("ai_counters", &mut maps.ai_counters),
    ] {
        if let Some(fd) = shared.map(name) {
            map.reuse_fd(fd)?;
        }
    }
    Ok(())
}
