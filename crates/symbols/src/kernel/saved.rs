//! The index over `/proc/kallsyms` that is kept on disk, so that a command does not read 120,000 lines each time.
//!
//! It is good for one boot (addresses are randomized anew) and one set of modules, and is asked only where the kernel
//! shows its addresses to us now: what an earlier, more privileged run saw is not handed on.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::KernelTable;
use crate::bytes::{Cursor, checksum, put_block, seal, unseal};
use crate::cache;
use crate::error::{Error, io};

const KALLSYMS: &str = "/proc/kallsyms";
const MAGIC: &[u8; 8] = b"AIKBOOT\x01";
/// How much of the list is read to see whether addresses are hidden.
const HEAD: u64 = 16 * 1024;
/// Largest list that is read. 120,000 symbols are 6 MB.
const MAX_LIST: u64 = 1 << 30;

pub(super) fn running(dir: Option<&Path>) -> Result<KernelTable, Error> {
    let mut list = File::open(KALLSYMS).map_err(io(KALLSYMS))?;
    let mut text = Vec::new();
    list.by_ref().take(HEAD).read_to_end(&mut text).map_err(io(KALLSYMS))?;
    if super::kallsyms::is_hidden(&text) {
        return Ok(KernelTable { hidden: true, ..KernelTable::default() }.with_build_id(&build_id()));
    }
    let build_id = build_id();
    let key = key(&build_id);
    let name = file_name(&build_id);
    let kept = dir.zip(key.as_deref()).and_then(|(dir, key)| load(&dir.join(&name), key));
    if let Some(table) = kept {
        return Ok(table);
    }
    list.take(MAX_LIST).read_to_end(&mut text).map_err(io(KALLSYMS))?;
    let table = KernelTable::parse(&text).with_build_id(&build_id);
    if let Some((dir, key)) = dir.zip(key) {
        // A cache that cannot be written costs time, not names.
        let _ = save(dir, &name, &key, &table);
    }
    Ok(table)
}

fn build_id() -> Vec<u8> {
    super::kernel_build_id().unwrap_or_default()
}

/// One file for each kernel, so that a machine that boots a few kernels in turn keeps a few files.
fn file_name(build_id: &[u8]) -> String {
    format!("kernel-{}", cache::hex(build_id))
}

/// What the index is good for: this boot, this kernel, these modules at these places.
fn key(build_id: &[u8]) -> Option<Vec<u8>> {
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").ok()?;
    let modules = match std::fs::read("/proc/modules") {
        // Reference counts and states change all the time; names, sizes and places are what counts.
        Ok(list) => list.split(|&b| b == b'\n').flat_map(module_place).copied().collect(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
        Err(_) => return None,
    };
    let mut key = Vec::new();
    put_block(&mut key, &boot);
    put_block(&mut key, build_id);
    key.extend(checksum(&modules).to_le_bytes());
    Some(key)
}

/// The name, size and address of a line of `/proc/modules`: `name size count users state address`.
fn module_place(line: &[u8]) -> impl Iterator<Item = &u8> {
    let fields = line.split(|&b| b == b' ').enumerate();
    fields.filter(|(at, _)| matches!(at, 0 | 1 | 5)).flat_map(|(_, field)| field.iter().chain(b" "))
}

fn load(path: &Path, key: &[u8]) -> Option<KernelTable> {
    let bytes = cache::read_own(path)?;
    let mut cursor = Cursor(unseal(MAGIC, &bytes)?);
    (cursor.block()? == key).then_some(())?;
    KernelTable::decode(cursor.0)
}

fn save(dir: &Path, name: &str, key: &[u8], table: &KernelTable) -> std::io::Result<()> {
    let mut out = Vec::new();
    put_block(&mut out, key);
    out.extend(table.encode());
    cache::write_own(dir, name, &seal(MAGIC, &out))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn kept_for_the_same_key_only() {
        let dir = tempfile::tempdir().unwrap();
        let table = KernelTable::parse(b"ffffffff81000000 T _stext\nffffffff81000100 T _etext\n").with_build_id(b"id");
        save(dir.path(), "kernel-x", b"key one", &table).unwrap();
        let path = dir.path().join("kernel-x");
        assert_eq!(load(&path, b"key one").unwrap(), table);
        assert_eq!(load(&path, b"key two"), None);
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(load(&path, b"key one"), None);
    }

    #[test]
    fn reference_counts_do_not_change_the_key() {
        let place = |line: &[u8]| module_place(line).copied().collect::<Vec<u8>>();
        assert_eq!(
            place(b"xfs 4096 3 - Live 0xffffffffc0000000"),
            place(b"xfs 4096 9 a,b, Loading 0xffffffffc0000000")
        );
        assert_ne!(place(b"xfs 4096 3 - Live 0xffffffffc0000000"), place(b"xfs 4096 3 - Live 0xffffffffc1000000"));
    }

    #[test]
    fn the_running_kernel_through_the_index_and_past_it() {
        let dir = tempfile::tempdir().unwrap();
        let first = running(Some(dir.path())).unwrap();
        let second = running(Some(dir.path())).unwrap();
        let direct = running(None).unwrap();
        assert_eq!(first, second);
        assert_eq!(first, direct);
    }
}
