//! From the entries of the tables to rows: located as of their time, added up over CPUs and passes.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use afterimage_handler::CountEntry;
use afterimage_handler::by::Label;
use afterimage_perf_data::btf::{Types, Unreadable};
use afterimage_perf_data::{Callchain, Endian, Layout, RawRecord, Record, RecordHeader, decode};
use afterimage_profile::{CpuMode, Loc, Running};

use super::cgroups::Cgroups;
use super::readout::{At, EventRows, Labelled, Readout, Row};
use super::{By, Key, Value};
use crate::session::Session;

/// Percent of a table in use from which on it is emptied: what comes until the next pass needs room.
const ROOM_USED: u64 = 25;

/// What was taken out of the tables so lately is as good as what is in them.
const FRESH: Duration = Duration::from_millis(100);

/// What was gathered and not yet read out.
pub(crate) struct Gather {
    by: By,
    sideband: Layout,
    /// Where keys hold addresses.
    running: Option<Running>,
    cgroups: Option<Cgroups>,
    /// The types of labels.
    types: Vec<u8>,
    /// Emptied from the tables in this pass.
    taken: Vec<Taken>,
    rows: HashMap<RowKey, Sum>,
    /// When sampling began.
    begun: Instant,
    /// The same on the clock of the samples.
    begun_ns: u64,
    /// Until when it was read out.
    from: Duration,
    /// When it is to be read out again, where it is before the end.
    next: Option<Duration>,
    /// Samples in all rows so far, those that were read out too.
    samples: u64,
    /// Each pass takes what there is.
    eager: bool,
    /// The next one does.
    asked: bool,
    /// When the tables were emptied.
    emptied: Option<Instant>,
}

/// An entry of a table.
struct Taken {
    time: u64,
    /// The process whose addresses it holds.
    pid: u32,
    ip: u64,
    chain: Vec<u8>,
    key: RowKey,
    count: u64,
    value: u64,
    bucket: u32,
}

/// What makes a row. Addresses are of one row if both their numbers and what was there are the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct RowKey {
    event: usize,
    comm: Vec<u8>,
    pid: u32,
    tid: u32,
    cpu: u32,
    cgroup: u64,
    ip: Option<(u64, Loc)>,
    kernel: Vec<(u64, Loc)>,
    user: Vec<(u64, Loc)>,
    label: Vec<u64>,
}

#[derive(Clone, Debug, Default)]
struct Sum {
    samples: u64,
    value: u64,
    buckets: BTreeMap<u32, u64>,
}

impl Gather {
    pub(crate) fn new(by: &By, sideband: Layout) -> Gather {
        Gather {
            by: by.clone(),
            sideband,
            running: by.wants_names().then(Running::new),
            cgroups: by.has(Key::Cgroup).then(Cgroups::new),
            types: Vec::new(),
            taken: Vec::new(),
            rows: HashMap::new(),
            begun: Instant::now(),
            begun_ns: monotonic(),
            from: Duration::ZERO,
            next: by.interval,
            samples: 0,
            // The paths of cgroups are to be read while they are there.
            eager: by.has(Key::Cgroup),
            asked: false,
            emptied: None,
        }
    }

    /// Whether any addresses are in a key.
    pub(crate) fn wants_names(&self) -> bool {
        self.by.wants_names()
    }

    /// Whether addresses of processes may be in a key.
    pub(crate) fn wants_maps(&self) -> bool {
        self.by.wants_maps()
    }

    /// Sampling begins now. `watched` by somebody who wants to see the samples of each pass.
    pub(crate) fn begin(&mut self, watched: bool) {
        self.eager |= watched;
        (self.begun, self.begun_ns) = (Instant::now(), monotonic());
    }

    /// The next pass takes what there is, unless that was done a moment ago: whoever asks over and over keeps nobody busy.
    /// Gives whether it does.
    pub(crate) fn ask(&mut self) -> bool {
        self.asked |= self.emptied.is_none_or(|at| at.elapsed() >= FRESH);
        self.asked
    }

    /// Sampling has ended: all that is left is taken.
    pub(crate) fn end(&mut self) {
        self.eager = true;
    }

    /// Whether the tables have to be emptied in this pass although nothing happened that changes what addresses mean.
    pub(crate) fn must_take(&self, session: &Session) -> bool {
        let fill = session.handlers.as_ref().map_or(0, |handlers| handlers.by_fill());
        self.eager || self.asked || fill >= ROOM_USED || self.due_in().is_some_and(|left| left.is_zero())
    }

    /// Empties the tables.
    pub(crate) fn take(&mut self, session: &mut Session) {
        self.asked = false;
        self.emptied = Some(Instant::now());
        let Some(handlers) = session.handlers.as_mut() else { return };
        if self.types.is_empty() {
            self.types = handlers.by_types().to_vec();
        }
        for (event, stub) in session.stubs.iter().enumerate() {
            let Some(stub) = stub else { continue };
            for &cpu in &session.cpus {
                let (by, taken) = (&self.by, &mut self.taken);
                let stats = handlers.drain_by(*stub, cpu, &mut |entry| taken.push(Taken::of(by, event, cpu, entry)));
                session.book.stored(event, cpu, stats.samples);
            }
        }
        if let Some(cgroups) = &mut self.cgroups {
            cgroups.learn(self.taken.iter().map(|taken| taken.key.cgroup));
        }
    }

    /// Lets the records of the sideband take effect and locates what was taken, all in the order of time.
    pub(crate) fn settle(&mut self, records: &[u8]) {
        self.taken.sort_by_key(|taken| taken.time);
        let taken = std::mem::take(&mut self.taken);
        let Some(mut running) = self.running.take() else {
            taken.into_iter().for_each(|one| self.add(one));
            return;
        };
        let mut records = self.decoded(records);
        records.sort_by_key(|(time, _)| *time);
        let mut records = records.into_iter().peekable();
        let mut located = Vec::with_capacity(taken.len());
        for mut one in taken {
            while let Some((_, record)) = records.next_if(|(time, _)| *time <= one.time) {
                running.apply(&record);
            }
            one.locate(&self.by, &mut running);
            located.push(one);
        }
        records.for_each(|(_, record)| running.apply(&record));
        located.into_iter().for_each(|one| self.add(one));
        self.running = Some(running);
    }

    /// Whole records of the sideband, with their times. Those that make no sense are left out: names may be missing.
    fn decoded<'r>(&self, mut bytes: &'r [u8]) -> Vec<(u64, Record<'r>)> {
        let mut records = Vec::new();
        while let Some(header) = bytes.first_chunk::<8>().map(|header| RecordHeader::decode(*header, Endian::NATIVE)) {
            let Some((record, rest)) = bytes.split_at_checked(usize::from(header.size).max(8)) else { break };
            let raw = RawRecord { header, bytes: record, offset: 0 };
            if let Ok(record) = decode(&raw, &self.sideband) {
                records.push((record.time().unwrap_or(0), record));
            }
            bytes = rest;
        }
        records
    }

    fn add(&mut self, one: Taken) {
        self.samples += one.count;
        let sum = self.rows.entry(one.key).or_default();
        sum.samples += one.count;
        match self.by.options.value {
            Value::Count => {}
            Value::Sum(_) => sum.value = sum.value.saturating_add(one.value),
            Value::Max(_) => sum.value = sum.value.max(one.value),
            Value::Hist(_) => {
                sum.value = sum.value.saturating_add(one.value);
                *sum.buckets.entry(one.bucket).or_default() += one.count;
            }
        }
    }

    /// How long until the next time to read out; `None`: only at the end.
    pub(crate) fn due_in(&self) -> Option<Duration> {
        Some(self.next?.saturating_sub(self.begun.elapsed()))
    }

    /// Samples in all rows, those that were read out too.
    pub(crate) fn samples(&self) -> u64 {
        self.samples
    }

    /// What was gathered since the last time.
    pub(crate) fn read_out(&mut self, names: &[String], last: bool) -> Readout {
        let now = self.begun.elapsed();
        let rows = std::mem::take(&mut self.rows);
        let mut events: Vec<EventRows> =
            names.iter().map(|name| EventRows { name: name.clone(), rows: Vec::new() }).collect();
        for (key, sum) in rows {
            let event = key.event;
            let row = self.row(key, sum);
            if let Some(event) = events.get_mut(event) {
                event.rows.push(row);
            }
        }
        let by_value = matches!(self.by.options.value, Value::Sum(_) | Value::Max(_));
        for event in &mut events {
            event
                .rows
                .sort_by_key(|row| std::cmp::Reverse((if by_value { row.value } else { row.samples }, row.samples)));
        }
        let from = std::mem::replace(&mut self.from, now);
        self.next = self.by.interval.map(|interval| after(interval, now));
        Readout { begun_ns: self.begun_ns, from, to: now, last, events }
    }

    fn row(&mut self, key: RowKey, sum: Sum) -> Row {
        let by = &self.by;
        let asked = |key: Key, value: u32| by.has(key).then_some(value);
        let cgroups = self.cgroups.as_ref();
        let mut row = Row {
            comm: by.has(Key::Comm).then(|| String::from_utf8_lossy(&key.comm).into_owned()),
            pid: by.has(Key::Pid).then_some(key.pid).or(Some(key.pid).filter(|pid| *pid != 0)),
            tid: asked(Key::Tid, key.tid),
            cpu: asked(Key::Cpu, key.cpu),
            cgroup: cgroups.map(|known| (key.cgroup, known.path(key.cgroup).map(str::to_owned))),
            label: by.has(Key::Label).then(|| labelled(&key.label, &self.types)),
            samples: sum.samples,
            value: sum.value,
            buckets: sum.buckets.into_iter().collect(),
            ..Row::default()
        };
        if let Some(running) = &mut self.running {
            let mut named = |(addr, loc): (u64, Loc)| At { addr, frame: running.frame(loc).clone() };
            row.ip = key.ip.map(&mut named);
            row.kernel = key.kernel.into_iter().map(&mut named).collect();
            row.user = key.user.into_iter().map(&mut named).collect();
        }
        row
    }
}

fn labelled(words: &[u64], types: &[u8]) -> Labelled {
    let Some(label) = Label::of(words) else { return Labelled::Not };
    match Types::parse(types).map_err(|_| Unreadable::BadTypes).and_then(|types| label.value(&types)) {
        Ok(value) => Labelled::Value { text: value.bare(), json: value.to_json() },
        Err(_) if label.size > Label::LONGEST => {
            Labelled::Unreadable(format!("{} bytes, more than the {} of a key", label.size, Label::LONGEST))
        }
        Err(reason) => Labelled::Unreadable(reason.to_string()),
    }
}

/// The next multiple of the interval: readings keep their distance from the start, so that what is late is not carried on.
fn after(interval: Duration, now: Duration) -> Duration {
    let turns = now.as_nanos() / interval.as_nanos().max(1) + 1;
    u64::try_from(turns.saturating_mul(interval.as_nanos())).map_or(now.saturating_add(interval), Duration::from_nanos)
}

fn monotonic() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::try_from(now).ok().and_then(|now| u64::try_from(now.as_nanos()).ok()).unwrap_or(0)
}

impl Taken {
    fn of(by: &By, event: usize, cpu: u32, entry: &CountEntry<'_>) -> Taken {
        let comm = entry.comm.split(|byte| *byte == 0).next().unwrap_or_default();
        let key = RowKey {
            event,
            comm: if by.has(Key::Comm) { comm.to_vec() } else { Vec::new() },
            pid: entry.pid,
            tid: entry.tid,
            cpu: if by.has(Key::Cpu) { cpu } else { 0 },
            cgroup: entry.cgroup,
            label: entry.label.to_vec(),
            ..RowKey::default()
        };
        Taken {
            time: entry.first_time,
            pid: entry.pid,
            ip: entry.ip,
            chain: entry.chain.iter().flat_map(|word| word.to_ne_bytes()).collect(),
            key,
            count: entry.count,
            value: entry.period,
            bucket: entry.bucket,
        }
    }

    /// Finds out what its addresses are.
    fn locate(&mut self, by: &By, running: &mut Running) {
        if by.has(Key::Ip) {
            self.key.ip = Some((self.ip, running.locate(self.time, self.pid, self.ip)));
        }
        if !by.wants_stacks() {
            return;
        }
        let (kernel, user) = (by.has_part(Key::Kstack), by.has_part(Key::Ustack));
        let key = &mut self.key;
        running.walk(self.time, self.pid, Callchain::new(&self.chain, Endian::NATIVE), |step| match step.mode {
            CpuMode::User if user => key.user.push((step.addr, step.loc)),
            CpuMode::Kernel if kernel => key.kernel.push((step.addr, step.loc)),
            _ => (),
        });
    }
}

#[cfg(test)]
mod tests {
    use afterimage_perf_data::record::{FileId, Mmap2, SampleId};
    use afterimage_perf_data::{Attr, AttrFlags, SampleType, context};

    use super::*;
    use crate::by::Options;

    fn sideband() -> Layout {
        let sample_type = SampleType::IDENTIFIER | SampleType::TID | SampleType::TIME | SampleType::CPU;
        Layout::new(&Attr { sample_type, flags: AttrFlags::SAMPLE_ID_ALL, ..Attr::default() }, Endian::NATIVE)
    }

    fn mapped(time: u64, filename: &[u8]) -> Vec<u8> {
        let id = SampleId { time: Some(time), pid: Some(7), tid: Some(7), ..SampleId::default() };
        let file = FileId::Inode { maj: 8, min: 1, ino: time, generation: 0 };
        let map = Mmap2 { pid: 7, tid: 7, addr: 0x10_0000, len: 0x1000, file, filename, id, ..Mmap2::default() };
        let mut bytes = Vec::new();
        Record::Mmap2(map).encode(&sideband(), &mut bytes).unwrap();
        bytes
    }

    fn gather(keys: &[Key], value: Value) -> Gather {
        let options = Options { keys: keys.to_vec(), value, ..Options::default() };
        Gather::new(&By { options, interval: None }, sideband())
    }

    fn taken(gather: &Gather, time: u64, cpu: u32, count: u64, chain: &[u64]) -> Taken {
        let entry = CountEntry {
            pid: 7,
            tid: 0,
            comm: *b"name\0left behind",
            exec_id: 0,
            ip: 0,
            count,
            period: count * 10,
            cgroup: 0,
            bucket: count as u32,
            first_time: time,
            chain,
            label: &[],
        };
        Taken::of(&gather.by, 0, cpu, &entry)
    }

    /// Whoever asks twice in a moment has the tables emptied once.
    #[test]
    fn what_was_taken_a_moment_ago_is_not_taken_again() {
        let mut gather = gather(&[], Value::Count);
        assert!(gather.ask() && gather.ask(), "nothing was taken yet");
        gather.asked = false;
        // However long this test takes, no time has passed since then.
        gather.emptied = Some(Instant::now() + Duration::from_secs(3600));
        assert!(!gather.ask());
        gather.emptied = Instant::now().checked_sub(FRESH);
        assert!(gather.ask());
    }

    #[test]
    fn an_address_is_what_it_was_at_its_time() {
        let mut gather = gather(&[Key::Ustack], Value::Sum(super::super::Field::Period));
        let chain = [context::USER, 0x10_0010];
        gather.taken = [(30, 0, 4), (10, 0, 1), (12, 1, 2)]
            .map(|(time, cpu, count)| taken(&gather, time, cpu, count, &chain))
            .into();
        // Records come from several rings, in no order.
        gather.settle(&[mapped(20, b"/nonexistent/new"), mapped(5, b"/nonexistent/old")].concat());
        let readout = gather.read_out(&["page-faults".to_owned()], true);
        let rows: Vec<(&str, u64, u64)> = readout.events[0]
            .rows
            .iter()
            .map(|row| (row.user[0].frame.dso.short.as_str(), row.samples, row.value))
            .collect();
        assert_eq!(rows, [("new", 4, 40), ("old", 3, 30)]);
        assert_eq!(gather.samples(), 7);
        assert!(gather.read_out(&["page-faults".to_owned()], true).events[0].rows.is_empty());
    }

    #[test]
    fn cpus_are_added_up_unless_they_are_a_key() {
        for (keys, rows) in [(&[Key::Comm][..], 1), (&[Key::Comm, Key::Cpu], 2)] {
            let mut gather = gather(keys, Value::Hist(super::super::Field::Period));
            gather.taken =
                [(1, 0, 3), (2, 1, 5)].map(|(time, cpu, count)| taken(&gather, time, cpu, count, &[])).into();
            gather.settle(&[]);
            let readout = gather.read_out(&["page-faults".to_owned()], true);
            let event = &readout.events[0];
            assert_eq!(
                (event.rows.len(), event.rows.iter().map(|row| row.samples).sum::<u64>()),
                (rows, 8),
                "{keys:?}"
            );
            assert_eq!(event.rows[0].comm.as_deref(), Some("name"));
            let buckets: Vec<(u32, u64)> = event.rows.iter().flat_map(|row| row.buckets.clone()).collect();
            assert!(buckets.contains(&(3, 3)) && buckets.contains(&(5, 5)), "{buckets:?}");
        }
    }

    #[test]
    fn the_largest_value_stays() {
        let mut gather = gather(&[], Value::Max(super::super::Field::Addr));
        gather.taken = [(1, 0, 3), (2, 1, 5), (3, 0, 1)].map(|(time, cpu, n)| taken(&gather, time, cpu, n, &[])).into();
        gather.settle(&[]);
        let rows = gather.read_out(&["page-faults".to_owned()], true).events.remove(0).rows;
        assert_eq!((rows.len(), rows[0].samples, rows[0].value), (1, 9, 50));
    }

    #[test]
    fn labels_keep_rows_apart() {
        let mut gather = gather(&[Key::Label], Value::Count);
        for (size, samples) in [(0u64, 1), (65, 2), (65, 3), (4, 4)] {
            let mut one = taken(&gather, 1, 0, samples, &[]);
            one.key.label = [size << 32 | 1].into_iter().chain([0; 8]).collect();
            gather.taken.push(one);
        }
        gather.settle(&[]);
        let rows = gather.read_out(&["cpu-clock".to_owned()], true).events.remove(0).rows;
        let seen: Vec<(u64, &Labelled)> = rows.iter().map(|row| (row.samples, row.label.as_ref().unwrap())).collect();
        let long = Labelled::Unreadable("65 bytes, more than the 64 of a key".into());
        let damaged = Labelled::Unreadable("the types of the handler are damaged".into());
        assert_eq!(seen, [(5, &long), (4, &damaged), (1, &Labelled::Not)]);
    }

    #[test]
    fn records_that_make_no_sense_are_left_out() {
        let mut gather = gather(&[Key::Ustack], Value::Count);
        let mut bytes = mapped(5, b"/nonexistent/old");
        for cut in 0..bytes.len() {
            gather.settle(&bytes[..cut]);
        }
        bytes[6] = 3;
        gather.settle(&bytes);
        assert_eq!(gather.samples(), 0);
    }

    #[test]
    fn readings_stay_on_their_grid() {
        let ms = Duration::from_millis;
        assert_eq!(after(ms(500), ms(1501)), ms(2000));
        assert_eq!(after(ms(500), ms(1500)), ms(2000));
        assert_eq!(after(ms(500), ms(499)), ms(500));
        assert_eq!(after(ms(250), ms(2_000_000_100)), ms(2_000_000_250));
    }
}
