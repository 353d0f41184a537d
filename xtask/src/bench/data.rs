//! The recordings that the reading benches use: from a quarter of a million to ten million samples, made from real ones of
//! stock perf.
//!
//! A few seconds of this machine at work are recorded by perf. The data section then follows itself as often as needed,
//! each time later by the length of the recording; what perf synthesized at its start, which has no time, stays single.
//! Processes that came and went do so again in every copy, as in a long recording.

use super::{folder, process, retrying};
use afterimage_perf_data::{Attr, AttrFlags, Endian, SampleType};
use afterimage_testkit::workload;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::io::{BufWriter, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

const SAMPLE: u32 = 9;
const FINISHED_ROUND: u32 = 68;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// shallow, deep or wide; all of them when none is named
    names: Vec<String>,
    /// Samples in each file, at least; several files of each kind
    #[arg(long, value_delimiter = ',', default_values_t = [240_000, 1_200_000, 10_000_000])]
    samples: Vec<u64>,
    /// Seconds that are recorded first
    #[arg(long, default_value_t = 8)]
    seconds: u32,
}

/// A recording to read, and what is in it.
#[derive(Clone, Debug)]
pub(crate) struct Recording {
    pub(crate) name: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) samples: u64,
}

/// Few shallow stacks, many deep ones, and those of very many programs.
const NAMES: [&str; 3] = ["shallow", "deep", "wide"];

pub(crate) fn run(options: &Options) -> Result<()> {
    if let Some(unknown) = options.names.iter().find(|name| !NAMES.contains(&name.as_str())) {
        bail!("no recording is called {unknown}; there are {}", NAMES.join(", "));
    }
    for name in NAMES.into_iter().filter(|name| options.names.is_empty() || options.names.iter().any(|n| n == name)) {
        let base = retrying(|| record(name, options.seconds))?;
        let bytes = fs::read(&base)?;
        let layout = Layout::of(&bytes)?;
        for wanted in &options.samples {
            let path = folder()?.join(format!("{name}-{wanted}.data"));
            let samples = layout.repeat(&bytes, *wanted, &path)?;
            fs::write(path.with_extension("samples"), samples.to_string())?;
            let mib = fs::metadata(&path)?.len() >> 20;
            println!("{}: {samples} samples, {mib} MiB", path.display());
        }
        fs::remove_file(base)?;
    }
    Ok(())
}

/// The recordings, as `bench-data` left them, by name and then by length; none with more than `most` samples.
pub(crate) fn recordings(most: u64) -> Result<Vec<Recording>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder()?)? {
        let path = entry?.path();
        let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        let Some(name) = NAMES.into_iter().find(|name| stem.split('-').next() == Some(name)) else { continue };
        if path.extension().is_some_and(|end| end == "samples") {
            let samples = fs::read_to_string(&path)?.parse()?;
            found.push(Recording { name, path: path.with_extension("data"), samples });
        }
    }
    found.retain(|recording| recording.samples <= most);
    found.sort_by_key(|recording| (NAMES.iter().position(|name| *name == recording.name), recording.samples));
    ensure!(!found.is_empty(), "no recordings to read; first run: cargo xtask bench-data");
    Ok(found)
}

/// Work for a shell that goes on until it is ended. Commands that a machine lacks fail, which is quick.
const SMALL_COMMANDS: &str = "cd /usr/bin; while :; do ls -lR /usr/share; cat /usr/lib/*/*.so* | cksum; \
    find /etc -type f | sort | xargs wc -c; done";

/// Compilers: few programs with very many functions, a process for each file.
const COMPILERS: &str = "while :; do for f in ./*.c; do cc -O2 -w -c -o /dev/null $f; clang -O1 -w -c -o /dev/null $f; done; \
    for h in vector map regex random iostream thread; do \
    printf '#include <%s>\\nint main() { return 0; }' $h | c++ -O1 -x c++ -c -o /dev/null -; done; \
    echo 'fn main() { println!(\"{:?}\", vec![1, 2]); }' | rustc --out-dir . --crate-name made -; ./made; done";

/// Many programs with many libraries, each for a moment.
const SCRIPTS: &str = "while :; do \
    python3 -c 'import json, re, email, http.client, decimal, sqlite3, ctypes; \
        print(len(json.dumps([re.sub(\"a+\", \"b\", str(n)) for n in range(30000)])))'; \
    perl -MPOSIX -MData::Dumper -e 'my %h; $h{$_ % 977} .= chr(65 + $_ % 26) for 1 .. 200000; print Dumper(\\%h)'; \
    find /usr/lib /usr/share -newer /etc/hostname -name '*.s*' | awk '{ n[length($0)]++ } END { for (k in n) print k, n[k] }'; \
    tar c /usr/include/linux | gzip -1 | gunzip | tar t | sort -r | uniq | sed 's/h$/H/' | md5sum; \
    tar c /etc | xz -0 | xz -d | sha256sum; grep -rc define /usr/include; nm -D /usr/lib/*/libstdc++.so.6; \
    objdump -d /usr/bin/ls | head -n 20000; git --version; openssl speed -seconds 1 -bytes 16 sha256; dpkg -l; \
    dpkg-query -W | cut -f 1 | head -n 40 | xargs dpkg -L; bash -c 'for i in {1..20000}; do x=$((x + i)); done'; \
    gdb -batch -ex 'info functions main' /usr/bin/perl; perf --version; curl --version; vim --version; ps aux; done";

/// Records this machine while it runs small commands beside a program with few shallow stacks or with many deep ones, or
/// while it runs very many programs.
fn record(name: &str, seconds: u32) -> Result<PathBuf> {
    let paths = workload::build();
    let path = folder()?.join(format!("{name}-base.data"));
    // perf would keep an older one beside it.
    let _ = fs::remove_file(&path);
    let work = tempfile::tempdir_in(folder()?)?;
    for source in fs::read_dir(paths.split.parent().context("workload")?)? {
        let source = source?;
        if source.path().extension().is_some_and(|end| end == "c" || end == "h") {
            fs::copy(source.path(), work.path().join(source.file_name()))?;
        }
    }
    // Build IDs in the records of maps: that is how the kernel's names are known to be right, and perf 6.1 does not
    // gather them at its end, where it aborts if BPF programs come and go meanwhile.
    let recorder = Command::new("/usr/bin/perf")
        .args(["record", "-q", "--buildid-mmap", "-N", "-a", "-g", "-e", "cpu-clock", "-F", "9999", "-m", "1024", "-o"])
        .arg(&path)
        .args(["--", "sleep", &seconds.to_string()])
        .stderr(Stdio::piped())
        .spawn()
        .context("perf record")?;
    let shells: &[&str] = if name == "wide" { &[COMPILERS, SCRIPTS, SCRIPTS] } else { &[SMALL_COMMANDS] };
    let mut busy: Vec<Child> = Vec::new();
    for script in shells {
        let mut shell = Command::new("sh");
        let shell = shell.args(["-c", script]).current_dir(work.path()).process_group(0);
        busy.push(shell.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?);
    }
    let program = match name {
        "shallow" => Some((&paths.split, None)),
        "deep" => Some((&paths.forest, Some("5000"))),
        _ => None,
    };
    for (program, more) in program.into_iter().chain(program) {
        let mut program = Command::new(program);
        let program = program.arg((seconds * 2).to_string()).args(more).process_group(0);
        busy.push(program.stdout(Stdio::null()).spawn()?);
    }
    let recorded = recorder.wait_with_output()?;
    for child in busy {
        // With all that it started and that still runs.
        let group = libc::pid_t::try_from(child.id())?;
        // SAFETY: it takes two numbers. The group is that of a child that was not waited for, so its number is no other's.
        unsafe { libc::kill(-group, libc::SIGKILL) };
        process::reap(child)?;
    }
    let said = String::from_utf8_lossy(&recorded.stderr);
    ensure!(recorded.status.success(), "perf record: {}: {said}", recorded.status);
    Ok(path)
}

/// Where things are in a perf.data file: offsets and lengths in bytes.
struct Layout {
    data: (usize, usize),
    /// One file section (offset, size) a feature, right behind the data.
    features: usize,
    /// Bytes of every record behind TIME, and bytes of a SAMPLE before it.
    behind_time: usize,
    before_time: usize,
}

impl Layout {
    fn of(file: &[u8]) -> Result<Layout> {
        ensure!(file.starts_with(b"PERFILE2"), "not a perf.data file");
        let attr_size = number(file, 16)?;
        let (attrs, attrs_size) = (number(file, 24)?, number(file, 32)?);
        let data = (number(file, 40)?, number(file, 48)?);
        let features = (0..4).map(|word| Ok(number(file, 72 + 8 * word)?.count_ones())).sum::<Result<u32>>()?;
        let mut places = Vec::new();
        for at in (attrs..attrs + attrs_size).step_by(attr_size) {
            let bytes = file.get(at..at + attr_size - 16).context("attrs")?;
            let attr = Attr::decode(bytes, Endian::Little)?;
            ensure!(attr.flags.contains(AttrFlags::SAMPLE_ID_ALL), "records without a time");
            places.push(places_of_time(attr.sample_type)?);
        }
        places.dedup();
        let [(before_time, behind_time)] = places[..] else { bail!("events with different fields") };
        Ok(Layout { data, features: features as usize, behind_time, before_time })
    }

    /// Writes `file` with its records repeated until there are at least `wanted` samples; gives how many there are.
    fn repeat(&self, file: &[u8], wanted: u64, to: &Path) -> Result<u64> {
        let (start, size) = self.data;
        let data = file.get(start..start + size).context("data section")?;
        let (once, span) = self.survey(data)?;
        ensure!(once > 0, "no samples were recorded");
        let copies = wanted.div_ceil(once);
        let mut out = BufWriter::new(fs::File::create(to)?);
        out.write_all(&file[..start])?;
        let mut written = 0;
        let mut record = Vec::new();
        for copy in 0..copies {
            for bytes in records(data) {
                let bytes = bytes?;
                let Some(at) = self.place_of_time(bytes)? else {
                    if copy == 0 || kind(bytes)? == FINISHED_ROUND {
                        out.write_all(bytes)?;
                        written += bytes.len();
                    }
                    continue;
                };
                record.clear();
                record.extend_from_slice(bytes);
                let time = number(bytes, at)? as u64 + copy * span;
                record[at..at + 8].copy_from_slice(&time.to_le_bytes());
                out.write_all(&record)?;
                written += record.len();
            }
        }
        self.write_features(file, written, &mut out)?;
        out.flush()?;
        patch_data_size(to, written)?;
        Ok(once * copies)
    }

    /// Samples, and the time between the first and the last record (and a little more), in ns.
    fn survey(&self, data: &[u8]) -> Result<(u64, u64)> {
        let (mut samples, mut first, mut last) = (0, u64::MAX, 0);
        for bytes in records(data) {
            let bytes = bytes?;
            samples += u64::from(kind(bytes)? == SAMPLE);
            if let Some(at) = self.place_of_time(bytes)? {
                let time = number(bytes, at)? as u64;
                first = first.min(time);
                last = last.max(time);
            }
        }
        Ok((samples, last.saturating_sub(first) + 1_000_000))
    }

    /// Where a record's time is, when it has one.
    fn place_of_time(&self, bytes: &[u8]) -> Result<Option<usize>> {
        let at = match kind(bytes)? {
            SAMPLE => 8 + self.before_time,
            64.. => return Ok(None),
            _ => bytes.len().checked_sub(self.behind_time + 8).context("short record")?,
        };
        Ok((number(bytes, at)? != 0).then_some(at))
    }

    /// The table of feature sections and the sections, moved by as much as the data grew.
    fn write_features(&self, file: &[u8], written: usize, out: &mut impl Write) -> Result<()> {
        let (start, size) = self.data;
        let table = start + size;
        let moved = written - size;
        for index in 0..self.features {
            let at = table + 16 * index;
            out.write_all(&((number(file, at)? + moved) as u64).to_le_bytes())?;
            out.write_all(&(number(file, at + 8)? as u64).to_le_bytes())?;
        }
        out.write_all(file.get(table + 16 * self.features..).context("feature sections")?)?;
        Ok(())
    }
}

/// Bytes of fields before TIME in a SAMPLE, and behind TIME in the id at the end of other records.
fn places_of_time(fields: SampleType) -> Result<(usize, usize)> {
    ensure!(fields.contains(SampleType::TIME), "an event without a time");
    let bytes = |list: SampleType| 8 * (fields & list).bits().count_ones() as usize;
    let before = SampleType::IDENTIFIER | SampleType::IP | SampleType::TID;
    let behind = SampleType::ID | SampleType::STREAM_ID | SampleType::CPU | SampleType::IDENTIFIER;
    Ok((bytes(before), bytes(behind)))
}

fn patch_data_size(path: &Path, size: usize) -> Result<()> {
    use std::os::unix::fs::FileExt;
    let file = fs::OpenOptions::new().write(true).open(path)?;
    Ok(file.write_all_at(&(size as u64).to_le_bytes(), 48)?)
}

/// The whole records of a data section.
fn records(mut data: &[u8]) -> impl Iterator<Item = Result<&[u8]>> {
    std::iter::from_fn(move || {
        if data.is_empty() {
            return None;
        }
        let size = data.get(6..8).map_or(0, |s| usize::from(u16::from_le_bytes([s[0], s[1]])));
        if size < 8 || size > data.len() {
            data = &[];
            return Some(Err(anyhow::anyhow!("a record of {size} bytes")));
        }
        let (record, rest) = data.split_at(size);
        data = rest;
        Some(Ok(record))
    })
}

fn kind(record: &[u8]) -> Result<u32> {
    Ok((number(record, 0)? & 0xffff_ffff) as u32)
}

fn number(bytes: &[u8], at: usize) -> Result<usize> {
    let word: [u8; 8] = bytes.get(at..at + 8).context("cut short")?.try_into()?;
    Ok(usize::try_from(u64::from_le_bytes(word))?)
}

#[cfg(test)]
mod tests {
    use super::places_of_time;
    use afterimage_perf_data::SampleType as Field;

    #[test]
    fn time_stands_behind_identifier_ip_and_tid() {
        let fields = Field::IP | Field::TID | Field::TIME | Field::CPU | Field::PERIOD | Field::IDENTIFIER;
        assert_eq!(places_of_time(fields).unwrap(), (24, 16));
        assert_eq!(places_of_time(Field::IP | Field::TIME).unwrap(), (8, 0));
        assert!(places_of_time(Field::IP).is_err());
    }
}
