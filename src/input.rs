//! The recording that a view reads: opening it, its journal, and what is said about its state.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use afterimage_perf_data::{ErrorKind, FileReader, compressed, journal};
use afterimage_profile::{ReplayStats, ResolveOptions};
use afterimage_symbols::file::FileBytes;
use anyhow::Context;

use crate::cli::InputArgs;
use crate::exit::{Exit, Problem};
use crate::say::Say;
use crate::terminal::grouped;

/// The bytes of a recording, and of the journal that an unfinished one has beside it.
pub(crate) struct Input {
    name: String,
    bytes: Bytes,
    /// What ended the records of a compressed recording early.
    damage: Option<String>,
    journal: Option<Vec<u8>>,
    kallsyms: Option<Vec<u8>>,
}

enum Bytes {
    Mapped(FileBytes),
    Read(Vec<u8>),
}

/// Standard input, and what a compressed recording unpacks to, are held in memory; longer ones are cut.
const MOST: u64 = 16 << 30;

/// A journal holds a few kilobytes a pass.
const LONGEST_JOURNAL: u64 = 1 << 30;

/// Bytes that tell whether a stream is a recording.
const HEAD: u64 = 4096;

impl Input {
    /// Opens what `-i` names.
    pub(crate) fn open(args: &InputArgs) -> anyhow::Result<Self> {
        let path = args.input.as_path();
        let kallsyms = match &args.kallsyms {
            Some(path) => Some(std::fs::read(path).with_context(|| path.display().to_string())?),
            None => None,
        };
        let (name, bytes, journal) = if path == Path::new("-") {
            let bytes = read_stream(io::stdin().lock()).context("standard input")?;
            ("standard input".to_owned(), Bytes::Read(bytes), None)
        } else {
            let name = path.display().to_string();
            let bytes = read(path).map_err(|error| not_opened(&name, error))?;
            (name, bytes, read_journal(path))
        };
        let mut input = Input { name, bytes, damage: None, journal, kallsyms };
        input.unpack();
        Ok(input)
    }

    /// Puts the records of a compressed recording in place of it. A head that makes no sense is for the reader to name.
    fn unpack(&mut self) {
        if let Ok(Some(unpacked)) = compressed::unpack(self.bytes(), MOST) {
            self.damage = unpacked.damage.map(|error| error.to_string());
            self.bytes = Bytes::Read(unpacked.bytes);
        }
    }

    /// The recording's name, for messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Reads the head of the recording, and the journal of one that was not finished.
    pub(crate) fn reader(&self) -> anyhow::Result<FileReader<'_>> {
        let mut reader = FileReader::open(self.bytes()).map_err(|error| {
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

    /// Where names come from.
    pub(crate) fn resolve_options(&self) -> ResolveOptions {
        ResolveOptions { kallsyms: self.kallsyms.clone(), ..ResolveOptions::default() }
    }

    /// Says what state the recording was found in, and how a view of it ends.
    pub(crate) fn end(&self, reader: &FileReader<'_>, stats: &ReplayStats, say: &Say) -> Exit {
        let name = &self.name;
        let mut exit = Exit::Done;
        if let Some(damage) = &self.damage {
            say.error(&anyhow::anyhow!("{name}: {damage}"));
            exit = Exit::Partly;
        }
        let problems = reader.problems();
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
        if !stats.finished {
            let tally = reader.private().and_then(|private| private.tally.as_ref());
            let tally = tally
                .map_or("no tally was found beside it".into(), |t| format!("to the last pass: {}", t.total().human()));
            say.warn(format!("{name}: the recording was not finished; {tally}"));
        }
        exit
    }

    fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Mapped(bytes) => bytes,
            Bytes::Read(bytes) => bytes,
        }
    }
}

/// A regular file is mapped; what cannot be mapped, such as a pipe by name, is read.
fn read(path: &Path) -> io::Result<Bytes> {
    if std::fs::metadata(path)?.is_file() {
        return FileBytes::open(path).map(Bytes::Mapped);
    }
    read_stream(File::open(path)?).map(Bytes::Read)
}

/// Reads a stream to its end, but no further than its first bytes when they are no recording's: it may never end.
fn read_stream(mut from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.by_ref().take(HEAD).read_to_end(&mut bytes)?;
    let not_ours = FileReader::open(&bytes).is_err_and(|error| error.kind() == ErrorKind::NotPerfData);
    if !not_ours {
        from.take(MOST).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// The journal beside a recording, where it is a file that can be one.
fn read_journal(path: &Path) -> Option<Vec<u8>> {
    let path = journal::path_of(path);
    // Somebody else may have put a pipe or a device there, which would block or never end.
    let meta = std::fs::metadata(&path).ok()?;
    if !meta.is_file() || meta.len() > LONGEST_JOURNAL {
        return None;
    }
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(LONGEST_JOURNAL).read_to_end(&mut bytes).ok()?;
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
