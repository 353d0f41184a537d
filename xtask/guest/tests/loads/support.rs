//! Runs a load while the sideband of all CPUs is open, and keeps what it told.

use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use afterimage_perf_data::{AttrFlags, Endian, Layout, RawRecord, Record, decode};
use afterimage_perf_event::facts::Facts;
use afterimage_perf_event::open::{Options, Target};
use afterimage_perf_event::sideband::{self, Sideband};
use afterimage_perf_event::sys::{Kernel, Real};
use serde_json::Value;

/// Bytes of the sample id at the end of a record of the sideband: TID, TIME, CPU, IDENTIFIER.
const SAMPLE_ID: usize = 32;

/// A record without the bytes behind its sample id. Where several events listen on a CPU, the kernel counts the sample
/// ids of all that came before into the size of these records (`perf_event_ksymbol_output` and
/// `perf_event_text_poke_output` in kernel/events/core.c do not put the size back); tests run side by side.
fn shortened(bytes: &[u8], sample_id: usize) -> Vec<u8> {
    let u16_at = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let body = match bytes[0] {
        // KSYMBOL: the name follows 24 bytes.
        17 => 24 + bytes[24..].iter().position(|byte| *byte == 0).unwrap() + 1,
        // TEXT_POKE: old and new bytes, whose numbers come before.
        20 => 20 + u16_at(16) + u16_at(18),
        _ => return bytes.to_vec(),
    };
    let size = body.next_multiple_of(8) + sample_id;
    assert!(size <= bytes.len() && (bytes.len() - size) % sample_id == 0, "{bytes:02x?}");
    let mut record = bytes[..size].to_vec();
    record[6..8].copy_from_slice(&(size as u16).to_le_bytes());
    record
}

/// Kernel text that came or went.
#[derive(Clone, Debug)]
pub(crate) struct Symbol {
    pub(crate) name: String,
    pub(crate) addr: u64,
    pub(crate) len: u32,
    pub(crate) goes: bool,
    pub(crate) time: u64,
    pub(crate) pid: u32,
}

/// Kernel text that changed.
#[derive(Clone, Debug)]
pub(crate) struct Poke {
    pub(crate) addr: u64,
    pub(crate) time: u64,
}

/// What a load said, and what the kernel said while it ran.
pub(crate) struct Seen {
    pub(crate) pid: u32,
    pub(crate) objects: Vec<Value>,
    pub(crate) symbols: Vec<Symbol>,
    pub(crate) pokes: Vec<Poke>,
    band: Sideband,
}

pub(crate) fn command(arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_load"));
    command.args(arguments.split_whitespace());
    command
}

/// The objects that a load printed; checks the summary.
pub(crate) fn objects(stdout: &[u8]) -> Vec<Value> {
    let text = std::str::from_utf8(stdout).unwrap();
    let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let summary = lines.pop().expect("a summary");
    assert_eq!(summary["kind"], "summary");
    assert_eq!(summary["objects"], lines.len(), "{summary}");
    for object in &lines {
        assert_eq!(object["kind"], summary["load"]);
        let (born, gone) = (number(object, "born_ns"), number(object, "gone_ns"));
        assert!(
            number(&summary, "began_ns") <= born && born < gone && gone <= number(&summary, "ended_ns"),
            "{object}"
        );
    }
    lines
}

/// Runs a load to its end and reads what the kernel told meanwhile.
pub(crate) fn watch(arguments: &str) -> Seen {
    let kernel: Arc<dyn Kernel> = Arc::new(Real);
    let facts = Facts::system();
    let target = Target::Cpus(facts.online_cpus().unwrap());
    let wanted = AttrFlags::KSYMBOL | AttrFlags::TEXT_POKE;
    let band = sideband::open(&kernel, &facts, &target, wanted, Options { pages: 512 }).unwrap();
    assert!(band.missing.is_empty(), "{:?}", band.missing);
    let child = command(arguments).stdout(std::process::Stdio::piped()).spawn().unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "load {arguments}: {}", output.status);
    let mut seen = Seen { pid, objects: objects(&output.stdout), symbols: Vec::new(), pokes: Vec::new(), band };
    seen.read();
    seen
}

impl Seen {
    /// Reads what has come since.
    fn read(&mut self) {
        let layout = Layout::new(self.band.attr(), Endian::Little);
        for ring in &mut self.band.opened.rings {
            let head = ring.head();
            let keep = &mut |bytes: &[u8]| {
                let bytes = shortened(bytes, SAMPLE_ID);
                let raw = RawRecord::parse(&bytes, 0, Endian::Little).unwrap();
                match decode(&raw, &layout).unwrap() {
                    Record::Ksymbol(k) => self.symbols.push(Symbol {
                        name: String::from_utf8_lossy(k.name).into_owned(),
                        addr: k.addr,
                        len: k.len,
                        goes: k.unregister(),
                        time: k.id.time.unwrap(),
                        pid: k.id.pid.unwrap(),
                    }),
                    Record::TextPoke(poke) => {
                        self.pokes.push(Poke { addr: poke.addr, time: poke.id.time.unwrap() });
                    }
                    Record::Lost(lost) => panic!("{lost:?}: the rings of this test are too small"),
                    _ => {}
                }
            };
            ring.drain(head, keep).unwrap();
        }
        // Each CPU has a ring of its own, and what comes on one may go on another.
        self.symbols.sort_by_key(|symbol| symbol.time);
        self.pokes.sort_by_key(|poke| poke.time);
    }

    /// Waits for what the kernel does later.
    pub(crate) fn until(&mut self, what: &str, done: impl Fn(&Seen) -> bool) {
        let start = Instant::now();
        while !done(self) {
            assert!(start.elapsed() < Duration::from_secs(60), "{what} did not come");
            thread::sleep(Duration::from_millis(20));
            self.read();
        }
    }

    /// The one record of that text coming, or going, inside of an object's life.
    pub(crate) fn one(&self, object: &Value, name: &str, goes: bool) -> &Symbol {
        let life = life(object);
        let fits = |s: &&Symbol| s.goes == goes && s.name == name && life.contains(&s.time);
        let all: Vec<_> = self.symbols.iter().filter(fits).collect();
        let ever = || self.symbols.iter().filter(|s| s.name == name).collect::<Vec<_>>();
        assert_eq!(all.len(), 1, "{name}, goes {goes}, in {object}; ever: {:?}", ever());
        all[0]
    }

    /// Changes of text within `range` during the life of `object`.
    pub(crate) fn pokes_in(&self, object: &Value, range: std::ops::Range<u64>) -> usize {
        let life = life(object);
        self.pokes.iter().filter(|p| life.contains(&p.time) && range.contains(&p.addr)).count()
    }
}

pub(crate) fn life(object: &Value) -> std::ops::RangeInclusive<u64> {
    number(object, "born_ns")..=number(object, "gone_ns")
}

pub(crate) fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key} of {value}"))
}

pub(crate) fn text<'v>(value: &'v Value, key: &str) -> &'v str {
    value[key].as_str().unwrap_or_else(|| panic!("{key} of {value}"))
}

pub(crate) fn address(value: &Value) -> u64 {
    u64::from_str_radix(text(value, "address").trim_start_matches("0x"), 16).unwrap()
}

/// Every function of a program came and went under its name, at its place, within the program's life.
pub(crate) fn came_and_went(seen: &Seen, object: &Value) {
    let functions = object["functions"].as_array().unwrap();
    assert!(!functions.is_empty(), "{object}");
    for function in functions {
        for goes in [false, true] {
            let record = seen.one(object, text(function, "name"), goes);
            assert_eq!((record.addr, u64::from(record.len)), (address(function), number(function, "length")));
        }
    }
}
