//! Code of JIT compilers: which code is where in which process, as of now.
//!
//! It lies above what a process has mapped, as mappings of its own do above those before. At the beginning of a process, or
//! after its exec, everything that will ever be told of it is put in, the last first: an address of which nothing was told yet
//! means what it will mean first, for a compiler may tell of code a moment after the code ran. Then each change is made at
//! its time.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use afterimage_perf_data::record::FileId;
use afterimage_perf_data::{AttrFlags, FileReader, JitPiece};
use afterimage_symbols::jit::{Builder, Change, JitCode, Layer, Room};
use afterimage_symbols::jitdump;
use afterimage_symbols::source::{Files as _, Place, RealFiles, Source, read_all};
use rustc_hash::{FxHashMap, FxHashSet};

use super::objects::Objects;
use super::{Mapping, ObjectId, State};
use crate::resolve::{Here, Inode};

/// Bytes of dumps that are read from this machine for one recording, at most.
const MAX_DUMPED: u64 = 256 << 20;

/// Dumps that are read from this machine for one recording, at most.
const MAX_DUMPS: usize = 256;

/// Dumps that are asked for, at most, whether there is one or not.
const MAX_ASKED: usize = 4096;

/// What is known of the code of JIT compilers beforehand.
#[derive(Debug, Default)]
pub(crate) struct Jit {
    images: Vec<Image>,
    /// What has not happened yet, the latest first.
    coming: Vec<Coming>,
    /// When the next of these happens; the end of time if there is none.
    next: Option<u64>,
    /// Processes of which the recording itself tells.
    told: FxHashSet<u32>,
    /// Dumps may be read where records tell of them: where that is allowed at all, by whose word.
    here: Option<Here>,
    /// Times in dumps are those of the recording.
    same_clock: bool,
    /// Dumps that were asked for: of which process, and by which path.
    asked: HashSet<(u32, Vec<u8>)>,
    /// Those that were read from this machine.
    read: Vec<ReadDump>,
    /// Bytes in them.
    dumped: u64,
    /// What is left of what is taken of all processes.
    room: Room,
    /// Since when the image that each process has now is there, where something is told of it.
    current: FxHashMap<u32, u64>,
    /// Pieces of code that have no name, and lines, because there were too many.
    pub(crate) left_out: (u64, u64),
}

/// The code of a process from its start or its last exec on.
#[derive(Debug)]
struct Image {
    pid: u32,
    since: u64,
    layers: Vec<(Layer, Option<ObjectId>)>,
    changes: Vec<Change>,
}

/// A dump that was read from this machine.
#[derive(Debug)]
struct ReadDump {
    pid: u32,
    path: Vec<u8>,
    /// What its record says of the file.
    file: Option<FileId>,
    /// When its process mapped it.
    mapped: u64,
}

#[derive(Clone, Copy, Debug)]
struct Coming {
    time: u64,
    image: usize,
    /// Which of the image's changes; `None`: its beginning.
    change: Option<usize>,
}

/// `CLOCK_MONOTONIC`.
const MONOTONIC: i32 = 1;

impl Jit {
    /// What a recording tells, and whether dumps that its records tell of may be read here.
    pub(crate) fn of(reader: &FileReader<'_>) -> Jit {
        let pieces = reader.private().map_or(&[][..], |private| &private.jit);
        let is_archive = reader.private().is_some_and(|private| private.archive.is_some());
        let mono = |event: &afterimage_perf_data::EventDesc| {
            event.attr.flags.contains(AttrFlags::USE_CLOCKID) && event.attr.clockid == MONOTONIC
        };
        let same_clock = reader.events().first().is_some_and(mono);
        let here = Here::of(reader.features().hostname.as_deref());
        let mut jit = Jit { same_clock, here: (!is_archive && here != Here::No).then_some(here), ..Jit::default() };
        jit.adopt(pieces);
        jit
    }

    /// Takes what a recorder read of maps and dumps.
    fn adopt(&mut self, pieces: &[JitPiece]) {
        let mut builders: Vec<(u32, u64, Builder)> = Vec::new();
        let mut by_image: FxHashMap<(u32, u64), usize> = FxHashMap::default();
        let at = (!self.same_clock).then_some(0);
        for piece in pieces {
            self.told.insert(piece.pid);
            let number = *by_image.entry((piece.pid, piece.since_ns)).or_insert_with(|| {
                builders.push((piece.pid, piece.since_ns, Builder::default()));
                builders.len() - 1
            });
            let Some((_, _, builder)) = builders.get_mut(number) else { continue };
            let path = Path::new(OsStr::from_bytes(&piece.path));
            match piece.source {
                JitPiece::MAP => builder.map(path, piece.at_ns, &piece.data, &mut self.room),
                JitPiece::DUMP => builder.dump(path, at, piece.at_ns, &piece.data, &mut self.room),
                _ => {}
            }
        }
        for (pid, since, builder) in builders {
            self.add(pid, since, builder);
        }
        self.sort();
    }

    fn add(&mut self, pid: u32, since: u64, builder: Builder) {
        let code: JitCode = builder.finish(&mut self.room);
        self.left_out.0 += code.left_out;
        self.left_out.1 += code.lines_left_out;
        if code.changes.is_empty() {
            return;
        }
        let image = self.images.len();
        self.coming.push(Coming { time: since, image, change: None });
        let one = |(number, change): (usize, &Change)| Coming { time: change.time, image, change: Some(number) };
        self.coming.extend(code.changes.iter().enumerate().map(one));
        let layers = code.layers.into_iter().map(|layer| (layer, None)).collect();
        self.images.push(Image { pid, since, layers, changes: code.changes });
    }

    fn sort(&mut self) {
        self.coming.sort_by_key(|coming| Reverse((coming.time, coming.image, coming.change)));
        self.next = self.coming.last().map(|coming| coming.time);
    }

    /// Whether something happens before a time.
    #[inline]
    pub(crate) fn is_due(&self, time: u64) -> bool {
        self.next.is_some_and(|next| next < time)
    }

    fn pop_before(&mut self, time: u64) -> Option<Coming> {
        self.coming.last().filter(|coming| coming.time < time)?;
        let coming = self.coming.pop();
        self.next = self.coming.last().map(|coming| coming.time);
        coming
    }

    /// Reads the dump that a map record tells of, if that may be done. `true` if it was.
    fn read_dump(&mut self, pid: u32, path: &[u8], file: Option<FileId>, mapped: u64) -> bool {
        let Some(here) = self.here.filter(|_| !self.told.contains(&pid) && self.read.len() < MAX_DUMPS) else {
            return false;
        };
        if self.asked.len() >= MAX_ASKED || !self.asked.insert((pid, path.to_vec())) {
            return false;
        }
        let Some(bytes) = dump_of(pid, path, file, here, MAX_DUMPED - self.dumped) else { return false };
        self.dumped += bytes.len() as u64;
        self.read.push(ReadDump { pid, path: path.to_vec(), file, mapped });
        let mut builder = Builder::default();
        let path = PathBuf::from(OsStr::from_bytes(path));
        builder.dump(&path, (!self.same_clock).then_some(0), 0, &bytes, &mut self.room);
        self.add(pid, 0, builder);
        self.sort();
        true
    }

    /// A process began or called exec: what was told of the one before is over.
    pub(crate) fn begins(&mut self, pid: u32) {
        self.current.remove(&pid);
    }

    /// Dumps that were read from this machine, to be kept with the recording.
    pub(crate) fn pieces_read(&self) -> Vec<JitPiece> {
        let Some(here) = self.here else { return Vec::new() };
        let mut left = MAX_DUMPED;
        let one = |dump: &ReadDump| {
            let data = dump_of(dump.pid, &dump.path, dump.file, here, left)?;
            left -= data.len() as u64;
            let (pid, path, since_ns) = (dump.pid, dump.path.clone(), dump.mapped);
            Some(JitPiece { pid, source: JitPiece::DUMP, since_ns, path, data, ..JitPiece::default() })
        };
        self.read.iter().filter_map(one).collect()
    }
}

/// A dump on this machine, in the root of its process or in ours, of so many bytes at most. What its record says of the file
/// has to be true of it, or the recording has to be of this machine.
fn dump_of(pid: u32, path: &[u8], file: Option<FileId>, here: Here, most: u64) -> Option<Vec<u8>> {
    let inode = match file {
        Some(FileId::Inode { maj, min, ino, .. }) if ino != 0 => Some(Inode { maj, min, ino }),
        _ if here == Here::Yes => None,
        _ => return None,
    };
    let own_pid = jitdump::pid_of_path(path)?;
    let path = Path::new(OsStr::from_bytes(path));
    let root = PathBuf::from(format!("/proc/{pid}/root"));
    let inside = Place { root: Some(&root), path, follow: false };
    let outside = Place { root: None, path, follow: false };
    [inside, outside].iter().find_map(|place| {
        let source = RealFiles.open(place).ok()?;
        let is_it = |inode: Inode| source.identity().is_some_and(|[dev, ino, ..]| inode.is(dev, ino));
        if inode.is_none_or(is_it) { whole_dump(&*source, own_pid, most) } else { None }
    })
}

/// All of a dump, if it is one of that process and not longer than `most`. What is neither is not read.
fn whole_dump(source: &dyn Source, own_pid: u32, most: u64) -> Option<Vec<u8>> {
    let mut front = [0; jitdump::HEADER];
    let got = source.read_at(&mut front, 0).ok()?;
    jitdump::Header::read(front.get(..got)?).filter(|header| header.pid == own_pid && source.len() <= most)?;
    let bytes = read_all(source, usize::try_from(most).unwrap_or(usize::MAX)).ok()?;
    jitdump::Header::read(&bytes).filter(|header| header.pid == own_pid)?;
    Some(bytes)
}

impl State {
    /// Everything that was told of code up to a time happens.
    #[cold]
    pub(crate) fn jit_until(&mut self, time: u64) {
        while let Some(coming) = self.jit.pop_before(time) {
            let Some(image) = self.jit.images.get(coming.image) else { continue };
            let (pid, since) = (image.pid, image.since);
            match coming.change {
                // The process is another one by now, or has called exec.
                Some(_) if self.jit.current.get(&pid) != Some(&since) => {}
                Some(change) => {
                    let Some(change) = image.changes.get(change).copied() else { continue };
                    self.jit_put(pid, coming.image, change);
                }
                None => {
                    self.jit.current.insert(pid, since);
                    let mut changes = image.changes.clone();
                    // Of one time the last one holds; of several the first.
                    changes.reverse();
                    changes.chunk_by_mut(|a, b| a.time == b.time).for_each(<[Change]>::reverse);
                    changes.into_iter().for_each(|change| self.jit_put(pid, coming.image, change));
                }
            }
        }
    }

    fn jit_put(&mut self, pid: u32, image: usize, change: Change) {
        let (objects, images) = (&mut self.objects, &mut self.jit.images);
        let layer = images.get_mut(image).and_then(|image| image.layers.get_mut(change.layer as usize));
        let Some((layer, object)) = layer else { return };
        let object = *object.get_or_insert_with(|| of_layer(objects, pid, layer));
        let id = self.tasks.process_of(pid);
        let fresh = self.tasks.new_space_id();
        let Some(process) = self.tasks.process_mut(id) else { return };
        let Change { start, end, delta, .. } = change;
        let space = &mut process.space;
        // Where nothing was told of before, the mapping below was what the address meant.
        let new = space.jit.find(start).is_none() || space.jit.find(end - 1).is_none();
        let changed = space.jit.insert(Mapping { start, end, object, delta }, &mut self.priorities);
        if new || changed || space.shared {
            space.id = fresh;
            space.shared = false;
        }
    }

    /// A process has mapped a file that is called like a dump.
    pub(crate) fn dump_mapped(&mut self, pid: u32, path: &[u8], file: Option<FileId>) {
        // What the recorder made up of what was there before has no time.
        let now = if self.clock.now == u64::MAX { 0 } else { self.clock.now };
        if jitdump::pid_of_path(path).is_some() && self.jit.read_dump(pid, path, file, now) {
            // Its beginning is now; times in it may lie ahead.
            self.jit_until(1);
        }
    }
}

fn of_layer(objects: &mut Objects, pid: u32, layer: &Layer) -> ObjectId {
    objects.of_jit(pid, layer.path.as_os_str().as_bytes(), layer.content.clone())
}
