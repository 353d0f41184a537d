//! Where results go: standard output or a file, buffered, with errors that say what could not be written.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::path::Path;

use anyhow::Context;

/// Bytes that are held back until there are more.
pub(crate) const BUFFER: usize = 256 << 10;

/// Standard output without line buffering: a result may be millions of lines.
pub(crate) fn stdout() -> anyhow::Result<BufWriter<File>> {
    let fd = io::stdout().as_fd().try_clone_to_owned().context("standard output")?;
    Ok(BufWriter::with_capacity(BUFFER, File::from(fd)))
}

/// A file that is made anew, or standard output for `-`.
pub(crate) fn create(path: &Path) -> anyhow::Result<BufWriter<File>> {
    if path == Path::new("-") {
        return stdout();
    }
    let file = File::create(path).with_context(|| path.display().to_string())?;
    Ok(BufWriter::with_capacity(BUFFER, file))
}

/// Writes what is still held back.
pub(crate) fn flush(out: &mut dyn Write) -> anyhow::Result<()> {
    out.flush().context("standard output")
}
