//! `text dump`: the code of one text, as hex, as it is, or as an ELF file.

use std::io::{self, Write};

use afterimage_perf_data::FileReader;
use anyhow::Context;

use super::args::DumpArgs;
use super::elf::Object;
use super::known::{Code, Known, Texts};
use super::{called, label, the_one};
use crate::exit::{Exit, Problem};
use crate::input::Input;
use crate::out;
use crate::say::Say;
use crate::terminal::clean;

/// Dumps one text of a recording.
pub(super) fn run(args: &DumpArgs, say: &Say) -> anyhow::Result<Exit> {
    let input = Input::open(&args.input)?;
    let reader = input.reader()?;
    let mut texts = Texts::of(&reader, &mut input.source(&reader)?);
    let index = the_one(&texts, &args.name, say)?;
    let code = texts.all[index].code.clone().map_err(|reason| no_code(&texts.all[index], &reason))?;
    if !code.proven {
        say.warn(format!("{}: the code was read by {} and is not proven", called(&texts.all[index].text), code.way));
    }
    match &args.output {
        Some(path) => {
            let bytes = if args.raw { code.bytes.to_vec() } else { object(&mut texts, index, &code, &reader)? };
            let mut to = out::create(path)?;
            to.write_all(&bytes).and_then(|()| to.flush()).with_context(|| path.display().to_string())?;
        }
        None => {
            let mut to = out::stdout()?;
            let known = &texts.all[index];
            let written = if args.raw { to.write_all(code.bytes) } else { hex(&mut to, known, &code, say.is_quiet()) };
            written.context("standard output")?;
            out::flush(&mut to)?;
        }
    }
    Ok(input.end(&reader, &texts.stats, say))
}

/// Why there is nothing to dump.
pub(super) fn no_code(known: &Known<'_>, reason: &str) -> anyhow::Error {
    Problem::failed(format!("{}: no code: {reason}", called(&known.text))).into()
}

fn object(texts: &mut Texts<'_>, index: usize, code: &Code<'_>, reader: &FileReader<'_>) -> anyhow::Result<Vec<u8>> {
    let lines = texts.lines(index);
    let text = &texts.all[index].text;
    let object = Object {
        name: text.name.as_deref().unwrap_or(&text.kind),
        address: text.address,
        code: code.bytes,
        lines: &lines,
        arch: reader.features().arch.as_deref().unwrap_or(std::env::consts::ARCH),
        endian: reader.endian(),
    };
    object.to_elf()
}

/// Bytes on a line.
const WIDTH: usize = 16;

fn hex(out: &mut dyn Write, known: &Known<'_>, code: &Code<'_>, quiet: bool) -> io::Result<()> {
    if !quiet {
        let proven = if code.proven { "" } else { ", not proven" };
        let read = format!("{} bytes, read by {}{proven}", code.bytes.len(), clean(&code.way));
        writeln!(out, "# {} at {:#x}: {read}", clean(&label(&known.text)), known.text.address)?;
    }
    for (i, line) in code.bytes.chunks(WIDTH).enumerate() {
        write!(out, "{:016x} ", known.text.address.wrapping_add((i * WIDTH) as u64))?;
        for (i, byte) in line.iter().enumerate() {
            // A gap in the middle helps to count.
            write!(out, "{}{byte:02x}", if i == WIDTH / 2 { "  " } else { " " })?;
        }
        writeln!(out)?;
    }
    Ok(())
}
