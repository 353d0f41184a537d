//! What JIT compilers tell of their code, followed while a recording runs.
//!
//! A process with code in memory that is of no file may write `/tmp/perf-PID.map`; one that maps the first page of a
//! `jit-PID.dump` writes that. Both files grow, belong to the process, stand in its root under its own number for itself, and
//! may go with it. So they are held open from the first moment on, and what is new in them goes to the recording with the
//! time at which it was there.

mod follow;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use afterimage_perf_data::record::{Comm, Mmap2, Task, kind, misc};
use afterimage_perf_data::{Endian, JitPiece, Layout, RawRecord, Record, decode};
use afterimage_perf_event::open::Target;
use afterimage_symbols::source::{PathKind, Place, RealFiles, classify};
use afterimage_symbols::{jitdump, perfmap};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{CWD, Mode, OFlags, openat};

use crate::control::now_ns;
use crate::synth::procfs::{self, PROT_EXEC};
use follow::{Followed, Room};

/// Processes that are followed at a time: each takes three descriptors.
const FOLLOWED: usize = 256;

/// A map that is not there yet is looked for again after this, and after twice that, and so on.
const FIRST_LOOK: Duration = Duration::from_millis(20);
/// Never later than this.
const LAST_LOOK: Duration = Duration::from_secs(1);

/// Bytes that wait for the next pass, at most.
const WAITING: usize = 1 << 20;

/// Follows maps and dumps.
pub(crate) struct Follower {
    layout: Layout,
    /// The processes of a target, where not the whole machine is recorded.
    only: Option<HashSet<u32>>,
    /// When processes that are alive began or called exec, where that was within the recording.
    since: HashMap<u32, u64>,
    processes: HashMap<u32, Process>,
    /// Tells when a map has grown.
    watch: Option<OwnedFd>,
    room: Room,
    pieces: Vec<JitPiece>,
    /// Processes that were not followed for there were too many.
    too_many: u64,
}

/// A process that makes code.
struct Process {
    since: u64,
    /// Its own number for itself, and its user; `None` if it was gone before it was asked.
    own: Option<(u32, u32)>,
    /// Its `/tmp`, which is there as long as somebody holds it.
    tmp: Option<OwnedFd>,
    map: Option<Followed>,
    dumps: Vec<Followed>,
    next_look: Instant,
    wait: Duration,
    ended: bool,
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
            since: HashMap::new(),
            processes: HashMap::new(),
            watch: inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok(),
            room: Room::default(),
            pieces: Vec::new(),
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
            Ok(Record::Exit(Task { pid, tid, .. })) if pid == tid => {
                self.since.remove(&pid);
                if let Some(process) = self.processes.get_mut(&pid) {
                    process.ended = true;
                }
            }
            _ => {}
        }
    }

    fn forked(&mut self, task: &Task) {
        if let Some(only) = self.only.as_mut().filter(|only| only.contains(&task.ppid)) {
            only.insert(task.pid);
        }
        // What the recorder made up of processes that were there has no time.
        if task.id.time.unwrap_or(0) != 0 {
            self.since.insert(task.pid, task.id.time.unwrap_or(task.time));
        }
    }

    /// The code that was there is gone; what was told of it is of times before.
    fn exec(&mut self, comm: &Comm<'_>) {
        if let Some(mut process) = self.processes.remove(&comm.pid) {
            process.ended = true;
            process.read(comm.pid, &mut self.room, &mut self.pieces);
        }
        self.since.insert(comm.pid, comm.id.time.unwrap_or(0));
    }

    fn mapped(&mut self, map: &Mmap2<'_>) {
        let is_dump = jitdump::pid_of_path(map.filename).is_some();
        let is_code = matches!(classify(map.filename), PathKind::Anonymous | PathKind::Memfd);
        if !(is_dump || is_code) || self.only.as_ref().is_some_and(|only| !only.contains(&map.pid)) {
            return;
        }
        if !self.processes.contains_key(&map.pid) {
            if self.processes.len() >= FOLLOWED {
                self.too_many += 1;
                return;
            }
            let since = self.since.get(&map.pid).copied().unwrap_or(0);
            self.processes.insert(map.pid, Process::new(map.pid, since));
        }
        let Some(process) = self.processes.get_mut(&map.pid).filter(|_| is_dump) else { return };
        let path = PathBuf::from(std::ffi::OsStr::from_bytes(map.filename));
        if process.dumps.iter().any(|dump| dump.path == path) || process.dumps.len() >= 4 {
            return;
        }
        let by_map = procfs::open_mapped(Path::new("/proc"), map.pid, map.addr, map.addr.saturating_add(map.len));
        let root = PathBuf::from(format!("/proc/{}/root", map.pid));
        let by_root = || RealFiles.open_file(&Place { root: Some(&root), path: &path, follow: false }).ok();
        let by_own = || RealFiles.open_file(&Place { root: None, path: &path, follow: false }).ok();
        if let Some(file) = by_map.or_else(by_root).or_else(by_own) {
            process.dumps.push(Followed::new(file, path, JitPiece::DUMP));
        }
    }

    /// What is told of growing maps, if anything can be.
    pub(crate) fn watched(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(AsFd::as_fd)
    }

    /// Reads what is new in all files that are followed, and looks for maps where it is time to.
    pub(crate) fn look(&mut self) {
        self.heard();
        let now = Instant::now();
        let (room, pieces) = (&mut self.room, &mut self.pieces);
        for (pid, process) in &mut self.processes {
            if process.map.is_none() && (process.ended || process.next_look <= now) {
                process.look_for_map(*pid, self.watch.as_ref());
            }
            process.read(*pid, room, pieces);
        }
        self.processes.retain(|_, process| !process.ended);
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
        self.pieces.iter().map(|piece| piece.data.len()).sum::<usize>() > WAITING
    }

    /// What was read since the last time.
    pub(crate) fn take(&mut self) -> Vec<JitPiece> {
        std::mem::take(&mut self.pieces)
    }

    /// Reads everything once more, for the last time.
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
    fn new(pid: u32, since: u64) -> Process {
        let status = std::fs::read(format!("/proc/{pid}/status")).unwrap_or_default();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let tmp = openat(CWD, format!("/proc/{pid}/root/tmp"), flags | OFlags::NOFOLLOW, Mode::empty());
        Process {
            since,
            own: perfmap::identity(&status),
            tmp: tmp.ok(),
            map: None,
            dumps: Vec::new(),
            next_look: Instant::now(),
            wait: FIRST_LOOK,
            ended: false,
        }
    }

    fn look_for_map(&mut self, pid: u32, watch: Option<&OwnedFd>) {
        self.next_look = Instant::now() + self.wait;
        self.wait = (self.wait * 2).min(LAST_LOOK);
        let Some((file, path)) = self.open_map(pid) else { return };
        if let Some(watch) = watch {
            // Where that cannot be had the file is read at each pass all the same.
            let _ = inotify::add_watch(watch, format!("/proc/self/fd/{}", file.as_raw_fd()), WatchFlags::MODIFY);
        }
        self.map = Some(Followed::new(file, path, JitPiece::MAP));
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
            None => RealFiles.open_file(&Place { root: None, path: &Path::new("/tmp").join(&name), follow: false }),
        };
        let file = file.ok()?;
        let owner = file.metadata().ok()?.uid();
        (owner == uid || owner == 0).then(|| (file, Path::new("/tmp").join(name)))
    }

    /// Reads what is new.
    fn read(&mut self, pid: u32, room: &mut Room, pieces: &mut Vec<JitPiece>) {
        let (since, ended) = (self.since, self.ended);
        for followed in self.map.iter_mut().chain(&mut self.dumps) {
            loop {
                let at_ns = now_ns();
                let Some(data) = followed.next(room, ended) else { break };
                let (source, path) = (followed.source, followed.path.as_os_str().as_bytes().to_vec());
                pieces.push(JitPiece { pid, source, since_ns: since, at_ns, path, data });
            }
        }
        // A map that was cut or replaced is another one.
        if self.map.as_ref().is_some_and(Followed::is_gone) && !ended {
            (self.map, self.wait) = (None, FIRST_LOOK);
        }
    }
}
