//! `text watch`: kernel code as it comes and goes on this machine, each text told of when it comes and when it goes, and
//! its code kept.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use afterimage_kernel_text::Way;
use afterimage_kernel_text::capture::CaptureErrorKind;
use afterimage_perf_data::features::BpfBtf;
use afterimage_perf_data::{ImageId, TextDesc};
use afterimage_profile::BpfLines;
use afterimage_recorder::{News, RecordError, Watch};
use anyhow::Context;
use serde_json::{Map, Value, json};

use super::args::WatchArgs;
use super::dwarf::Line;
use super::keep::Folder;
use super::time::{Seconds, lasting};
use super::{called, described, line_of};
use crate::exit::{Exit, Problem};
use crate::out;
use crate::record::on_signals;
use crate::say::Say;
use crate::terminal::{clean, grouped};

/// How long a text is remembered after it was told that it went: another copy of its code may come at its free.
const REMEMBERED: Duration = Duration::from_secs(10);

/// Programs whose lines are held for their code, and sets of types; more are forgotten.
const HELD: usize = 4096;

/// Watches until ctrl-C, or until the time is over.
pub(super) fn run(args: &WatchArgs, say: &Say) -> anyhow::Result<Exit> {
    let length = args.duration.as_deref().map(duration).transpose()?;
    let folder = args.output.as_deref().map(Folder::at).transpose()?;
    let stop = on_signals()?;
    let mut watch = Watch::start().map_err(problem)?;
    let mut told = Told::new(args.json, folder, out::stdout()?);
    told.begin(&watch, say).context("standard output")?;
    let until = length.and_then(|length| Instant::now().checked_add(length));
    while !stop.load(Ordering::Relaxed) && until.is_none_or(|until| Instant::now() < until) {
        watch.wait(until, &stop).map_err(problem)?;
        told.tell(watch.pass())?;
    }
    let (news, lost) = watch.end();
    told.tell(news)?;
    told.end(&lost, say)?;
    Ok(if lost.is_empty() { Exit::Done } else { Exit::Partly })
}

fn duration(text: &str) -> anyhow::Result<Duration> {
    let ns = super::time::parse(text).filter(|ns| *ns > 0);
    ns.map(Duration::from_nanos).ok_or_else(|| Problem::usage(format!("--duration {text}: not a time")).into())
}

fn problem(error: RecordError) -> anyhow::Error {
    let problem = Problem::failed(error.to_string());
    match error {
        RecordError::Capability { .. } => problem.hint("run as root; afterimage doctor shows what is allowed").into(),
        _ => problem.into(),
    }
}

/// What was told of a text.
#[derive(Clone, Debug, Default)]
struct Shown {
    came: bool,
    /// When it was told that it went.
    went: Option<Instant>,
    code: Option<ImageId>,
}

/// Tells of texts, and keeps their code.
struct Told {
    json: bool,
    folder: Option<Folder>,
    out: BufWriter<File>,
    /// By number.
    shown: HashMap<u64, Shown>,
    lines: HashMap<u32, BpfLines>,
    types: HashMap<u32, BpfBtf>,
    texts: u64,
    with_code: u64,
}

impl Told {
    fn new(json: bool, folder: Option<Folder>, out: BufWriter<File>) -> Told {
        let (shown, lines, types) = Default::default();
        Told { json, folder, out, shown, lines, types, texts: 0, with_code: 0 }
    }

    /// Says what is watched, and how.
    fn begin(&mut self, watch: &Watch, say: &Say) -> io::Result<()> {
        let ways = || watch.ways().iter();
        let what = |way: &str, part: &str| if part.is_empty() { way.to_owned() } else { format!("{way}, {part}") };
        if self.json {
            let ways = ways().map(|state| {
                let reason = state.missing.as_ref().map(ToString::to_string);
                json!({"way": state.way.key(), "part": state.part, "works": reason.is_none(), "reason": reason})
            });
            self.line(json!({"schema": "afterimage/text-watch/1", "ways": ways.collect::<Vec<_>>()}))?;
        }
        for (state, missing) in ways().filter_map(|state| Some((state, state.missing.as_ref()?))) {
            // What most kernels have not is for `doctor` to tell.
            let rare = matches!(state.way, Way::Kcore | Way::KcoreQc);
            if rare && missing.kind == CaptureErrorKind::Unsupported {
                continue;
            }
            say.note(format!("not captured by {}: {missing}", what(state.way.key(), state.part)));
        }
        watch.missing().for_each(|missing| say.note(format!("not seen on this kernel: {missing}")));
        say.note("watching kernel code come and go; ctrl-C ends it");
        self.out.flush()
    }

    /// Tells of what is new.
    fn tell(&mut self, news: News) -> anyhow::Result<()> {
        let images: BTreeMap<ImageId, Vec<u8>> = news.images.into_iter().collect();
        self.learn(news.programs, news.types);
        // A text may be told of twice in one pass: the last description says all.
        let mut latest: BTreeMap<u64, TextDesc> = BTreeMap::new();
        for text in news.texts {
            latest.insert(text.number, text);
        }
        let mut latest: Vec<TextDesc> = latest.into_values().collect();
        latest.sort_by_key(|text| text.born_ns.or(text.gone_ns));
        for text in &latest {
            self.one(text, &images)?;
        }
        self.shown.retain(|_, shown| shown.went.is_none_or(|went| went.elapsed() < REMEMBERED));
        self.out.flush().context("standard output")
    }

    fn learn(&mut self, programs: Vec<afterimage_perf_data::features::BpfProgInfo>, types: Vec<BpfBtf>) {
        if self.lines.len() > HELD {
            self.lines.clear();
        }
        if self.types.len() > HELD {
            self.types.clear();
        }
        self.types.extend(types.into_iter().map(|types| (types.id, types)));
        for info in programs {
            let types = self.types.get(&info.btf_id()).map(|types| types.data.as_slice());
            if let Ok(lines) = BpfLines::new(&info, types) {
                self.lines.insert(info.id(), lines);
            }
        }
    }

    fn one(&mut self, text: &TextDesc, images: &BTreeMap<ImageId, Vec<u8>>) -> anyhow::Result<()> {
        let mut shown = self.shown.get(&text.number).cloned().unwrap_or_default();
        let last = text.images.last();
        let fresh = last.filter(|last| shown.code != Some(last.image));
        let fresh = fresh.and_then(|last| Some((last, images.get(&last.image)?)));
        let mut path = None;
        if let Some((last, code)) = fresh {
            if shown.code.is_none() {
                self.with_code += 1;
            }
            shown.code = Some(last.image);
            if let Some(folder) = &self.folder {
                path = Some(folder.keep(text, code, &self.lines_of(text))?);
            }
        }
        // Its code may come a grace period after it went, at its free: that is waited for.
        let went = text.gone_ns.is_some() && shown.went.is_none() && (last.is_some() || text.reason.is_some());
        let event = match (shown.came, went) {
            (_, true) => "went",
            (false, false) if text.gone_ns.is_none() => "came",
            _ if fresh.is_some() => "code",
            _ => return self.remember(text, shown),
        };
        self.texts += u64::from(!shown.came && event != "code");
        shown.came |= event != "code";
        if went {
            shown.went = Some(Instant::now());
        }
        let size = last.and_then(|last| images.get(&last.image)).map(Vec::len).or(text.length.map(|l| l as usize));
        let said = if self.json {
            let mut object = Map::new();
            object.insert("event".into(), event.into());
            object.append(&mut described(text));
            let image = last.map(|last| json!({"size_bytes": size, "way": last.way, "proven": last.proven}));
            object.insert("image".into(), json!(image));
            object.insert("reason".into(), json!(text.reason));
            object.insert("file".into(), json!(path.as_ref().map(|path| path.display().to_string())));
            self.line(object.into())
        } else if event == "code" {
            Ok(())
        } else {
            self.people(text, event, size)
        };
        said.context("standard output")?;
        self.remember(text, shown)
    }

    fn remember(&mut self, text: &TextDesc, shown: Shown) -> anyhow::Result<()> {
        self.shown.insert(text.number, shown);
        Ok(())
    }

    fn lines_of(&self, text: &TextDesc) -> Vec<Line> {
        let lines = text.id.and_then(|id| self.lines.get(&id));
        let function = text.function.and_then(|function| usize::try_from(function).ok());
        match (lines, function) {
            (Some(lines), Some(function)) => lines.starts(function).map(line_of).collect(),
            _ => Vec::new(),
        }
    }

    /// `1234.567890 + program bpf_prog_…@42, by comm/pid, 312 bytes, by-id`
    fn people(&mut self, text: &TextDesc, event: &str, size: Option<usize>) -> io::Result<()> {
        let (sign, when) = if event == "came" { ('+', text.born_ns) } else { ('-', text.gone_ns) };
        write!(self.out, "{} {sign} {} {}", Seconds(when.unwrap_or(0)), text.kind, clean(&called(text)))?;
        if let Some(loader) = &text.loader {
            write!(self.out, ", by {}/{}", clean(&loader.comm), loader.pid)?;
        }
        if let (Some(born), Some(gone), '-') = (text.born_ns, text.gone_ns, sign) {
            write!(self.out, ", lived {}", lasting(gone.saturating_sub(born)))?;
        }
        if let Some(size) = size {
            write!(self.out, ", {size} bytes")?;
        }
        match (text.images.last(), &text.reason) {
            (Some(last), _) => writeln!(self.out, ", {}{}", last.way, if last.proven { "" } else { " (not proven)" }),
            (None, Some(reason)) => writeln!(self.out, ", no code: {}", clean(reason)),
            (None, None) => writeln!(self.out),
        }
    }

    fn line(&mut self, value: Value) -> io::Result<()> {
        serde_json::to_writer(&mut self.out, &value)?;
        writeln!(self.out)
    }

    /// Says what was seen, and what was lost.
    fn end(&mut self, lost: &[String], say: &Say) -> anyhow::Result<()> {
        let (texts, with_code) = (self.texts, self.with_code);
        if self.json {
            let end = json!({"event": "end", "texts": texts, "with_code": with_code, "lost": lost});
            self.line(end).and_then(|()| self.out.flush()).context("standard output")?;
        }
        lost.iter().for_each(|line| say.warn(line));
        say.note(format!("{} texts came or went, {} with their code", grouped(texts), grouped(with_code)));
        Ok(())
    }
}
