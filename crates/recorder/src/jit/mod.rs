//! What JIT compilers tell of their code, followed while a recording runs.
//!
//! A process with code in memory that is of no file may write `/tmp/perf-PID.map`; one that maps the first page of a
//! `jit-PID.dump` writes that. Both files grow, belong to the process, stand in its root under its own number for itself, and
//! may go with it. So they are held open from the first moment on, and what is new in them goes to the recording with the
//! time at which it was there.

mod follow;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use afterimage_perf_data::record::{Comm, FileId, Mmap2, Task, kind, misc};
use afterimage_perf_data::{Endian, JitPiece, Layout, RawRecord, Record, decode};
use afterimage_perf_event::open::Target;
use afterimage_symbols::source::{PathKind, Place, RealFiles, classify};
use afterimage_symbols::{jitdump, perfmap};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{CWD, Mode, OFlags, major, minor, openat};

use crate::control::now_ns;
use crate::synth::procfs::{self, PROT_EXEC};
use follow::{Followed, Room};

/// Processes that are followed at a time: each takes a descriptor for `/tmp`, one for its map and one for each dump.
const FOLLOWED: usize = 256;

/// A map that is not there yet is looked for again after this, and after twice that, and so on.
const FIRST_LOOK: Duration = Duration::from_millis(20);
/// Never later than this.
const LAST_LOOK: Duration = Duration::from_secs(1);

/// Dumps of one process.
const DUMPS: usize = 4;

/// When so many bytes wait they are better written down.
const WAITING: usize = 1 << 20;
/// When so many wait nothing more is read until they are.
const ENOUGH: usize = 4 << 20;

/// So many lives are remembered before those that ended are forgotten, except for those that ended less than this before.
const LIVES: usize = 1 << 16;
const FORGET_NS: u64 = 10_000_000_000;

/// Follows maps and dumps.
pub(crate) struct Follower {
    layout: Layout,
    /// The processes of a target, where not the whole machine is recorded.
    only: Option<HashSet<u32>>,
    lives: HashMap<u32, Life>,
    /// How many of them are too many.
    most_lives: usize,
    processes: BTreeMap<u32, Process>,
    /// Processes as they were before an exec, or before another one got the number: there may be something left to read.
    leaving: Vec<(u32, Process)>,
    /// Whose turn it is first when there is more to read than is read at once.
    turn: u32,
    /// Tells when a map has grown.
    watch: Option<Arc<OwnedFd>>,
    room: Room,
    pieces: Vec<JitPiece>,
    /// Bytes in them.
    waiting: usize,
    /// Processes that were not followed for there were too many.
    too_many: u64,
}

/// What is known of a process. Records of several processors come one processor after the other: a later time counts.
#[derive(Clone, Copy, Default)]
struct Life {
    /// When it began or called exec, where that was within the recording.
    since: u64,
    /// When it, or one that had its number before, ended.
    ended: u64,
}

/// A process that makes code.
struct Process {
    since: u64,
    /// When it made memory for code or mapped a dump. What the recorder made up of what was there has no time: then when
    /// that was learnt.
    first: u64,
    /// Whether a record told the time.
    timed: bool,
    /// Its own number for itself, and its user; `None` if it was gone before it was asked.
    own: Option<(u32, u32)>,
    /// Its `/tmp`, which is there as long as somebody holds it.
    tmp: Option<OwnedFd>,
    map: Option<Followed>,
    dumps: Vec<Followed>,
    next_look: Instant,
    wait: Duration,
    /// When it ended or called exec.
    until: Option<u64>,
}

/// Tells when a file has grown, until it is dropped.
struct Watch {
    watch: Arc<OwnedFd>,
    number: i32,
}

impl Drop for Watch {
    fn drop(&mut self) {
        // There is none any more where the file is gone.
        let _ = inotify::remove_watch(&self.watch, self.number);
    }
}

impl Follower {
    /// For a recording of this target; `layout` is that of the sideband's records.
    pub(crate) fn new(layout: Layout, target: &Target) -> Follower {
        let only = match target {
            Target::Cpus(_) => None,
            Target::Tasks { tids, .. } => Some(procfs::processes_of(tids).into_iter().collect()),
            Target::Command { pid, .. } => Some(HashSet::from([*pid])),
        };
        Follower {
            layout,
            only,
            lives: HashMap::new(),
            most_lives: LIVES,
            processes: BTreeMap::new(),
            leaving: Vec::new(),
            turn: 0,
            watch: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok().map(Arc::new),
            room: Room::default(),
            pieces: Vec::new(),
            waiting: 0,
            too_many: 0,
        }
    }

    /// Looks at one record of the sideband.
    pub(crate) fn learn(&mut self, record: &[u8]) {
        let Some(kind) = record.first_chunk::<4>().map(|kind| u32::from_ne_bytes(*kind)) else { return };
        if !matches!(kind, kind::MMAP2 | kind::COMM | kind::FORK | kind::EXIT) {
            return;
        }
        let Ok(raw) = RawRecord::parse(record, 0, Endian::NATIVE) else { return };
        match decode(&raw, &self.layout) {
            Ok(Record::Mmap2(map)) if map.prot & PROT_EXEC != 0 && map.misc & misc::MMAP_DATA == 0 => self.mapped(&map),
            Ok(Record::Comm(comm)) if comm.is_exec() => self.exec(&comm),
            Ok(Record::Fork(task)) if task.pid != task.ppid => self.forked(&task),
            Ok(Record::Exit(task)) if task.pid == task.tid => self.exited(&task),
            _ => {}
        }
    }

    fn forked(&mut self, task: &Task) {
        if let Some(only) = self.only.as_mut().filter(|only| only.contains(&task.ppid)) {
            only.insert(task.pid);
        }
        // What the recorder made up of processes that were there has no time.
        if task.id.time.unwrap_or(0) != 0 {
            self.begins(task.pid, task.id.time.unwrap_or(task.time));
        }
    }

    /// The code that was there is gone; what was told of it is of times before.
    fn exec(&mut self, comm: &Comm<'_>) {
        self.begins(comm.pid, comm.id.time.unwrap_or(0));
    }

    fn begins(&mut self, pid: u32, time: u64) {
        let life = self.lives.entry(pid).or_default();
        if time < life.since {
            return;
        }
        life.since = time;
        match self.processes.get_mut(&pid) {
            // Its own record came before that of its beginning.
            Some(process) if process.first > time => process.restart(time),
            Some(_) => self.leaves(pid, time),
            None => {}
        }
    }

    /// What is followed of a process is of one that is no more.
    fn leaves(&mut self, pid: u32, time: u64) {
        if let Some(mut process) = self.processes.remove(&pid) {
            process.until.get_or_insert(time);
            if process.map.is_some() || !process.dumps.is_empty() {
                self.leaving.push((pid, process));
            }
        }
    }

    fn exited(&mut self, task: &Task) {
        let time = task.id.time.unwrap_or(task.time);
        let life = self.lives.entry(task.pid).or_default();
        if time < life.since {
            return;
        }
        life.ended = time;
        let process = self.processes.get_mut(&task.pid);
        if let Some(process) = process.filter(|process| !process.timed || process.first <= time) {
            process.until.get_or_insert(time);
        }
        if self.lives.len() > self.most_lives {
            let old = |life: &Life| life.ended >= life.since && life.ended.saturating_add(FORGET_NS) < time;
            self.lives.retain(|_, life| !old(life));
            self.most_lives = LIVES.max(2 * self.lives.len());
        }
    }

    fn mapped(&mut self, map: &Mmap2<'_>) {
        let dump = jitdump::pid_of_path(map.filename);
        let is_code = matches!(classify(map.filename), PathKind::Anonymous | PathKind::Memfd);
        if dump.is_none() && !is_code || self.only.as_ref().is_some_and(|only| !only.contains(&map.pid)) {
            return;
        }
        let time = map.id.time.filter(|time| *time != 0);
        let life = self.lives.get(&map.pid).copied().unwrap_or_default();
        // One of an image that is gone.
        if time.is_some_and(|time| time < life.since) {
            return;
        }
        let ended = self.processes.get(&map.pid).and_then(|process| process.until);
        if let Some(ended) = ended.filter(|ended| time.is_some_and(|time| time > *ended)) {
            self.leaves(map.pid, ended);
        }
        if !self.processes.contains_key(&map.pid) {
            if self.processes.len() + self.leaving.len() >= FOLLOWED {
                self.too_many += 1;
                return;
            }
            let mut process = Process::new(map.pid, life.since, time);
            process.until = time.filter(|time| *time <= life.ended).map(|_| life.ended);
            self.processes.insert(map.pid, process);
        }
        if let Some((number, process)) = dump.zip(self.processes.get_mut(&map.pid)) {
            process.dump(map, number);
        }
    }

    /// What is told of growing maps, if anything can be.
    pub(crate) fn watched(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(|watch| watch.as_fd())
    }

    /// Reads what is new in all files that are followed, as long as not too much waits, and looks for maps where it is time to.
    pub(crate) fn look(&mut self) {
        self.heard();
        let (room, pieces, waiting) = (&mut self.room, &mut self.pieces, &mut self.waiting);
        self.leaving.retain_mut(|(pid, process)| !process.read(*pid, room, pieces, waiting));
        let now = Instant::now();
        let (before, after): (Vec<u32>, Vec<u32>) = self.processes.keys().partition(|pid| **pid < self.turn);
        for pid in after.into_iter().chain(before) {
            if *waiting >= ENOUGH {
                self.turn = pid;
                break;
            }
            let Some(process) = self.processes.get_mut(&pid) else { continue };
            if process.map.is_none() && (process.until.is_some() || process.next_look <= now) {
                process.look_for_map(pid, self.watch.as_ref());
            }
            if process.read(pid, room, pieces, waiting) && process.until.is_some() {
                self.processes.remove(&pid);
            }
        }
    }

    /// Takes what the watch has to say, so that it can speak again.
    fn heard(&self) {
        let Some(watch) = &self.watch else { return };
        let mut room = [MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(watch, &mut room);
        while reader.next().is_ok() {}
    }

    /// Whether so much waits that it is better written down.
    pub(crate) fn is_full(&self) -> bool {
        self.waiting > WAITING
    }

    /// What was read since the last time.
    pub(crate) fn take(&mut self) -> Vec<JitPiece> {
        self.waiting = 0;
        std::mem::take(&mut self.pieces)
    }

    /// Reads once more, at the end: to be called again as long as it is [full](Follower::is_full) then.
    pub(crate) fn finish(&mut self) {
        self.processes.values_mut().for_each(|process| process.next_look = Instant::now());
        self.look();
    }

    /// What is missing in the recording, a line each.
    pub(crate) fn problems(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.too_many > 0 {
            lines.push(format!("more than {FOLLOWED} processes made code: that of some has no names in the recording"));
        }
        if self.room.left_out > 0 {
            let mib = self.room.left_out >> 20;
            lines.push(format!(
                "JIT compilers told more of their code than the recording takes: {mib} MiB are left out"
            ));
        }
        lines
    }
}

impl Process {
    /// `first` is the time of its first record, where that has one.
    fn new(pid: u32, since: u64, first: Option<u64>) -> Process {
        let status = std::fs::read(format!("/proc/{pid}/status")).unwrap_or_default();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let tmp = openat(CWD, format!("/proc/{pid}/root/tmp"), flags | OFlags::NOFOLLOW, Mode::empty());
        Process {
            since,
            first: first.unwrap_or_else(now_ns),
            timed: first.is_some(),
            own: perfmap::identity(&status),
            tmp: tmp.ok(),
            map: None,
            dumps: Vec::new(),
            next_look: Instant::now(),
            wait: FIRST_LOOK,
            until: None,
        }
    }

    /// It began later than was known: what was told before is told again.
    fn restart(&mut self, since: u64) {
        self.since = since;
        self.map.iter_mut().chain(&mut self.dumps).for_each(Followed::restart);
    }

    /// Its own number for itself, as far as is known.
    fn number(&self, pid: u32) -> u32 {
        self.own.map_or(pid, |own| own.0)
    }

    /// Whose room its files take.
    fn user(&self) -> u32 {
        self.own.map_or(u32::MAX, |own| own.1)
    }

    /// Follows the dump that it has mapped, if that is its own.
    fn dump(&mut self, map: &Mmap2<'_>, number: u32) {
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(map.filename));
        let known = self.dumps.iter().any(|dump| dump.path == path);
        if known || self.dumps.len() >= DUMPS || number != self.number(map.pid) {
            return;
        }
        let by_map = procfs::open_mapped(Path::new("/proc"), map.pid, map.addr, map.addr.saturating_add(map.len));
        let by_map = by_map.filter(|file| file.metadata().is_ok_and(|meta| meta.is_file()));
        let root = PathBuf::from(format!("/proc/{}/root", map.pid));
        let at = |root| {
            let file = RealFiles.open_file(&Place { root, path: &path, follow: false }).ok();
            file.filter(|file| is_the_file(file, &map.file))
        };
        // Of a process that is gone the file may be where it would be if its root were ours.
        let outside = || if self.own.is_none() { at(None) } else { None };
        if let Some(file) = by_map.or_else(|| at(Some(root.as_path()))).or_else(outside) {
            self.dumps.push(Followed::new(file, path, JitPiece::DUMP, self.user()).of(number));
        }
    }

    fn look_for_map(&mut self, pid: u32, watch: Option<&Arc<OwnedFd>>) {
        self.next_look = Instant::now() + self.wait;
        self.wait = (self.wait * 2).min(LAST_LOOK);
        let Some((file, path)) = self.open_map(pid) else { return };
        let mut map = Followed::new(file, path, JitPiece::MAP, self.user());
        // Where that cannot be had the file is read at each pass all the same.
        map.watch = watch.and_then(|watch| {
            let file = format!("/proc/self/fd/{}", map.file.as_raw_fd());
            let number = inotify::add_watch(watch, file, WatchFlags::MODIFY).ok()?;
            Some(Watch { watch: watch.clone(), number })
        });
        self.map = Some(map);
    }

    /// Its map, if it is the process's own or root's: anybody may create the file of a process that has not yet done so.
    fn open_map(&self, pid: u32) -> Option<(File, PathBuf)> {
        use std::os::unix::fs::MetadataExt;
        let (own_pid, uid) = self.own.unwrap_or((pid, rustix::process::geteuid().as_raw()));
        let name = format!("perf-{own_pid}.map");
        let file = match &self.tmp {
            Some(tmp) => {
                let root = PathBuf::from(format!("/proc/self/fd/{}", tmp.as_raw_fd()));
                let path = PathBuf::from(format!("/{name}"));
                RealFiles.open_file(&Place { root: Some(&root), path: &path, follow: false })
            }
            // Another one's root is not ours; in ours another process may have that number.
            None if own_pid != pid => return None,
            None => RealFiles.open_file(&Place { root: None, path: &Path::new("/tmp").join(&name), follow: false }),
        };
        let file = file.ok()?;
        let owner = file.metadata().ok()?.uid();
        (owner == uid || owner == 0).then(|| (file, Path::new("/tmp").join(name)))
    }

    /// Reads what is new, as long as not too much waits. Whether that was all.
    fn read(&mut self, pid: u32, room: &mut Room, pieces: &mut Vec<JitPiece>, waiting: &mut usize) -> bool {
        let ended = self.until.is_some();
        for followed in self.map.iter_mut().chain(&mut self.dumps) {
            loop {
                if *waiting >= ENOUGH {
                    return false;
                }
                // What is read after it ended was told before.
                let at_ns = now_ns().min(self.until.map_or(u64::MAX, |until| until.saturating_sub(1)));
                let Some(data) = followed.next(room, ended) else { break };
                *waiting += data.len();
                let (source, path) = (followed.source, followed.path.as_os_str().as_bytes().to_vec());
                pieces.push(JitPiece { pid, source, since_ns: self.since, at_ns, path, data });
            }
        }
        // A map that was cut or replaced is another one.
        if self.map.as_ref().is_some_and(Followed::is_gone) && !ended {
            (self.map, self.wait) = (None, FIRST_LOOK);
        }
        true
    }
}

/// Whether a file is the one that a map record tells of.
fn is_the_file(file: &File, id: &FileId) -> bool {
    use std::os::unix::fs::MetadataExt;
    let FileId::Inode { maj, min, ino, .. } = id else { return false };
    let is_it = |meta: std::fs::Metadata| (major(meta.dev()), minor(meta.dev()), meta.ino()) == (*maj, *min, *ino);
    *ino != 0 && file.metadata().is_ok_and(is_it)
}
