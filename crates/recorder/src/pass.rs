//! One pass: drain every ring past its head at the start, drain the count tables, write, mark the end.

use afterimage_handler::CountEntry;
use afterimage_perf_data::record::{append_repaired, cpumode, kind};
use afterimage_perf_data::{Callchain, Endian, EventDesc, Layout, Record, Sample, TrueCounts};
use afterimage_perf_event::ring::RingError;

use crate::RecordError;
use crate::book::RingOwner;
use crate::by::Gather;
use crate::files::MappedFiles;
use crate::jit::Follower;
use crate::nested::Nested;
use crate::output::{Output, PassContent};
use crate::session::Session;
use crate::tallies;

/// What the passes of one recording carry from one to the next.
pub(crate) struct Passes {
    events: Vec<EventDesc>,
    /// Where the entries of each event's count table go.
    count_targets: Vec<Option<CountTarget>>,
    /// What goes to the file with this pass; between passes the news that were heard meanwhile.
    buffer: Vec<u8>,
    sideband: Layout,
    /// A record of the sideband as it ought to be.
    repaired: Vec<u8>,
    /// Files that processes map.
    pub(crate) files: MappedFiles,
    /// True counts of the whole recording, by event in the file.
    pub(crate) true_counts: Vec<TrueCounts>,
    /// The first ring that did not make sense, and how often one did not.
    pub(crate) damage: Option<(RingError, u64)>,
    /// Time of the first and last sample.
    pub(crate) span: Option<(u64, u64)>,
    /// Where samples are counted by keys, what was counted.
    pub(crate) gather: Option<Gather>,
    /// Maps and dumps of JIT compilers, where the recording has a place for what they tell.
    pub(crate) jit: Option<Follower>,
    /// Numbers of processes in namespaces of their own, where those are recorded.
    pub(crate) nested: Option<Nested>,
}

/// How the entries of one count table are written.
#[derive(Clone, Debug)]
pub(crate) struct CountTarget {
    /// The sampling event.
    pub(crate) event: usize,
    /// The event in the file that the entries belong to.
    pub(crate) file_event: usize,
    /// The id that they carry, by CPU.
    pub(crate) ids: Vec<(u32, u64)>,
}

impl Passes {
    pub(crate) fn new(events: Vec<EventDesc>, sideband: Layout, count_targets: Vec<Option<CountTarget>>) -> Passes {
        Passes {
            events,
            count_targets,
            buffer: Vec::new(),
            sideband,
            repaired: Vec::new(),
            files: MappedFiles::new(sideband),
            true_counts: Vec::new(),
            damage: None,
            span: None,
            gather: None,
            jit: None,
            nested: None,
        }
    }

    /// Where the entries of each event's count table go.
    pub(crate) fn count_targets(&self) -> &[Option<CountTarget>] {
        &self.count_targets
    }

    /// Runs one pass.
    ///
    /// # Errors
    /// When the recording cannot be written.
    pub(crate) fn run(&mut self, session: &mut Session, output: &mut Output) -> Result<(), RecordError> {
        session.end_first_audit(false);
        if let Some(audit) = &mut session.audit {
            audit.drain();
        }
        if self.gather.is_some() {
            self.count(session);
            return Ok(());
        }
        session.texts.begin_pass();
        self.drain_rings(session, false);
        session.texts.pass();
        self.write(session, output)?;
        session.texts.end_pass();
        Ok(())
    }

    /// Writes what a pass has read.
    fn write(&mut self, session: &mut Session, output: &mut Output) -> Result<(), RecordError> {
        let news = session.texts.news();
        let mut counts = self.drain_tables(session)?;
        if let Some(waiting) = &mut session.off_cpu {
            counts.extend(waiting.drain(&session.cpus, &mut self.buffer, &mut self.span)?);
        }
        self.hear_compilers(output, true)?;
        if let Some(nested) = &mut self.nested {
            output.nested(&nested.take())?;
        }
        if self.buffer.is_empty() {
            return output.news(&news);
        }
        let tally = tallies::so_far(session);
        output.pass(&PassContent { records: &self.buffer, true_counts: &counts, tally: &tally, news: &news })?;
        self.buffer.clear();
        for (event, more) in counts {
            match self.true_counts.iter_mut().find(|known| known.event == event) {
                Some(known) => known.counts.extend(more),
                None => self.true_counts.push(TrueCounts { event, counts: more }),
            }
        }
        Ok(())
    }

    /// The same where samples are counted by keys. Equal keys add up in the kernel for nothing, so its tables are emptied only
    /// when they fill, when somebody asks, and when addresses change their meaning: an entry must not live through that.
    fn count(&mut self, session: &mut Session) {
        self.drain_rings(session, false);
        let Some(gather) = &mut self.gather else { return };
        if self.buffer.is_empty() && !gather.must_take(session) {
            return;
        }
        gather.take(session);
        // Whatever was there before the last sample that was taken has been told by now.
        self.drain_rings(session, false);
        self.settle();
    }

    /// What was counted by keys is to be taken with the next pass; false where nothing is, or nothing that would be new.
    pub(crate) fn ask(&mut self) -> bool {
        self.gather.as_mut().is_some_and(Gather::ask)
    }

    /// What came out of the rings tells the counts by keys what their addresses are.
    fn settle(&mut self) {
        if let Some(gather) = &mut self.gather {
            gather.settle(&self.buffer);
        }
        self.buffer.clear();
    }

    /// The same with records that were made up of what was there before.
    pub(crate) fn settle_before(&mut self, records: &[u8]) {
        if let Some(gather) = &mut self.gather {
            gather.settle(records);
        }
    }

    /// Reads what JIT compilers told since the last time, and writes it down where that is due.
    ///
    /// # Errors
    /// When the recording cannot be written.
    pub(crate) fn hear_compilers(&mut self, output: &mut Output, write: bool) -> Result<(), RecordError> {
        let Some(jit) = &mut self.jit else { return Ok(()) };
        jit.look();
        if write || jit.is_full() { output.jit(&jit.take()) } else { Ok(()) }
    }

    /// Takes the news of processes and kernel text out of their rings, and holds mapped files while they can be reached.
    pub(crate) fn hear(&mut self, session: &mut Session) {
        self.drain_rings(session, true);
        if let Some(jit) = &mut self.jit {
            jit.look();
        }
        session.texts.after_news();
    }

    /// Bytes of news that wait for the next pass.
    pub(crate) fn waiting(&self) -> usize {
        self.buffer.len()
    }

    /// Moves everything that is in the rings now, or in those of the news alone.
    fn drain_rings(&mut self, session: &mut Session, news: bool) {
        let heads: Vec<u64> = session.rings().0.map(|(ring, _)| ring.head()).collect();
        let (rings, book, texts) = session.rings();
        // What the rings of samples hold besides is of no use to counts by keys.
        let mut unused = Vec::new();
        for ((ring, owner), until) in rings.zip(heads) {
            if news && owner != RingOwner::Sideband {
                continue;
            }
            let drained = ring.drain(until, &mut |record| {
                if let RingOwner::Sideband = owner {
                    self.repaired.clear();
                    append_repaired(record, &self.sideband, &mut self.repaired);
                    if self.gather.is_none() {
                        self.files.learn(&self.repaired);
                    }
                    if let Some(jit) = &mut self.jit {
                        jit.learn(&self.repaired);
                    }
                    if let Some(nested) = &mut self.nested {
                        nested.learn(&self.repaired);
                    }
                    texts.learn(&self.repaired);
                    book.take(owner, &self.repaired, &mut self.buffer);
                } else if self.gather.is_some() {
                    unused.clear();
                    book.take(owner, record, &mut unused);
                } else {
                    note_time(record, &mut self.span);
                    book.take(owner, record, &mut self.buffer);
                }
            });
            if let Err(error) = drained {
                let (first, times) = self.damage.take().unwrap_or((error, 0));
                self.damage = Some((first, times + 1));
            }
        }
    }

    /// Writes what the count tables hold as samples; returns how many samples each of them stands for.
    fn drain_tables(&mut self, session: &mut Session) -> Result<Vec<(usize, Vec<u64>)>, RecordError> {
        let mut all = Vec::new();
        let Some(handlers) = session.handlers.as_mut() else { return Ok(all) };
        for target in self.count_targets.iter().flatten() {
            let Some(stub) = session.stubs.get(target.event).copied().flatten() else { continue };
            let Some(layout) = self.events.get(target.file_event).map(|e| Layout::new(&e.attr, Endian::NATIVE)) else {
                continue;
            };
            let mut counts = Vec::new();
            let mut failed = None;
            for &(cpu, id) in &target.ids {
                let (buffer, span) = (&mut self.buffer, &mut self.span);
                let stats = handlers.drain_counts(stub, cpu, &mut |entry| {
                    counts.push(entry.count);
                    widen(span, entry.first_time);
                    if let Err(error) = encode(entry, cpu, id, &layout, buffer) {
                        failed = Some(error);
                    }
                });
                session.book.stored(target.event, cpu, stats.samples);
            }
            if let Some(error) = failed {
                return Err(error.into());
            }
            if !counts.is_empty() {
                all.push((target.file_event, counts));
            }
        }
        Ok(all)
    }
}

/// An entry as a sample: its time is that of its first sample, when all of its addresses were what they were.
fn encode(
    entry: &CountEntry<'_>,
    cpu: u32,
    id: u64,
    layout: &Layout,
    out: &mut Vec<u8>,
) -> Result<(), afterimage_perf_data::Error> {
    let chain: Vec<u8> = entry.chain.iter().flat_map(|word| word.to_ne_bytes()).collect();
    // Kernel addresses are those with the highest bit set.
    let mode = if entry.ip >> 63 == 1 { cpumode::KERNEL } else { cpumode::USER };
    let sample = Sample {
        misc: mode,
        identifier: Some(id),
        ip: Some(entry.ip),
        pid: Some(entry.pid),
        tid: Some(entry.tid),
        time: Some(entry.first_time),
        cpu: Some(cpu),
        period: Some(entry.period),
        callchain: Some(Callchain::new(&chain, Endian::NATIVE)),
        ..Sample::default()
    };
    Record::Sample(sample).encode(layout, out)
}

/// The time of a sample of ours stands behind identifier, ip, pid and tid.
fn note_time(record: &[u8], span: &mut Option<(u64, u64)>) {
    let is_sample = record.first_chunk::<4>().is_some_and(|k| u32::from_ne_bytes(*k) == kind::SAMPLE);
    let time = record.get(32..40).and_then(|b| b.try_into().ok()).map(u64::from_ne_bytes);
    if let (true, Some(time)) = (is_sample, time) {
        widen(span, time);
    }
}

fn widen(span: &mut Option<(u64, u64)>, time: u64) {
    *span = Some(span.map_or((time, time), |(first, last)| (first.min(time), last.max(time))));
}
