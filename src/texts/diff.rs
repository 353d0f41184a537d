//! `text diff`: two texts, instruction by instruction, as `diff -u` shows two files.
//!
//! A branch within a text is compared by how far it goes, one that leaves the text by the name of what it reaches: so the
//! same code at two addresses is the same.

use std::io::{self, Write};
use std::ops::Range;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use afterimage_profile::{Loc, Place, Resolver};
use afterimage_symbols::Machine;
use anyhow::Context;
use similar::{Algorithm, DiffOp, DiffTag, capture_diff_slices_deadline, group_diff_ops};

use super::args::DiffArgs;
use super::dump::no_code;
use super::known::Texts;
use super::{label, the_one};
use crate::cli::InputArgs;
use crate::disasm::{self, Style};
use crate::exit::{Exit, Problem};
use crate::input::Input;
use crate::out;
use crate::say::Say;
use crate::terminal::clean;

/// Exit code of `diff(1)` for two that differ; [`TROUBLE`] for anything that went wrong.
const DIFFERENT: u8 = 1;
const TROUBLE: u8 = 2;

/// Instructions around a change.
const AROUND: usize = 3;

/// After so long a search, a difference that is not the smallest will do.
const SEARCH: Duration = Duration::from_secs(2);

/// One side.
struct Side {
    title: String,
    instructions: Vec<Instruction>,
    whole: bool,
}

/// One instruction.
struct Instruction {
    offset: u64,
    /// For people: targets within the text as `+0x…`.
    text: String,
    /// What is compared.
    key: String,
}

/// Compares two texts.
pub(super) fn run(args: &DiffArgs, say: &Say) -> anyhow::Result<Exit> {
    let sides = side(&args.old, &args.input, say).and_then(|old| Ok((old, side(&args.new, &args.input, say)?)));
    let (old, new) = sides.map_err(trouble)?;
    if !(old.whole && new.whole) {
        say.warn("a recording is damaged; what could be read of it is compared");
    }
    let keys = |side: &Side| side.instructions.iter().map(|i| i.key.clone()).collect::<Vec<_>>();
    let (a, b) = (keys(&old), keys(&new));
    if a == b {
        return Ok(Exit::Done);
    }
    let deadline = Instant::now().checked_add(SEARCH);
    let operations = capture_diff_slices_deadline(Algorithm::Myers, &a, &b, deadline);
    let mut to = out::stdout().map_err(trouble)?;
    write(&mut to, &old, &new, operations).context("standard output").map_err(trouble)?;
    out::flush(&mut to).map_err(trouble)?;
    Ok(Exit::Status(DIFFERENT))
}

/// An error with the exit code that `diff(1)` has for it, its hint and causes kept.
fn trouble(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<Problem>() {
        Ok(problem) => problem.code(TROUBLE).into(),
        Err(error) => error.context(Problem::failed("text diff").code(TROUBLE)),
    }
}

/// Reads `[FILE:]NAME[@WHICH…]` and the text that it means.
fn side(operand: &str, input: &InputArgs, say: &Say) -> anyhow::Result<Side> {
    // No name of a text has a colon in it; a file's may.
    let (file, name) = match operand.rsplit_once(':') {
        Some((file, name)) => (vec![PathBuf::from(file)], name),
        None => (input.input.clone(), operand),
    };
    let opened = Input::open(&InputArgs { input: file, ..input.clone() })?;
    let reader = opened.reader()?;
    let texts = Texts::of(&reader, &mut opened.source(&reader)?);
    let index = the_one(&texts, name, say)?;
    let known = &texts.all[index];
    let code = known.code.as_ref().map_err(|reason| no_code(known, reason))?;
    let machine = Machine::of_uname(reader.features().arch.as_deref().unwrap_or(std::env::consts::ARCH));
    let mut names = Names {
        texts: &texts,
        resolver: Resolver::new(&reader, opened.resolve_options()),
        inside: known.text.address..known.text.address.saturating_add(code.bytes.len() as u64),
        at: known.text.gone_ns.map_or(u64::MAX, |gone| gone.saturating_sub(1)),
    };
    let proven = if code.proven { "" } else { ", not proven" };
    Ok(Side {
        title: format!("{} in {}, {} bytes{proven}", label(&known.text), opened.name(), code.bytes.len()),
        instructions: instructions(code.bytes, machine, &mut names),
        whole: opened.end(&reader, &texts.stats, say) == Exit::Done,
    })
}

/// Words for addresses that instructions name.
struct Names<'t, 'f> {
    texts: &'t Texts<'f>,
    resolver: Resolver,
    /// Where the text itself lies.
    inside: Range<u64>,
    /// The last moment at which it was there: what it called was there then.
    at: u64,
}

impl Names<'_, '_> {
    /// What people read, and what is compared, for an address in the instruction at `from`.
    fn of(&mut self, from: u64, address: u64) -> (String, String) {
        if self.inside.contains(&address) {
            // Backwards is a number below 0.
            let far = address.wrapping_sub(from) as i64;
            return (format!("+{:#x}", address - self.inside.start), format!(".{far:+}"));
        }
        let name = self.outside(address);
        (name.clone(), name)
    }

    fn outside(&mut self, address: u64) -> String {
        let state = &self.texts.state;
        let place = match state.kernel().lookup(address, self.at) {
            Some(hit) => Place::Text(hit.text),
            None => Place::Kernel,
        };
        let frame = self.resolver.frame(state, Loc { place, addr: address });
        match (&frame.symbol, frame.offset) {
            (Ok(name), 0) => name.to_string(),
            (Ok(name), offset) => format!("{name}+{offset:#x}"),
            (Err(_), _) => format!("{address:#x}"),
        }
    }
}

/// Stands in front of the 16 digits of an address in an instruction, until that is worded.
const MARK: char = '\u{1}';

fn instructions(code: &[u8], machine: Machine, names: &mut Names<'_, '_>) -> Vec<Instruction> {
    let start = names.inside.start;
    let decoded = disasm::decode(machine, Style::Att, code, start, &mut |address| format!("{MARK}{address:016x}"));
    decoded.into_iter().map(|line| worded(line.offset, &line.text, start.wrapping_add(line.offset), names)).collect()
}

/// An instruction whose addresses are still marked, with words for them.
fn worded(offset: u64, marked: &str, from: u64, names: &mut Names<'_, '_>) -> Instruction {
    let mut parts = marked.split(MARK);
    let mut text = parts.next().unwrap_or_default().to_owned();
    let mut key = text.clone();
    for part in parts {
        let (digits, rest) = part.split_at_checked(16).unwrap_or((part, ""));
        let words = u64::from_str_radix(digits, 16).map(|address| names.of(from, address));
        let (shown, compared) = words.unwrap_or_else(|_| (digits.to_owned(), digits.to_owned()));
        text.extend([&shown, rest]);
        key.extend([&compared, rest]);
    }
    Instruction { offset, text, key }
}

fn write(out: &mut dyn Write, old: &Side, new: &Side, operations: Vec<DiffOp>) -> io::Result<()> {
    writeln!(out, "--- {}", clean(&old.title))?;
    writeln!(out, "+++ {}", clean(&new.title))?;
    for group in group_diff_ops(operations, AROUND) {
        let (Some(first), Some(last)) = (group.first(), group.last()) else { continue };
        let from = |side: &Side, range: Range<usize>| side.instructions.get(range.start).map_or(0, |i| i.offset);
        let counts = (last.old_range().end - first.old_range().start, last.new_range().end - first.new_range().start);
        let at = (from(old, first.old_range()), from(new, first.new_range()));
        writeln!(out, "@@ -{:#x},{} +{:#x},{} @@", at.0, counts.0, at.1, counts.1)?;
        for operation in &group {
            match operation.tag() {
                DiffTag::Equal => lines(out, ' ', new, operation.new_range())?,
                _ => {
                    lines(out, '-', old, operation.old_range())?;
                    lines(out, '+', new, operation.new_range())?;
                }
            }
        }
    }
    Ok(())
}

fn lines(out: &mut dyn Write, sign: char, side: &Side, range: Range<usize>) -> io::Result<()> {
    let range = side.instructions.get(range).unwrap_or_default();
    range.iter().try_for_each(|i| writeln!(out, "{sign}{:6x}:  {}", i.offset, clean(&i.text)))
}
