//! `afterimage archive`: a recording and all that names it, in one file that is read anywhere.
//!
//! The file is the recording itself with more in its private section, so that stock perf reads it too. A recording in a form
//! that has no place for that section (a stream, a folder with a file for each thread) is written anew in the form that has.

mod md5;
mod sources;

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use afterimage_perf_data::features::{RawFeature, bit};
use afterimage_perf_data::record::kind;
use afterimage_perf_data::{AnySource, ArchiveDesc, Endian, Features, FileReader, FileWriter, Private, Source};
use afterimage_profile::{Kept, Resolver};
use afterimage_symbols::kept::LineOf;
use anyhow::Context;
use clap::Args;

use crate::cli::InputArgs;
use crate::exit::{Exit, Problem};
use crate::input::Input;
use crate::out;
use crate::refused;
use crate::say::Say;
use crate::terminal::grouped;
use sources::Sources;

/// `afterimage archive`
#[derive(Args, Debug)]
pub(crate) struct ArchiveArgs {
    #[command(flatten)]
    pub(crate) input: InputArgs,
    /// Where to write; `-` is standard output (the recording's name with .archive behind it by default)
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Leave the text of source lines out: names and numbers of lines are kept
    #[arg(long)]
    pub(crate) no_source: bool,
}

/// Puts a recording and what names it into one file. Which lines of source files come along is for `sources` to say.
pub(crate) fn run(args: &ArchiveArgs, say: &Say) -> anyhow::Result<Exit> {
    let input = Input::open(&args.input)?;
    if input.is_stream() {
        let problem = Problem::usage(format!("{}: a stream can be read only once", input.name()));
        return Err(problem.hint("save it to a file first").into());
    }
    let reader = input.reader()?;
    let again = !reader.is_pipe() && !input.has_parts();
    if !again && reader.endian() == Endian::Big {
        let what = format!("{}: a stream or folder of a big-endian machine: not supported yet", input.name());
        return Err(Problem::usage(what).into());
    }
    let mut resolver = Resolver::new(&reader, input.resolve_options());
    let mut sources = Sources::default();
    let mut text = |of: &LineOf<'_>| if args.no_source { None } else { sources.line(of) };
    let kept = resolver.keep(&reader, &mut input.source(&reader)?, &mut text);
    let counted = summary(&kept, &sources);
    for (file, left) in sources.left() {
        say.detail(format!("{}: no lines of {file} are kept: {left}", input.name()));
    }
    for (path, reason) in &kept.missing {
        say.detail(format!("{}: nothing of {path} is kept: {reason}", input.name()));
    }
    for path in &kept.without_tables {
        say.warn(format!(
            "{}: the unwind tables of {path} are too large to be kept: its stacks end early elsewhere",
            input.name()
        ));
    }
    let Kept { objects, tables, kernel_symbols, jit, stats, .. } = kept;
    let archive =
        ArchiveDesc { tool: format!("afterimage {}", env!("CARGO_PKG_VERSION")), unfinished: !reader.finished() };
    let mut had = reader.private().cloned().unwrap_or_default();
    had.jit.extend(jit);
    let private = Private { objects, tables, kernel_symbols, archive: Some(archive), lost_objects: 0, ..had };
    let path = args.output.clone().unwrap_or_else(|| named_after(args.input.last()));
    write(&path, &input, &reader, &private, again)?;
    refused::say(input.name(), resolver.refused(), say);
    if path != Path::new("-") {
        say.note(format!("{}: {counted}", path.display()));
        say.hint_unless_quiet(format!("afterimage report -i {} reads it on any machine", path.display()));
    }
    Ok(input.end(&reader, &stats, say))
}

fn summary(kept: &Kept, sources: &Sources) -> String {
    let bytes: usize = kept.objects.iter().chain(&kept.tables).map(Vec::len).sum();
    let mut said = format!(
        "{} objects with names, {} functions with code, lines of {} source files, {:.1} MiB",
        grouped(kept.named as u64),
        grouped(kept.functions as u64),
        grouped(sources.taken() as u64),
        bytes as f64 / 1_048_576.0
    );
    if !kept.missing.is_empty() {
        said.push_str(&format!("; {} objects had no names here", grouped(kept.missing.len() as u64)));
    }
    if !sources.left().is_empty() {
        said.push_str(&format!(
            "; {} files that are named as sources are left out",
            grouped(sources.left().len() as u64)
        ));
    }
    said
}

/// `perf.data.archive` of `perf.data`, also where that is a folder.
fn named_after(recording: &Path) -> PathBuf {
    let mut name = recording.file_name().unwrap_or("perf.data".as_ref()).to_owned();
    name.push(".archive");
    recording.with_file_name(name)
}

/// Writes the archive aside and gives it its name when it is whole.
fn write(path: &Path, input: &Input, reader: &FileReader<'_>, private: &Private, again: bool) -> anyhow::Result<()> {
    if path == Path::new("-") {
        if !again {
            let problem = Problem::usage(format!("{}: -o - takes a recording in one seekable file", input.name()));
            return Err(problem.hint("-o FILE takes any").into());
        }
        let mut to = out::stdout()?;
        reader.write_again(private, &mut to)?;
        return out::flush(&mut to);
    }
    let shown = || path.display().to_string();
    if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
        let problem = Problem::usage(format!("{}: not an ordinary file", path.display()));
        return Err(problem.hint("-o - writes to standard output").into());
    }
    // Links are followed, as they are where a file is written in its place.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let (aside, file) = create_beside(path).with_context(shown)?;
    let written = if again {
        let mut to = BufWriter::with_capacity(out::BUFFER, file);
        reader.write_again(private, &mut to).map_err(anyhow::Error::from).and_then(|()| Ok(to.flush()?))
    } else {
        anew(file, input, reader, private)
    };
    let written = written.and_then(|()| Ok(fs::rename(&aside, path)?));
    if written.is_err() {
        // What is left of it is of no use.
        let _ = fs::remove_file(&aside);
    }
    written.with_context(shown)
}

/// A new file beside another, for its owner's eyes only, as recordings are. One that is there already may be of a process of the
/// same number in another container.
fn create_beside(path: &Path) -> io::Result<(PathBuf, File)> {
    const TRIES: u32 = 100;
    let mut nth = 0;
    loop {
        let mut name = std::ffi::OsString::from(".");
        name.push(path.file_name().unwrap_or("archive".as_ref()));
        name.push(format!(".{}.{nth}", std::process::id()));
        let aside = path.with_file_name(name);
        match OpenOptions::new().write(true).create_new(true).mode(0o600).open(&aside) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && nth < TRIES => nth += 1,
            opened => return Ok((aside, opened?)),
        }
    }
}

/// Writes a recording of another form in the seekable one: its records as they come, what it tells of itself as sections.
fn anew(file: File, input: &Input, reader: &FileReader<'_>, private: &Private) -> anyhow::Result<()> {
    let raw = |feature: u32| {
        let unknown = reader.features().unknown.iter();
        unknown.filter(move |(bit, _)| *bit == feature).find_map(|(_, range)| reader.bytes(range))
    };
    let formats = raw(bit::TRACING_DATA);
    let mut writer = FileWriter::create_with_formats(file, reader.events(), formats)?;
    let mut source = input.source(reader)?;
    match &mut source {
        AnySource::File(source) => copy(source, &mut writer)?,
        AnySource::Parts(source) => copy(source, &mut writer)?,
        AnySource::Stream(source) => copy(&mut **source, &mut writer)?,
    }
    let mut features = Features { private: None, dir_format: None, compressed: None, ..reader.features().clone() };
    if let Some(told) = source.told_late() {
        features.build_ids.extend(told.build_ids.iter().cloned());
    }
    for (feature, _) in std::mem::take(&mut features.unknown) {
        // An index of instruction traces has places of the old file in it.
        let data = raw(feature).filter(|_| feature != bit::AUXTRACE);
        features.extra.extend(data.map(|data| RawFeature { bit: feature, data: data.to_vec() }));
    }
    writer.finish(&features, Some(private))?;
    Ok(())
}

fn copy(source: &mut impl Source, writer: &mut FileWriter<File>) -> anyhow::Result<()> {
    let rounds = source.has_rounds();
    while let Some(raw) = source.next_record() {
        // Damage was told when the recording was read; what stands behind it is taken.
        let Ok(raw) = raw else { continue };
        let offset = raw.offset;
        match raw.header.kind {
            kind::AUXTRACE => {
                let what = "instruction traces in a stream or a folder: not supported yet";
                return Err(Problem::usage(what).into());
            }
            // What these tell stands in the header and in sections.
            kind::HEADER_ATTR
            | kind::HEADER_EVENT_TYPE
            | kind::HEADER_TRACING_DATA
            | kind::HEADER_BUILD_ID
            | kind::EVENT_UPDATE
            | kind::HEADER_FEATURE => {}
            // In a file of several a round of one says nothing of the others.
            kind::FINISHED_ROUND if !rounds => {}
            _ => writer.write(raw.bytes)?,
        }
        source.release(offset);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_after_the_recording() {
        assert_eq!(named_after(Path::new("perf.data")), Path::new("perf.data.archive"));
        assert_eq!(named_after(Path::new("/a/b.data/")), Path::new("/a/b.data.archive"));
    }
}
