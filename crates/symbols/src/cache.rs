//! Symbol tables kept on disk by build id, so that names outlive their files. Those of files without a build id, which
//! the Rust linker makes, are kept by the very state of the file: they save reading it again, and no more.
//!
//! Short-lived containers and deleted files are named from here after they are gone. The folder is the user's own:
//! `$XDG_CACHE_HOME/afterimage`, else `~/.cache/afterimage`. Nothing is read from or written to a folder of another
//! user (as root under a user's `HOME`), entries are 0600, written aside and renamed, and sealed by a checksum.

mod aside;

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::SymbolTable;
use crate::source::Identity;

/// What a cache may take on disk before its oldest entries go, in bytes.
pub const DEFAULT_LIMIT: u64 = 512 << 20;
/// Largest entry that is read back.
const MAX_ENTRY: u64 = 512 << 20;

/// Seconds without a change after which the time of the last change tells a file's states apart.
const SETTLED: u64 = 2;

/// The file in the folder that holds the limit that the user set.
const LIMIT: &str = "limit";

/// One table in the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheEntry {
    /// What it is kept by: a build ID as hexadecimal digits, `file-` and the state of a file without one, or `kernel-` and the
    /// build ID of a kernel; `debuginfod-`, a build ID and which file it is for one that came from a server.
    pub name: String,
    /// What it takes on disk.
    pub bytes: u64,
    /// When it was used last.
    pub used: SystemTime,
}

/// A folder of symbol tables.
#[derive(Debug, Clone)]
pub struct Cache {
    dir: PathBuf,
    limit: u64,
}

impl Cache {
    /// The user's own cache, when there is a place for one, with the limit that was [set](Cache::set_limit) for it.
    pub fn open_default() -> Option<Cache> {
        let dir = default_dir()?;
        let limit = read_own(&dir.join(LIMIT)).and_then(|text| std::str::from_utf8(&text).ok()?.trim().parse().ok());
        Some(Cache::at(dir, limit.unwrap_or(DEFAULT_LIMIT)))
    }

    /// The folder. It need not exist.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What its entries may take on disk, in bytes.
    pub fn limit(&self) -> u64 {
        self.limit
    }

    /// Sets the limit of the cache for this and for later commands, and removes what is beyond it.
    ///
    /// # Errors
    /// When the folder cannot be made or belongs to another user, or cannot be written to.
    pub fn set_limit(&mut self, bytes: u64) -> io::Result<()> {
        write_own(&self.dir, LIMIT, format!("{bytes}\n").as_bytes())?;
        self.limit = bytes;
        self.shrink(LIMIT)
    }

    /// The entries, those used last first. None where there is no folder.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn entries(&self) -> io::Result<Vec<CacheEntry>> {
        let list = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            list => list?,
        };
        let entry = |entry: fs::DirEntry| {
            let meta = entry.metadata().ok().filter(|meta| meta.is_file() && is_entry(&entry.file_name()))?;
            let name = entry.file_name().to_string_lossy().into_owned();
            Some(CacheEntry { name, bytes: meta.len(), used: meta.modified().unwrap_or(SystemTime::UNIX_EPOCH) })
        };
        let mut entries: Vec<CacheEntry> = list.flatten().filter_map(entry).collect();
        entries.sort_by(|a, b| (b.used, &a.name).cmp(&(a.used, &b.name)));
        Ok(entries)
    }

    /// Removes all entries, and gives those that there were. What others are just writing or fetching is no entry yet; of that
    /// goes what nobody writes to any more.
    ///
    /// # Errors
    /// When the folder cannot be read or belongs to another user, or an entry cannot be removed.
    pub fn clear(&self) -> io::Result<Vec<CacheEntry>> {
        let entries = self.entries()?;
        if !entries.is_empty() && fs::metadata(&self.dir)?.uid() != effective_uid() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        for entry in &entries {
            match fs::remove_file(self.dir.join(&entry.name)) {
                // Somebody else was quicker.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                result => result?,
            }
        }
        aside::remove_left(&self.dir);
        Ok(entries)
    }

    /// A cache in `dir`, which is created when something is put in, of at most `limit` bytes.
    pub fn at(dir: impl Into<PathBuf>, limit: u64) -> Cache {
        Cache { dir: dir.into(), limit }
    }

    /// The table of the object with this build id. A damaged entry counts as none.
    pub fn get(&self, build_id: &[u8]) -> Option<SymbolTable> {
        self.read(&entry_name(build_id)?, Some(build_id))
    }

    /// The table of a file without a build id, in the state that it has now.
    pub(crate) fn get_file(&self, file: &Identity) -> Option<SymbolTable> {
        self.read(&file_name(file), None)
    }

    fn read(&self, name: &str, build_id: Option<&[u8]>) -> Option<SymbolTable> {
        let path = self.dir.join(name);
        let table = SymbolTable::decode(&read_own(&path)?).filter(|t| t.build_id() == build_id)?;
        // The age of an entry is the time of its last use. Where that cannot be set, it is that of its making.
        let _ = File::open(&path).and_then(|f| f.set_modified(SystemTime::now()));
        Some(table)
    }

    /// By what name a file of a build that came from elsewhere is kept; `what` says which file. `None` for no build id.
    pub fn download_name(build_id: &[u8], what: &str) -> Option<String> {
        entry_name(build_id).map(|id| format!("debuginfod-{id}-{what}"))
    }

    /// A file that came from elsewhere, opened.
    pub fn downloaded(&self, name: &str) -> Option<File> {
        let no_follow = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
        let file = OpenOptions::new().read(true).custom_flags(no_follow).open(self.dir.join(name)).ok()?;
        let meta = file.metadata().ok()?;
        if !meta.is_file() || meta.uid() != effective_uid() {
            return None;
        }
        // As for tables, the age is the time of the last use.
        let _ = file.set_modified(SystemTime::now());
        Some(file)
    }

    /// Keeps a file that comes from elsewhere as `write` writes it. Nothing is left of one that is not whole.
    ///
    /// # Errors
    /// What `write` fails with; when the folder cannot be made, belongs to another user or is full.
    pub fn download<T>(&self, name: &str, write: impl FnOnce(&mut File) -> io::Result<T>) -> io::Result<(File, T)> {
        let done = write_own_with(&self.dir, name, |file| {
            let done = write(file)?;
            Ok((file.try_clone()?, done))
        })?;
        self.shrink(name)?;
        Ok(done)
    }

    /// Whether there is an entry for this build id, good or not.
    pub(crate) fn has(&self, build_id: &[u8]) -> bool {
        entry_name(build_id).is_some_and(|name| self.dir.join(name).exists())
    }

    /// Keeps a table under its build id.
    ///
    /// # Errors
    /// When the folder cannot be made or belongs to another user, or the entry cannot be written.
    pub fn put(&self, build_id: &[u8], table: &SymbolTable) -> io::Result<()> {
        let Some(name) = entry_name(build_id) else { return Err(io::ErrorKind::InvalidInput.into()) };
        write_own(&self.dir, &name, &table.encode())?;
        self.shrink(&name)
    }

    /// Keeps the table of a file without a build id. One that was changed a moment ago is left out: it could change again
    /// without another time of change.
    pub(crate) fn put_file(&self, file: &Identity, table: &SymbolTable) -> io::Result<()> {
        let [.., changed, _] = *file;
        let settled = |now: Duration| now.as_secs().checked_sub(changed).is_some_and(|age| age > SETTLED);
        if !SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).is_ok_and(settled) {
            return Ok(());
        }
        let name = file_name(file);
        write_own(&self.dir, &name, &table.encode())?;
        self.shrink(&name)
    }

    /// Removes the entries that were not used for longest until the rest is within the limit. The newest one stays.
    fn shrink(&self, newest: &str) -> io::Result<()> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(&self.dir)?.flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            if meta.is_file() && entry.file_name() != *newest && is_entry(&entry.file_name()) {
                entries.push((meta.modified().unwrap_or(SystemTime::UNIX_EPOCH), meta.len(), entry.path()));
            }
        }
        entries.sort();
        let newest_len = fs::metadata(self.dir.join(newest)).map_or(0, |m| m.len());
        let mut total = entries.iter().map(|e| e.1).sum::<u64>() + newest_len;
        for (_, len, path) in entries {
            if total <= self.limit {
                break;
            }
            // Another recorder may have removed it already.
            let _ = fs::remove_file(path);
            total -= len;
        }
        aside::remove_left(&self.dir);
        Ok(())
    }
}

/// Whether a file of the folder is an entry: not the limit, and nothing that is just being written.
fn is_entry(name: &OsStr) -> bool {
    name != LIMIT && !aside::is_aside(name)
}

fn entry_name(build_id: &[u8]) -> Option<String> {
    (1..=crate::notes::MAX_BUILD_ID).contains(&build_id.len()).then(|| hex(build_id))
}

fn file_name(file: &Identity) -> String {
    let words = file.map(|word| format!("{word:x}"));
    format!("file-{}", words.join("-"))
}

/// Lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::new(), |mut out, byte| {
        // Writing to a string cannot fail.
        let _ = write!(out, "{byte:02x}");
        out
    })
}

/// The user's own cache folder. It need not exist yet.
pub(crate) fn default_dir() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let base = absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")))?;
    let nearest = base.ancestors().find_map(|dir| fs::metadata(dir).ok())?;
    // `/` and `/var` are root's: nobody but root would be able to make the folder there.
    (nearest.uid() == effective_uid()).then(|| base.join("afterimage"))
}

fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The whole of a file of ours; `None` also when it belongs to somebody else.
pub(crate) fn read_own(path: &Path) -> Option<Vec<u8>> {
    let no_follow = rustix::fs::OFlags::NOFOLLOW.bits() as i32;
    let file = OpenOptions::new().read(true).custom_flags(no_follow).open(path).ok()?;
    let meta = file.metadata().ok()?;
    if !meta.is_file() || meta.uid() != effective_uid() || meta.len() > MAX_ENTRY {
        return None;
    }
    let mut bytes = Vec::with_capacity(usize::try_from(meta.len()).ok()?);
    file.take(MAX_ENTRY).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Writes a file of ours in one step: readers see the old bytes, the new ones, or nothing.
pub(crate) fn write_own(dir: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    write_own_with(dir, name, |file| file.write_all(bytes))
}

fn write_own_with<T>(dir: &Path, name: &str, write: impl FnOnce(&mut File) -> io::Result<T>) -> io::Result<T> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    if fs::metadata(dir)?.uid() != effective_uid() {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    let (path, mut file) = aside::create(dir, name)?;
    let written = write(&mut file).and_then(|done| fs::rename(&path, dir.join(name)).map(|()| done));
    if written.is_err() {
        let _ = fs::remove_file(&path);
    }
    written
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn table(id: &[u8]) -> SymbolTable {
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        let mut table = SymbolTable::from_elf(&own).unwrap();
        table.build_id = id.to_vec();
        table
    }

    #[test]
    fn put_and_get() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path().join("deep/down"), DEFAULT_LIMIT);
        assert_eq!(cache.get(b"\x01\x02"), None);
        let table = table(b"\x01\x02");
        cache.put(b"\x01\x02", &table).unwrap();
        assert_eq!(cache.get(b"\x01\x02").unwrap(), table);
        let mode = fs::metadata(dir.path().join("deep/down/0102")).unwrap().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(fs::metadata(dir.path().join("deep/down")).unwrap().mode() & 0o777, 0o700);
        assert!(cache.put(b"", &table).is_err());
    }

    #[test]
    fn what_is_in_it_can_be_told_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let mut cache = Cache::at(dir.path().join("none"), DEFAULT_LIMIT);
        assert_eq!((cache.entries().unwrap(), cache.clear().unwrap()), (Vec::new(), Vec::new()));
        cache.put(b"\x01", &table(b"\x01")).unwrap();
        cache.put(b"\x02", &table(b"\x02")).unwrap();
        let old = File::open(cache.dir().join("01")).unwrap();
        old.set_modified(SystemTime::now() - Duration::from_secs(100)).unwrap();
        let names = |cache: &Cache| cache.entries().unwrap().into_iter().map(|e| e.name).collect::<Vec<_>>();
        assert_eq!(names(&cache), ["02", "01"]);
        let one = cache.entries().unwrap()[0].bytes;
        assert_eq!(one, table(b"\x02").encode().len() as u64);
        cache.set_limit(one * 3 / 2).unwrap();
        assert_eq!((names(&cache), cache.limit()), (vec!["02".to_owned()], one * 3 / 2));
        assert_eq!(cache.clear().unwrap().len(), 1);
        assert_eq!(cache.entries().unwrap(), []);
        assert_eq!(fs::read(cache.dir().join(LIMIT)).unwrap(), format!("{}\n", one * 3 / 2).as_bytes());
    }

    #[test]
    fn what_is_being_fetched_stays_when_the_cache_is_emptied() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path(), DEFAULT_LIMIT);
        cache.put(b"\x01", &table(b"\x01")).unwrap();
        let fetched = cache.download("debuginfod-02-executable", |file| {
            file.write_all(b"the first half,")?;
            // It takes as long as it takes.
            file.set_modified(SystemTime::now() - Duration::from_secs(1_000_000))?;
            // Meanwhile other commands empty the cache, make it small, and put something in.
            let mut other = Cache::at(dir.path(), DEFAULT_LIMIT);
            assert_eq!(other.entries()?.len(), 1);
            assert_eq!(other.clear()?.len(), 1);
            other.set_limit(1)?;
            other.put(b"\x03", &table(b"\x03"))?;
            file.write_all(b" the second half")
        });
        fetched.unwrap();
        assert_eq!(fs::read(dir.path().join("debuginfod-02-executable")).unwrap(), b"the first half, the second half");
    }

    #[test]
    fn damaged_or_misnamed_entries_count_as_none() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path(), DEFAULT_LIMIT);
        cache.put(b"\x01", &table(b"\x02")).unwrap();
        assert_eq!(cache.get(b"\x01"), None, "the entry says another build id");
        cache.put(b"\x01", &table(b"\x01")).unwrap();
        let path = dir.path().join("01");
        let mut bytes = fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 4;
        fs::write(&path, &bytes).unwrap();
        assert_eq!(cache.get(b"\x01"), None);
    }

    #[test]
    fn a_file_is_kept_by_its_state() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path(), DEFAULT_LIMIT);
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        let file: Identity = [1, 2, 3, now - 100, 5];
        cache.put_file(&file, &table(b"")).unwrap();
        assert_eq!(cache.get_file(&file).unwrap(), table(b""));
        for word in 0..file.len() {
            let mut other = file;
            other[word] += 1;
            assert_eq!(cache.get_file(&other), None, "word {word}");
        }
        for changed in [now, now + 100, u64::MAX] {
            let fresh = [1, 2, 3, changed, 5];
            cache.put_file(&fresh, &table(b"")).unwrap();
            assert_eq!(cache.get_file(&fresh), None, "changed a moment ago, or in the future");
        }
        cache.put_file(&file, &table(b"\x01")).unwrap();
        assert_eq!(cache.get_file(&file), None, "it has a build id");
    }

    #[test]
    fn the_entry_not_used_for_longest_goes() {
        let dir = tempfile::tempdir().unwrap();
        let one = table(b"\x01").encode().len() as u64;
        let cache = Cache::at(dir.path(), one * 5 / 2);
        for id in [b"\x01", b"\x02"] {
            cache.put(id, &table(id)).unwrap();
        }
        let back = |id: &str, seconds| {
            let file = File::open(dir.path().join(id)).unwrap();
            file.set_modified(SystemTime::now() - std::time::Duration::from_secs(seconds)).unwrap();
        };
        back("01", 100);
        back("02", 50);
        assert!(cache.get(b"\x01").is_some(), "a use makes it young");
        cache.put(b"\x03", &table(b"\x03")).unwrap();
        assert!(cache.get(b"\x01").is_some() && cache.get(b"\x03").is_some());
        assert_eq!(cache.get(b"\x02"), None);
    }
}
