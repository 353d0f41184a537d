//! A stream of any length, in the form that `perf record -o -` writes: a made-up machine with processes that come and go.
//!
//! Each process maps a program and libraries at addresses of its own, as a kernel does that randomizes them. Process
//! numbers are used again. So a reader sees new maps, new raw addresses and new stacks for ever, of code that stays the
//! same: what it remembers of a machine and its code should not grow with the length of the stream.

use std::io::{self, BufWriter, IsTerminal, Write};

use afterimage_perf_data::record::{Comm, FileId, Mmap, Mmap2, Record, Sample, SampleId, Task, cpumode, misc};
use afterimage_perf_data::{
    Attr, AttrFlags, Callchain, Endian, EventDesc, Features, Layout, PipeWriter, SampleType, context,
};
use anyhow::{Context, Result, ensure};

#[derive(clap::Args)]
pub(crate) struct Options {
    /// How long the stream is, in bytes, with K, M or G: at least that, and at most a round more
    #[arg(long, value_parser = size)]
    size: u64,
    /// Another seed gives another stream
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

fn size(text: &str) -> Result<u64> {
    let (digits, shift) = match text.chars().last() {
        Some('K') => (&text[..text.len() - 1], 10),
        Some('M') => (&text[..text.len() - 1], 20),
        Some('G') => (&text[..text.len() - 1], 30),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok().and_then(|n| n.checked_mul(1 << shift)).context("a number, with K, M or G")
}

pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!(!io::stdout().is_terminal(), "the stream goes to standard output: send it somewhere");
    let out = BufWriter::with_capacity(1 << 20, io::stdout().lock());
    match write(out, options) {
        // Whoever reads it has had enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}

fn write(out: impl Write, options: &Options) -> io::Result<()> {
    let broken =
        |e: afterimage_perf_data::Error| io::Error::new(e.io_error().map_or(io::ErrorKind::Other, io::Error::kind), e);
    let event = EventDesc { attr: attr(), ids: (1..=u64::from(CPUS)).collect(), name: "cpu-clock".into() };
    let features = Features { os_release: Some("6.1.0".into()), arch: Some("x86_64".into()), ..Features::default() };
    let mut writer = PipeWriter::create(out, &[event], &features).map_err(broken)?;
    let mut machine = Machine::new(options.seed);
    while writer.bytes_written() < options.size {
        let round = machine.round().map_err(broken)?;
        writer.write(round).map_err(broken)?;
        writer.finished_round().map_err(broken)?;
    }
    writer.finish(&features).map_err(broken)?.flush()
}

fn attr() -> Attr {
    use SampleType as S;
    Attr {
        kind: 1,
        period_or_freq: 4000,
        sample_type: S::IP | S::TID | S::TIME | S::CPU | S::PERIOD | S::CALLCHAIN | S::IDENTIFIER,
        flags: AttrFlags::SAMPLE_ID_ALL | AttrFlags::FREQ | AttrFlags::MMAP2 | AttrFlags::COMM | AttrFlags::TASK,
        ..Attr::default()
    }
}

const CPUS: u32 = 4;
/// Processes at a time, and samples that one gets before another takes its place.
const ALIVE: usize = 64;
const LIFE: u32 = 2000;
/// Process numbers: the first, and how many there are.
const FIRST_PID: u32 = 1000;
const PIDS: u32 = 30_000;
/// Samples on each CPU between two ends of a round.
const IN_ROUND: u64 = 4000;
/// ns between two samples of a CPU.
const APART: u64 = 250_000;
const LIBRARIES: u64 = 40;
const PROGRAMS: u64 = 12;
/// Distinct stacks in the kernel, and in each program.
const STACKS: u64 = 2000;
const KERNEL: u64 = 0xffff_ffff_8100_0000;
const KERNEL_LEN: u64 = 0x100_0000;
/// Bytes of each map.
const MAP: u64 = 0x10_0000;
/// Maps of a process: its program, then libraries.
const MAPS: usize = 12;

/// splitmix64.
fn mixed(number: u64) -> u64 {
    let a = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let b = (a ^ a >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let c = (b ^ b >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    c ^ c >> 31
}

#[derive(Clone, Copy)]
struct Process {
    pid: u32,
    program: u64,
    maps: [u64; MAPS],
    left: u32,
}

/// What goes on, and the records of it.
struct Machine {
    layout: Layout,
    random: u64,
    next_pid: u32,
    processes: Vec<Process>,
    rounds: u64,
    out: Vec<u8>,
    chain: Vec<u8>,
}

type Made = afterimage_perf_data::Result<()>;

impl Machine {
    fn new(seed: u64) -> Machine {
        let layout = Layout::new(&attr(), Endian::Little);
        let processes = vec![Process { pid: 0, program: 0, maps: [0; MAPS], left: 0 }; ALIVE];
        Machine { layout, random: mixed(seed), next_pid: 0, processes, rounds: 0, out: Vec::new(), chain: Vec::new() }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_add(1);
        mixed(self.random) % below
    }

    fn put(&mut self, record: &Record<'_>) -> Made {
        record.encode(&self.layout, &mut self.out)
    }

    /// The records between two ends of a round: one CPU after the other.
    fn round(&mut self) -> afterimage_perf_data::Result<&[u8]> {
        self.out.clear();
        if self.rounds == 0 {
            let filename = b"[kernel.kallsyms]_text";
            let id = id(u32::MAX, 0, 0);
            let (addr, len) = (KERNEL, KERNEL_LEN);
            let map = Mmap { pid: u32::MAX, tid: 0, addr, len, pgoff: addr, filename, misc: cpumode::KERNEL, id };
            self.put(&Record::Mmap(map))?;
        }
        for cpu in 0..CPUS {
            for nth in 0..IN_ROUND {
                let time = 1_000_000 + (self.rounds * IN_ROUND + nth) * APART + u64::from(cpu) * 1000;
                // Each CPU has processes of its own.
                let slot = self.random(ALIVE as u64 / u64::from(CPUS)) as usize * CPUS as usize + cpu as usize;
                if self.processes[slot].left == 0 {
                    self.begin(slot, cpu, time - 100)?;
                }
                self.sample(slot, cpu, time)?;
            }
        }
        self.rounds += 1;
        Ok(&self.out)
    }

    /// Another process takes the place of one.
    fn begin(&mut self, slot: usize, cpu: u32, time: u64) -> Made {
        let old = self.processes[slot].pid;
        if old != 0 {
            let task = Task { pid: old, ppid: 1, tid: old, ptid: 1, time, misc: 0, id: id(old, cpu, time) };
            self.put(&Record::Exit(task))?;
        }
        let pid = FIRST_PID + self.next_pid % PIDS;
        self.next_pid = self.next_pid.wrapping_add(1);
        let task = Task { pid, ppid: 1, tid: pid, ptid: 1, time: time + 1, misc: 0, id: id(1, cpu, time + 1) };
        self.put(&Record::Fork(task))?;
        let program = self.random(PROGRAMS);
        let name = format!("program-{program}");
        let comm = Comm { pid, tid: pid, comm: name.as_bytes(), misc: misc::COMM_EXEC, id: id(pid, cpu, time + 2) };
        self.put(&Record::Comm(comm))?;
        let mut maps = [0; MAPS];
        for (nth, addr) in maps.iter_mut().enumerate() {
            *addr = 0x5500_0000_0000 + (nth as u64) * 0x10_0000_0000 + self.random(1 << 20) * 0x1000;
            let path = match nth {
                0 => format!("/usr/bin/program-{program}"),
                nth => format!("/usr/lib/x86_64-linux-gnu/library-{}.so.1", (program * 7 + nth as u64) % LIBRARIES),
            };
            let map = Mmap2 {
                pid,
                tid: pid,
                addr: *addr,
                len: MAP,
                pgoff: 0x1000,
                file: FileId::Inode { maj: 8, min: 1, ino: 1000 + mixed(path.len() as u64) % 7, generation: 0 },
                prot: 5,
                flags: 2,
                filename: path.as_bytes(),
                misc: cpumode::USER,
                id: id(pid, cpu, time + 3 + nth as u64),
            };
            self.put(&Record::Mmap2(map))?;
        }
        let left = LIFE / 2 + self.random(LIFE.into()) as u32;
        self.processes[slot] = Process { pid, program, maps, left };
        Ok(())
    }

    fn sample(&mut self, slot: usize, cpu: u32, time: u64) -> Made {
        let Process { pid, program, maps, .. } = self.processes[slot];
        self.processes[slot].left -= 1;
        // Some stacks come much more often than others.
        let stack = self.random(STACKS) * self.random(STACKS) / STACKS;
        let in_kernel = self.random(2) == 0;
        self.chain.clear();
        if in_kernel {
            self.chain.extend(context::KERNEL.to_le_bytes());
            for depth in 0..3 + mixed(stack) % 12 {
                let addr = KERNEL + mixed(stack / (depth + 1) * 64 + depth) % KERNEL_LEN;
                self.chain.extend(addr.to_le_bytes());
            }
        }
        self.chain.extend(context::USER.to_le_bytes());
        let stack = stack + program * STACKS;
        for depth in 0..3 + mixed(stack) % 20 {
            // The outer frames of many stacks are the same.
            let frame = mixed(stack / (depth + 1) * 64 + depth);
            let addr = maps[(frame >> 32) as usize % MAPS] + frame % MAP;
            self.chain.extend(addr.to_le_bytes());
        }
        let ip = self.chain.get(8..16).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
        let chain = std::mem::take(&mut self.chain);
        let sample = Sample {
            misc: if in_kernel { cpumode::KERNEL } else { cpumode::USER },
            identifier: Some(1 + u64::from(cpu)),
            ip: Some(ip),
            pid: Some(pid),
            tid: Some(pid),
            time: Some(time),
            cpu: Some(cpu),
            period: Some(APART),
            callchain: Some(Callchain::new(&chain, Endian::Little)),
            ..Sample::default()
        };
        let made = self.put(&Record::Sample(sample));
        self.chain = chain;
        made
    }
}

fn id(pid: u32, cpu: u32, time: u64) -> SampleId {
    let identifier = Some(1 + u64::from(cpu));
    SampleId { pid: Some(pid), tid: Some(pid), time: Some(time), cpu: Some(cpu), identifier, ..SampleId::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use afterimage_perf_data::FileReader;
    use afterimage_perf_data::record::kind;

    #[test]
    fn a_stream_is_as_long_as_asked_and_whole() {
        let mut out = Vec::new();
        write(&mut out, &Options { size: 3 << 20, seed: 7 }).unwrap();
        let mut again = Vec::new();
        write(&mut again, &Options { size: 3 << 20, seed: 7 }).unwrap();
        assert!(out == again && out.len() >= 3 << 20 && out.len() < 9 << 20, "{}", out.len());
        let reader = FileReader::open(&out).unwrap();
        assert!(reader.is_pipe() && reader.problems().is_empty());
        let mut counts = std::collections::BTreeMap::new();
        for raw in reader.records() {
            let raw = raw.unwrap();
            *counts.entry(raw.header.kind).or_insert(0_u64) += 1;
            reader.decode(&raw).unwrap();
        }
        let of = |kind: u32| counts.get(&kind).copied().unwrap_or(0);
        assert_eq!(of(kind::SAMPLE), of(kind::FINISHED_ROUND) * u64::from(CPUS) * IN_ROUND);
        assert!(of(kind::FORK) >= ALIVE as u64 && of(kind::FORK) == of(kind::COMM));
        assert_eq!(of(kind::MMAP2), of(kind::FORK) * MAPS as u64);
    }

    #[test]
    fn sizes_have_letters() {
        assert_eq!((size("20G").unwrap(), size("3M").unwrap(), size("12").unwrap()), (20 << 30, 3 << 20, 12));
        assert!(size("").is_err() && size("G").is_err() && size("99999999999G").is_err());
    }
}
