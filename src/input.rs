//! The recording that a view reads: opening it, its journal, and what is said about its state.

use std::cell::Cell;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use afterimage_perf_data::{AnySource, Behind, ErrorKind, FileReader, PartsSource, RecordStream, journal, stream};
use afterimage_profile::{ReplayStats, ResolveOptions};
use afterimage_symbols::Finder;
use afterimage_symbols::file::FileBytes;
use anyhow::Context;

use crate::cli::InputArgs;
use crate::debuginfod::{Report, Servers};
use crate::exit::{Exit, Problem};
use crate::say::Say;
use crate::terminal::grouped;

/// The bytes of a recording, and of the journal that an unfinished one has beside it.
pub(crate) struct Input {
    name: String,
    bytes: Bytes,
    /// Of a stream: what follows its beginning, until somebody reads it.
    rest: Cell<Option<File>>,
    /// Of a folder with a file for each recording thread: these files.
    parts: Vec<FileBytes>,
    /// Numbers of such files that ought to be there and are not.
    missing: Vec<u32>,
    /// The recording is a folder.
    is_folder: bool,
    journal: Option<Vec<u8>>,
    kallsyms: Option<Vec<u8>>,
    places: Places,
}

/// Where the user says that names are.
#[derive(Clone, Debug, Default)]
struct Places {
    vmlinux: Option<PathBuf>,
    symfs: Option<PathBuf>,
    debug_dirs: Vec<PathBuf>,
    /// Servers, and the seconds that a file may take.
    debuginfod: Option<(String, u64)>,
    told: Report,
}

enum Bytes {
    Mapped(Mapped),
    /// The beginning of a stream, or a whole recording that came through a pipe but is not in the form for one.
    Read(Vec<u8>),
}

/// A file that is read from its beginning to its end, and need not stay in memory.
#[derive(Debug)]
struct Mapped {
    bytes: FileBytes,
    /// What stands before this was given back.
    forgotten: AtomicUsize,
}

/// Memory is given back in pieces of so many bytes.
const PIECE: usize = 4 << 20;

impl Behind for Mapped {
    fn passed(&self, offset: u64) {
        // The head of the file is asked for again and again.
        let from = self.forgotten.load(Ordering::Relaxed).max(PIECE);
        let until = usize::try_from(offset).unwrap_or(usize::MAX) / PIECE * PIECE;
        if until > from {
            self.bytes.forget(from..until);
            self.forgotten.store(until, Ordering::Relaxed);
        }
    }
}

/// A recording in seekable form that comes through a pipe is held in memory; a longer one is cut.
const MOST: u64 = 16 << 30;

/// A journal holds a few kilobytes a pass.
const LONGEST_JOURNAL: u64 = 1 << 30;

/// The names of a kernel with all its modules have some 20 MiB.
const LONGEST_KALLSYMS: u64 = 1 << 30;

/// DIR_FORMAT of a folder in which each recording thread has a file of its own.
const DIR_PARTS: u64 = 1;

impl Input {
    /// Opens what `-i` names: a file, a folder that `perf record --threads` or `--kcore` made, a pipe.
    pub(crate) fn open(args: &InputArgs) -> anyhow::Result<Self> {
        Self::of(args.last(), args)
    }

    /// Opens one of those that `-i` names.
    pub(crate) fn of(path: &Path, args: &InputArgs) -> anyhow::Result<Self> {
        let mut input = if path == Path::new("-") {
            let stdin = io::stdin().as_fd().try_clone_to_owned().context("standard input")?;
            Self::of_stream("standard input".to_owned(), File::from(stdin)).context("standard input")?
        } else {
            let name = path.display().to_string();
            Self::of_path(name.clone(), path).map_err(|error| not_opened(&name, error))?
        };
        if let Some(path) = &args.kallsyms {
            input.kallsyms = Some(std::fs::read(path).with_context(|| path.display().to_string())?);
        }
        input.places = Places::of(args)?;
        Ok(input)
    }

    fn new(name: String, bytes: Bytes) -> Self {
        let (parts, missing) = (Vec::new(), Vec::new());
        let (rest, places) = (Cell::new(None), Places::default());
        Input { name, bytes, rest, parts, missing, is_folder: false, journal: None, kallsyms: None, places }
    }

    /// Reads the beginning of a stream.
    fn of_stream(name: String, mut from: File) -> io::Result<Self> {
        let head = stream::read_head(&mut from, MOST).map_err(io::Error::other)?;
        let streams = FileReader::open_packed(&head).is_ok_and(|reader| reader.is_pipe());
        let input = Self::new(name, Bytes::Read(head));
        input.rest.set(streams.then_some(from));
        Ok(input)
    }

    fn of_path(name: String, path: &Path) -> io::Result<Self> {
        let meta = std::fs::metadata(path)?;
        if meta.is_dir() {
            return Self::of_folder(name, path);
        }
        if !meta.is_file() {
            return Self::of_stream(name, File::open(path)?);
        }
        // A regular file is mapped.
        let bytes = Bytes::Mapped(Mapped { bytes: FileBytes::open(path)?, forgotten: AtomicUsize::new(0) });
        Ok(Input { journal: read_journal(path), ..Self::new(name, bytes) })
    }

    /// A folder: the recording proper is the file `data` in it.
    fn of_folder(name: String, folder: &Path) -> io::Result<Self> {
        let data = folder.join("data");
        if !data.is_file() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        let mut input = Self::of_path(name, &data)?;
        let in_parts = FileReader::open_packed(input.bytes()).is_ok_and(|reader| {
            // One that was not finished does not say.
            reader.features().dir_format == Some(DIR_PARTS) || !reader.finished()
        });
        if in_parts {
            let parts = parts_of(folder)?;
            input.missing = gaps(&parts);
            input.parts = parts.iter().map(|(_, path)| FileBytes::open(path)).collect::<io::Result<_>>()?;
        }
        input.is_folder = true;
        // What perf copied of the kernel that was recorded. Nobody may see addresses in it that are all 0.
        let kallsyms = read_bounded(&folder.join("kcore_dir/kallsyms"), LONGEST_KALLSYMS);
        input.kallsyms =
            kallsyms.filter(|text| text.split(|b| *b == b' ').next().is_some_and(|a| a != b"0000000000000000"));
        Ok(input)
    }

    /// Whether records still come, which can be had once.
    pub(crate) fn is_stream(&self) -> bool {
        let rest = self.rest.take();
        let streams = rest.is_some();
        self.rest.set(rest);
        streams
    }

    /// Whether recording threads have files of their own.
    pub(crate) fn has_parts(&self) -> bool {
        !self.parts.is_empty()
    }

    /// The recording's name, for messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Reads the head of the recording, and the journal of one that was not finished.
    pub(crate) fn reader(&self) -> anyhow::Result<FileReader<'_>> {
        let mut reader = FileReader::open_packed(self.bytes()).map_err(|error| {
            let problem = Problem::failed(format!("{}: {error}", self.name));
            match error.kind() {
                ErrorKind::NotPerfData => problem.hint("-i takes a file that afterimage record or perf record made"),
                ErrorKind::Unsupported => problem.code(2),
                ErrorKind::Empty => problem.hint("the recorder ended before it wrote anything"),
                _ => problem,
            }
        })?;
        if let (Some(journal), false) = (&self.journal, reader.finished()) {
            // A journal that is none is as good as no journal; what is lost by it is said with the missing tally.
            let _ = reader.use_journal(journal);
        }
        Ok(reader)
    }

    /// The records. Those of a stream can be had once.
    pub(crate) fn source<'i>(&'i self, reader: &FileReader<'i>) -> anyhow::Result<AnySource<'i>> {
        let packed = reader.is_compressed();
        if reader.is_pipe() {
            let rest = self.rest.take();
            if rest.is_some() || packed {
                let rest: Box<dyn Read> = rest.map_or(Box::new(io::empty()), |rest| Box::new(rest));
                let stream = RecordStream::new(self.bytes(), rest, reader.table().clone(), packed);
                return Ok(AnySource::Stream(Box::new(stream)));
            }
        }
        if !self.parts.is_empty() {
            if packed {
                let what = format!("{}: compressed records in a file for each thread: not supported yet", self.name);
                return Err(Problem::usage(what).into());
            }
            let parts: Vec<&[u8]> = self.parts.iter().map(|part| &**part).collect();
            return Ok(AnySource::Parts(PartsSource::new(self.bytes(), reader.records(), &parts)));
        }
        Ok(match packed {
            true => AnySource::Stream(Box::new(reader.unpacked())),
            false => AnySource::File(match &self.bytes {
                Bytes::Mapped(mapped) => {
                    // Whoever reads them once more brings them into memory once more.
                    mapped.forgotten.store(0, Ordering::Relaxed);
                    reader.source().telling(mapped)
                }
                Bytes::Read(_) => reader.source(),
            }),
        })
    }

    /// Where names come from.
    pub(crate) fn resolve_options(&self) -> ResolveOptions {
        ResolveOptions {
            kallsyms: self.kallsyms.clone(),
            vmlinux: self.places.vmlinux.clone(),
            finder: Some(self.places.finder()),
            ..ResolveOptions::default()
        }
    }

    /// The same for who names places while the records still come.
    pub(crate) fn resolve_at_once(&self) -> ResolveOptions {
        let build_ids_to_come = self.is_stream();
        ResolveOptions { build_ids_to_come, ..self.resolve_options() }
    }

    /// Says what state the recording was found in, and how a view of it ends.
    pub(crate) fn end(&self, reader: &FileReader<'_>, stats: &ReplayStats, say: &Say) -> Exit {
        let name = &self.name;
        self.places.told.say(name, say);
        let mut exit = Exit::Done;
        let problems: Vec<_> = reader.problems().iter().chain(&stats.problems).collect();
        if let Some(first) = problems.first() {
            let more = problems.len() - 1;
            let more = if more > 0 && say.verbosity() == 0 {
                format!(" (and {more} more, which -v shows)")
            } else {
                String::new()
            };
            say.warn(format!("{name}: {first}{more}"));
            problems[1..].iter().for_each(|problem| say.detail(format!("{name}: {problem}")));
            exit = Exit::Partly;
        }
        if let Some(first) = &stats.first_undecodable {
            say.warn(format!("{name}: {} damaged records left out, the first: {first}", grouped(stats.undecodable)));
            exit = Exit::Partly;
        }
        if let Some(first) = &stats.first_damage {
            let (places, bytes) = (grouped(stats.damaged), grouped(stats.skipped_bytes));
            let places =
                if stats.damaged == 1 { "one place".to_owned() } else { format!("{places} places, the first") };
            say.warn(format!("{name}: damaged at {places}: {first}; {bytes} bytes left out"));
            exit = Exit::Partly;
        }
        if self.lacks_parts(reader, say) {
            exit = Exit::Partly;
        }
        if stats.told_late > 0 {
            let count = grouped(stats.told_late);
            say.warn(format!(
                "{name}: {count} records tell of events or of the machine behind the first samples, too late to be used"
            ));
            exit = Exit::Partly;
        }
        if stats.unknown_count > 0 {
            let count = grouped(stats.unknown_count);
            say.warn(format!("{name}: for how many {count} samples of a count table stand is lost with the damage; each counts as one"));
            exit = Exit::Partly;
        }
        let private = stats.kinds.private();
        if private > 0 {
            say.warn(format!(
                "{name}: {} records of types that only their writer knows were left out",
                grouped(private)
            ));
        }
        if stats.unknown_type > 0 {
            let count = grouped(stats.unknown_type);
            say.warn(format!("{name}: {count} records of types newer than this program were left out"));
        }
        if stats.unknown_event > 0 {
            let count = grouped(stats.unknown_event);
            say.warn(format!("{name}: {count} samples left out: they belong to no event of the recording"));
            exit = Exit::Partly;
        }
        if let Some(error) = &stats.error {
            say.error(&anyhow::anyhow!("{name}: {error}"));
            say.hint(format!("what stands before that place was read: {} records", grouped(stats.records)));
            return Exit::Partly;
        }
        if stats.late > 0 {
            say.warn(format!("{name}: {} records came too late for their order", grouped(stats.late)));
        }
        if stats.cut_bytes > 0 {
            say.warn(format!("{name}: it ends amid a record, and was read up to that one"));
        } else if !stats.finished {
            let tally = reader.private().and_then(|private| private.tally.as_ref());
            let tally = tally
                .map_or("no tally was found beside it".into(), |t| format!("to the last pass: {}", t.total().human()));
            say.warn(format!("{name}: the recording was not finished; {tally}"));
        }
        exit
    }

    /// Whether files of recording threads are missing, which is said.
    fn lacks_parts(&self, reader: &FileReader<'_>, say: &Say) -> bool {
        let name = &self.name;
        if let Some(first) = self.missing.first() {
            let more = self.missing.len() - 1;
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            say.warn(format!(
                "{name}: data.{first}{more} of the files of recording threads are missing: their records are not read"
            ));
            return true;
        }
        let lacks = self.parts.is_empty() && reader.features().dir_format == Some(DIR_PARTS);
        if lacks && self.is_folder {
            say.warn(format!("{name}: the files of the recording threads, data.0 and so on, are missing: there are no samples without them"));
        } else if lacks {
            say.warn(format!("{name}: it is the first file of a folder, in which each recording thread has one: the others were not read"));
            say.hint("-i takes the folder");
        }
        lacks
    }

    fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Mapped(mapped) => &mapped.bytes,
            Bytes::Read(bytes) => bytes,
        }
    }
}

impl Places {
    /// What the options say, if it is there: names that are silently missing would be looked for elsewhere.
    fn of(args: &InputArgs) -> anyhow::Result<Self> {
        for (option, folder) in
            args.symfs.iter().map(|dir| ("--symfs", dir)).chain(args.debug_dir.iter().map(|dir| ("--debug-dir", dir)))
        {
            let listed = std::fs::read_dir(folder);
            listed.with_context(|| format!("{option} {}", folder.display()))?;
        }
        if let Some(image) = &args.vmlinux {
            File::open(image).with_context(|| format!("--vmlinux {}", image.display()))?;
        }
        let debuginfod = args.debuginfod.clone().map(|servers| (servers, args.debuginfod_timeout));
        if let Some((servers, seconds)) = &debuginfod {
            // What is wrong with them is told at once.
            Servers::new(servers, *seconds, Report::default())?;
        }
        let (vmlinux, symfs) = (args.vmlinux.clone(), args.symfs.clone());
        Ok(Places { vmlinux, symfs, debug_dirs: args.debug_dir.clone(), debuginfod, told: Report::default() })
    }

    fn finder(&self) -> Finder {
        let mut finder = Finder::new().debug_dirs(self.debug_dirs.clone());
        let servers = self.debuginfod.as_ref();
        if let Some(Ok(servers)) = servers.map(|(named, seconds)| Servers::new(named, *seconds, self.told.clone())) {
            finder = finder.fetching(Box::new(servers));
        }
        match &self.symfs {
            Some(root) => finder.symfs(root),
            None => finder,
        }
    }
}

/// The files `data.0`, `data.1` and so on of a folder, in order.
fn parts_of(folder: &Path) -> io::Result<Vec<(u32, PathBuf)>> {
    let mut parts: Vec<(u32, PathBuf)> = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let number = path.file_name().and_then(|name| name.to_str()?.strip_prefix("data.")?.parse().ok());
        if let Some(number) = number.filter(|_| path.is_file()) {
            parts.push((number, path));
        }
    }
    parts.sort();
    Ok(parts)
}

/// Numbers that are missing between others, the first hundred.
fn gaps(parts: &[(u32, PathBuf)]) -> Vec<u32> {
    let mut missing = Vec::new();
    let mut next = 0;
    for (number, _) in parts {
        missing.extend((next..*number).take(100 - missing.len()));
        next = number.saturating_add(1);
    }
    missing
}

/// The journal beside a recording, where it is a file that can be one.
fn read_journal(path: &Path) -> Option<Vec<u8>> {
    read_bounded(&journal::path_of(path), LONGEST_JOURNAL)
}

/// What is in a file of `most` bytes at most that stands beside a recording.
fn read_bounded(path: &Path, most: u64) -> Option<Vec<u8>> {
    // Somebody else may have put a pipe or a device there, which would block or never end.
    let meta = std::fs::metadata(path).ok()?;
    if !meta.is_file() || meta.len() > most {
        return None;
    }
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(most).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

fn not_opened(name: &str, error: io::Error) -> anyhow::Error {
    let cause = match error.kind() {
        io::ErrorKind::NotFound => "no such file".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        io::ErrorKind::IsADirectory => "a directory".to_owned(),
        _ => error.to_string(),
    };
    let problem = Problem::failed(format!("{name}: {cause}"));
    match error.kind() {
        io::ErrorKind::NotFound => problem.hint("afterimage record makes one; -i FILE names another").into(),
        _ => problem.into(),
    }
}
