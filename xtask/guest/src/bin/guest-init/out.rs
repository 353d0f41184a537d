//! Files for the host, written to a disk as an archive.

use guest::cpio::Writer;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Seek};
use std::path::Path;

/// The disk that the host reads.
pub(crate) const DISK: &str = "/dev/vda";

/// Writes all files below `folder` to the disk; gives the size of the archive in bytes.
pub(crate) fn write(folder: &str, disk: &str) -> io::Result<u64> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{disk}: {error}"));
    let file = OpenOptions::new().write(true).open(disk).map_err(named)?;
    let mut writer = Writer::new(BufWriter::with_capacity(1 << 20, file));
    add(Path::new(folder), "", &mut writer).map_err(named)?;
    let mut file = writer.finish().map_err(named)?.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.sync_all().map_err(named)?;
    file.stream_position()
}

fn add(folder: &Path, prefix: &str, writer: &mut Writer<BufWriter<File>>) -> io::Result<()> {
    let mut entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let Ok(name) = entry.file_name().into_string() else { continue };
        let (path, kind) = (format!("{prefix}{name}"), entry.file_type()?);
        if kind.is_dir() {
            writer.folder(&path, 0o755)?;
            add(&entry.path(), &format!("{path}/"), writer)?;
        } else if kind.is_file() {
            let file = File::open(entry.path())?;
            let size = file.metadata()?.len();
            writer.file(&path, 0o644, size, file)?;
        }
    }
    Ok(())
}
