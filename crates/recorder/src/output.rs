//! Where a recording goes: a file with its journal, or the pipe form on stdout.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use afterimage_perf_data::features::bit;
use afterimage_perf_data::journal::{self, PackedEntry};
use afterimage_perf_data::{
    EventDesc, Features, FileWriter, GateDesc, HandlerDesc, HandlerTypes, JitPiece, NestedPid, PipeWriter,
    RecordingTally, WayDesc,
};

use afterimage_symbols::file::FileBytes;

use crate::RecordError;
use crate::old::Old;
use crate::plan::Destination;
use crate::queue::{Queue, ROOM};
use crate::text::News;

/// The open destination.
pub(crate) enum Output {
    File(Box<FileOutput>),
    Pipe(Box<PipeWriter<Queue>>),
    /// Nothing is kept.
    Nowhere,
}

/// A file and the journal beside it.
pub(crate) struct FileOutput {
    path: PathBuf,
    writer: FileWriter<File>,
    journal: Option<journal::Writer<File>>,
    old: Old,
}

/// What one pass adds.
pub(crate) struct PassContent<'a> {
    /// Whole records.
    pub(crate) records: &'a [u8],
    /// How many samples each SAMPLE of the count table among them stands for, by event in the file.
    pub(crate) true_counts: &'a [(usize, Vec<u64>)],
    /// The tally so far.
    pub(crate) tally: &'a RecordingTally,
    /// What is new of kernel text.
    pub(crate) news: &'a News,
}

impl Output {
    /// Creates the destination with the descriptions of the events.
    pub(crate) fn create(
        destination: &Destination,
        events: &[EventDesc],
        features: &Features,
        handlers: &[HandlerDesc],
    ) -> Result<Output, RecordError> {
        match destination {
            Destination::Nowhere => Ok(Output::Nowhere),
            Destination::Pipe => {
                let fail = |source| RecordError::Output { path: "-".into(), source };
                // Not by way of std's standard output, which looks for line feeds.
                let stdout = io::stdout().as_fd().try_clone_to_owned().map_err(fail)?;
                let queue = Queue::new(File::from(stdout), ROOM).map_err(fail)?;
                let writer = PipeWriter::create(queue, events, features).map_err(|e| written(Path::new("-"), e))?;
                Ok(Output::Pipe(Box::new(writer)))
            }
            Destination::File(path) => {
                let fail = |source| RecordError::Output { path: path.clone(), source };
                let path = followed(path);
                let old = Old::keep(&path).map_err(fail)?;
                match FileOutput::create(&path, events, features, handlers) {
                    Ok((writer, journal)) => Ok(Output::File(Box::new(FileOutput { path, writer, journal, old }))),
                    Err(error) => {
                        old.put_back();
                        Err(error)
                    }
                }
            }
        }
    }

    /// Appends records without a pass boundary.
    pub(crate) fn records(&mut self, records: &[u8]) -> Result<(), RecordError> {
        match self {
            Output::File(f) => f.writer.write(records).map_err(|e| written(&f.path, e)),
            Output::Pipe(p) => p.write(records).map_err(|e| written(Path::new("-"), e)),
            Output::Nowhere => Ok(()),
        }
    }

    /// Appends what a pass brought and marks its end, so that a reader of an unfinished file gets all of it.
    pub(crate) fn pass(&mut self, content: &PassContent<'_>) -> Result<(), RecordError> {
        match self {
            Output::File(f) => f.pass(content),
            Output::Pipe(p) => {
                let all = p.write(content.records).and_then(|()| p.finished_round());
                all.map_err(|e| written(Path::new("-"), e))
            }
            Output::Nowhere => Ok(()),
        }
    }

    /// Marks the end of what was there before: a reader applies it before everything else.
    pub(crate) fn end_of_scan(&mut self, tally: &RecordingTally, news: &News) -> Result<(), RecordError> {
        self.pass(&PassContent { records: &[], true_counts: &[], tally, news })
    }

    /// Tells of the types of what a handler writes. A stream has no place for that.
    pub(crate) fn handler_types(&mut self, types: &[HandlerTypes]) -> Result<(), RecordError> {
        let Output::File(output) = self else { return Ok(()) };
        let Some(journal) = &mut output.journal else { return Ok(()) };
        types.iter().try_for_each(|one| journal.handler_types(one)).map_err(|e| written(&output.path, e))
    }

    /// Tells of a gate that was put in force. A stream has no place for that.
    pub(crate) fn gate(&mut self, gate: &GateDesc) -> Result<(), RecordError> {
        let Output::File(output) = self else { return Ok(()) };
        let Some(journal) = &mut output.journal else { return Ok(()) };
        journal.gate(gate).map_err(|e| written(&output.path, e))
    }

    /// Tells of what JIT compilers told. A stream has no place for that.
    pub(crate) fn jit(&mut self, pieces: &[JitPiece]) -> Result<(), RecordError> {
        let Output::File(output) = self else { return Ok(()) };
        let Some(journal) = &mut output.journal else { return Ok(()) };
        pieces.iter().try_for_each(|piece| journal.jit(piece)).map_err(|e| written(&output.path, e))
    }

    /// Tells of numbers that processes have for themselves. A stream has no place for that.
    pub(crate) fn nested(&mut self, processes: &[NestedPid]) -> Result<(), RecordError> {
        let Output::File(output) = self else { return Ok(()) };
        let Some(journal) = output.journal.as_mut().filter(|_| !processes.is_empty()) else { return Ok(()) };
        journal.nested(processes).map_err(|e| written(&output.path, e))
    }

    /// Tells of the ways to keep kernel text. A stream has no place for that.
    pub(crate) fn ways(&mut self, ways: &[WayDesc]) -> Result<(), RecordError> {
        let Output::File(output) = self else { return Ok(()) };
        let Some(journal) = output.journal.as_mut().filter(|_| !ways.is_empty()) else { return Ok(()) };
        journal.ways(ways).map_err(|e| written(&output.path, e))
    }

    /// Tells of all handlers that have been in force. A stream has no place for that.
    pub(crate) fn handlers(&mut self, handlers: &[HandlerDesc]) -> Result<(), RecordError> {
        match self {
            Output::File(f) => match &mut f.journal {
                Some(journal) => journal.handlers(handlers).map_err(|e| written(&f.path, e)),
                None => Ok(()),
            },
            Output::Pipe(_) | Output::Nowhere => Ok(()),
        }
    }

    /// Appends what is new of kernel text after the last pass.
    pub(crate) fn news(&mut self, news: &News) -> Result<(), RecordError> {
        match self {
            Output::File(f) => f.news(news),
            Output::Pipe(_) | Output::Nowhere => Ok(()),
        }
    }

    /// Sampling has begun: from now on the recording stays, whatever happens.
    pub(crate) fn begun(&mut self) {
        if let Output::File(output) = self {
            output.old.begun();
        }
    }

    /// Takes the recording away again because it never began; what stood there before gets its name back.
    pub(crate) fn discard(self) {
        let Output::File(output) = self else { return };
        let FileOutput { path, journal, old, .. } = *output;
        if journal.is_some() {
            take_away(&path);
        }
        old.put_back();
    }

    /// For how long the passes have waited for the reader of a stream.
    pub(crate) fn waited(&self) -> Duration {
        match self {
            Output::File(_) | Output::Nowhere => Duration::ZERO,
            Output::Pipe(p) => p.get_ref().waited(),
        }
    }

    /// Bytes written so far.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Output::File(f) => f.writer.bytes_written(),
            Output::Pipe(p) => p.bytes_written(),
            Output::Nowhere => 0,
        }
    }

    /// What is written so far, up to the last pass; `None` where it cannot be read again.
    pub(crate) fn read_back(&self) -> Option<FileBytes> {
        let Output::File(output) = self else { return None };
        let file = output.writer.get_ref();
        // Opened anew: a copy of the descriptor would share the place where the writer writes.
        regular(file).then(|| FileBytes::open(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd()))).ok())?
    }

    /// The journal so far; `None` without one.
    pub(crate) fn read_journal(&self) -> Option<FileBytes> {
        let Output::File(output) = self else { return None };
        let path = format!("/proc/self/fd/{}", output.journal.as_ref()?.get_ref().as_raw_fd());
        FileBytes::open(Path::new(&path)).ok()
    }

    /// Ends the recording: features and private section are written, which goes on with entries of the journal; then the
    /// journal is removed.
    pub(crate) fn finish(self, features: &Features, carried: &[PackedEntry<'_>]) -> Result<u64, RecordError> {
        match self {
            Output::File(f) => f.finish(features, carried),
            Output::Pipe(p) => {
                let bytes = p.bytes_written();
                let queue = p.finish(features).map_err(|e| written(Path::new("-"), e))?;
                queue.finish().map_err(|source| RecordError::Output { path: "-".into(), source })?;
                Ok(bytes)
            }
            Output::Nowhere => Ok(0),
        }
    }
}

impl FileOutput {
    /// Creates the file and, where it is a regular one, its journal; both or none.
    fn create(
        path: &Path,
        events: &[EventDesc],
        features: &Features,
        handlers: &[HandlerDesc],
    ) -> Result<Parts, RecordError> {
        let fail = |source| RecordError::Output { path: path.to_owned(), source };
        let file = create(path).map_err(fail)?;
        let regular = regular(&file);
        let parts = (|| {
            let journal = regular.then(|| create(&journal::path_of(path))).transpose().map_err(fail)?;
            let formats = features.extra.iter().find(|e| e.bit == bit::TRACING_DATA).map(|e| e.data.as_slice());
            let writer = FileWriter::create_with_formats(file, events, formats).map_err(|e| written(path, e))?;
            let mut journal = journal.map(journal::Writer::create).transpose().map_err(|e| written(path, e))?;
            if let Some(journal) = &mut journal {
                journal.handlers(handlers).map_err(|e| written(path, e))?;
            }
            Ok((writer, journal))
        })();
        if parts.is_err() && regular {
            take_away(path);
        }
        parts
    }

    /// The tally first: the journal may know of samples that the file lacks, never the other way round. Texts come last,
    /// so that a storm of them on a disk that is nearly full takes no sample's place.
    fn pass(&mut self, content: &PassContent<'_>) -> Result<(), RecordError> {
        if let Some(journal) = &mut self.journal {
            for (event, counts) in content.true_counts {
                journal.true_counts(*event, counts).map_err(|e| written(&self.path, e))?;
            }
            journal.tally(content.tally).map_err(|e| written(&self.path, e))?;
        }
        let writer = &mut self.writer;
        let all =
            writer.write(content.records).and_then(|()| writer.finished_round()).and_then(|()| writer.checkpoint());
        if all.is_err() {
            // A disk that is full took a part of the pass: its whole records are readable once the header covers them.
            // The first error is the one to tell.
            let _ = writer.checkpoint();
        }
        all.map_err(|e| written(&self.path, e))?;
        self.news(content.news)
    }

    fn news(&mut self, news: &News) -> Result<(), RecordError> {
        let Some(journal) = self.journal.as_mut().filter(|_| !news.is_empty()) else { return Ok(()) };
        let mut all = || {
            journal.images(news.images.iter().map(|(id, bytes)| (id, bytes.as_slice())))?;
            journal.texts(&news.texts)?;
            news.programs.iter().try_for_each(|program| journal.program(program))?;
            news.types.iter().try_for_each(|types| journal.program_types(types))
        };
        all().map_err(|e| written(&self.path, e))
    }

    fn finish(self, features: &Features, carried: &[PackedEntry<'_>]) -> Result<u64, RecordError> {
        let FileOutput { path, writer, journal, .. } = self;
        let file = writer.finish_with(features, features.private.as_ref(), carried).map_err(|e| written(&path, e))?;
        let bytes = file.metadata().map_or(0, |m| m.len());
        if let Some(own) = journal {
            let (own, journal) = (own.into_inner(), journal::path_of(&path));
            remove_own(&own, &journal).map_err(|source| RecordError::Output { path: journal, source })?;
        }
        Ok(bytes)
    }
}

/// A file that is written to, with its journal where it has one.
type Parts = (FileWriter<File>, Option<journal::Writer<File>>);

/// Removes the journal, unless another recorder has taken the name for its own meanwhile.
fn remove_own(own: &File, journal: &Path) -> io::Result<()> {
    let own = own.metadata()?;
    match fs::symlink_metadata(journal) {
        Ok(there) if (there.dev(), there.ino()) == (own.dev(), own.ino()) => fs::remove_file(journal),
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Where a link leads, so that what stands there is kept and not the link. Where everybody may plant one it stays as it
/// is, and is refused.
fn followed(path: &Path) -> PathBuf {
    let link = fs::symlink_metadata(path).is_ok_and(|m| m.is_symlink());
    let there = if link && !is_sticky(folder_of(path)).unwrap_or(true) { fs::canonicalize(path).ok() } else { None };
    there.unwrap_or_else(|| path.to_owned())
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn is_sticky(folder: &Path) -> io::Result<bool> {
    Ok(fs::metadata(folder)?.permissions().mode() & 0o1000 != 0)
}

/// Removes a recording that never began.
fn take_away(path: &Path) {
    // There is nobody to tell but the user, who is about to hear of the cause.
    let _ = fs::remove_file(journal::path_of(path));
    let _ = fs::remove_file(path);
}

/// Creates a file that only its owner reads. In a folder where everybody may plant a link, links are not followed.
fn create(path: &Path) -> io::Result<File> {
    let sticky = is_sticky(folder_of(path))?;
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true).mode(0o600);
    if sticky {
        options.custom_flags(libc::O_NOFOLLOW);
    }
    let file = options.open(path)?;
    if regular(&file) {
        give_to_sudo_user(&file)?;
    }
    Ok(file)
}

fn regular(file: &File) -> bool {
    file.metadata().is_ok_and(|m| m.is_file())
}

/// Under sudo the recording belongs to the user who called it.
fn give_to_sudo_user(file: &File) -> io::Result<()> {
    let id = |name: &str| std::env::var(name).ok()?.parse::<u32>().ok();
    let (Some(uid), Some(gid)) = (id("SUDO_UID"), id("SUDO_GID")) else { return Ok(()) };
    if !rustix::process::geteuid().is_root() || file.metadata()?.uid() == uid {
        return Ok(());
    }
    std::os::unix::fs::fchown(file, Some(uid), Some(gid))
}

/// An error of the format layer on the way to the destination: the system's own word where there is one.
fn written(path: &Path, error: afterimage_perf_data::Error) -> RecordError {
    let Some(io) = error.io_error() else { return RecordError::Encode(error) };
    let source =
        io.raw_os_error().map_or_else(|| io::Error::new(io.kind(), io.to_string()), io::Error::from_raw_os_error);
    RecordError::Output { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_in_a_sticky_folder_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o1777)).unwrap();
        let (link, target) = (dir.path().join("link"), dir.path().join("target"));
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert!(create(&link).is_err());
        assert!(!target.exists());
    }

    #[test]
    fn a_link_elsewhere_leads_to_the_recording() {
        let dir = tempfile::tempdir().unwrap();
        let (link, target) = (dir.path().join("link"), dir.path().join("target"));
        fs::write(&target, "recording").unwrap();
        std::os::unix::fs::symlink(&target, &link).unwrap();
        assert_eq!(followed(&link), fs::canonicalize(&target).unwrap());
        assert_eq!(followed(&target), target);
    }

    #[test]
    fn the_journal_of_another_recorder_stays() {
        let dir = tempfile::tempdir().unwrap();
        let journal = dir.path().join("a.journal");
        let own = create(&journal).unwrap();
        fs::rename(&journal, dir.path().join("old.journal")).unwrap();
        remove_own(&own, &journal).unwrap();
        let other = create(&journal).unwrap();
        remove_own(&own, &journal).unwrap();
        assert!(journal.exists());
        remove_own(&other, &journal).unwrap();
        assert!(!journal.exists());
    }

    #[test]
    fn only_the_owner_reads() {
        let dir = tempfile::tempdir().unwrap();
        let file = create(&dir.path().join("a")).unwrap();
        assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    }
}
