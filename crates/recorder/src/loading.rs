//! Loading what a controller wants, on a thread of its own: the kernel's verifier may take seconds for a large program, and
//! passes do not wait for it. One load has an asker at a time; one that nobody waits for any more ends by itself, and what it
//! has loaded goes with it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::sync::{Arc, Weak};
use std::time::Instant;

use afterimage_handler::gate::Expression;
use afterimage_handler::object::{LoadedObject, Object, Setting};
use afterimage_handler::{Builtin, HandlerId, LoadedBuiltin, Shared};
use afterimage_perf_data::SampleType;
use afterimage_perf_event::open::Target;

use crate::change::{NO_RING, failed, no_gate, ns_since, refuse, sealed};
use crate::control::{Bell, Refusal, RefusalKind};
use crate::{RecordError, gate};

/// Loads that go on though nobody waits for them.
const LEFT_BEHIND: usize = 3;

/// What was loaded, to be put in force.
pub(crate) enum Loaded {
    Builtin(Builtin, LoadedBuiltin),
    Object { path: PathBuf, object: Arc<Object>, loaded: LoadedObject },
    Gate { text: String, program: Option<OwnedFd>, notes: Vec<String> },
}

/// What is to be loaded.
pub(crate) enum Wanted {
    Builtin(Builtin),
    Object {
        path: PathBuf,
        file: OwnedFd,
        program: Option<String>,
        set: Vec<String>,
        /// Maps that are taken over.
        keep_maps: Vec<(String, OwnedFd)>,
        id: HandlerId,
        /// The recording has handler rings.
        rings: bool,
    },
    Gate {
        text: String,
        /// What all events with a stub carry.
        carried: SampleType,
        target: Target,
    },
}

impl Wanted {
    fn load(self, shared: &Shared) -> Result<Loaded, Refusal> {
        match self {
            Wanted::Builtin(builtin) => {
                shared.load_builtin(builtin).map(|loaded| Loaded::Builtin(builtin, loaded)).map_err(failed)
            }
            Wanted::Object { path, file, program, set, keep_maps, id, rings } => {
                let bytes = sealed(file)?;
                let set = set.iter().map(|text| text.parse()).collect::<Result<Vec<Setting>, _>>().map_err(failed)?;
                let object = Object::open(bytes, program.as_deref(), &set).map_err(failed)?;
                if object.writes() && !rings {
                    return Err(refuse(RefusalKind::Impossible, NO_RING));
                }
                let kept: Vec<(String, BorrowedFd<'_>)> =
                    keep_maps.iter().map(|(name, fd)| (name.clone(), fd.as_fd())).collect();
                let loaded = object.load(shared, shared.configs(), id, &kept).map_err(failed)?;
                Ok(Loaded::Object { path, object: Arc::new(object), loaded })
            }
            Wanted::Gate { text, carried, target } => {
                let expression = Expression::parse(&text).map_err(|error| no_gate(&error))?;
                let made = gate::load(&expression, shared, carried, &target);
                let (program, notes) = made.map_err(|error| match error {
                    RecordError::Gate(error) => no_gate(&error),
                    RecordError::Handler(error) => failed(error),
                    error => refuse(RefusalKind::Failed, error.to_string()),
                })?;
                Ok(Loaded::Gate { text, program, notes })
            }
        }
    }
}

/// What was loaded and how long that took, ns; or why not.
type Ended = Result<(Loaded, u64), Refusal>;

/// The load under way, and those that were left behind.
#[derive(Default)]
pub(crate) struct Loading {
    current: Option<(Receiver<Ended>, Weak<()>)>,
    /// Each is there as long as its thread loads. Nobody would hear from it: what it sends is dropped where it was made.
    left_behind: Vec<Weak<()>>,
}

/// Rings when it is dropped: also after a panic, which says nothing by itself.
struct Rings(Bell);

impl Drop for Rings {
    fn drop(&mut self) {
        self.0.ring();
    }
}

impl Loading {
    /// Begins to load; the bell is rung when it has ended.
    pub(crate) fn begin(&mut self, wanted: Wanted, shared: Shared, bell: &Bell) -> Result<(), Refusal> {
        self.begin_with(bell, move || {
            let before = Instant::now();
            wanted.load(&shared).map(|loaded| (loaded, ns_since(before)))
        })
    }

    fn begin_with(&mut self, bell: &Bell, load: impl FnOnce() -> Ended + Send + 'static) -> Result<(), Refusal> {
        self.left_behind.retain(|load| load.strong_count() > 0);
        if self.left_behind.len() >= LEFT_BEHIND {
            let text = format!("{LEFT_BEHIND} loads that were given up are still under way");
            return Err(refuse(RefusalKind::Busy, text));
        }
        let (to, from) = channel();
        let (rings, loads) = (Rings(bell.clone()), Arc::new(()));
        let is_there = Arc::downgrade(&loads);
        let work = move || {
            // Dropped from the last to the first: the bell is rung when the channel tells how it has ended.
            let _rings = rings;
            let _loads = loads;
            let to = to;
            // Nobody may want it any more: then it is gone with this.
            let _ = to.send(load());
        };
        let thread = std::thread::Builder::new().name("loader".to_owned()).spawn(work);
        thread.map_err(|error| refuse(RefusalKind::Failed, format!("a thread that loads it: {error}")))?;
        self.current = Some((from, is_there));
        Ok(())
    }

    /// What the load under way has come to, once.
    pub(crate) fn ended(&mut self) -> Option<Ended> {
        let ended = match self.current.as_ref()?.0.try_recv() {
            Ok(ended) => ended,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => Err(refuse(RefusalKind::Failed, "loading it has ended without a word")),
        };
        self.current = None;
        Some(ended)
    }

    /// Nothing comes of the load under way: it ends by itself, and what it has loaded is let go at once.
    pub(crate) fn leave(&mut self) {
        self.left_behind.extend(self.current.take().map(|(_, is_there)| is_there));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    /// Waits until there is something to read.
    fn readable(fd: impl AsFd) {
        let mut fds = [PollFd::new(&fd, PollFlags::IN)];
        let patience = Timespec { tv_sec: 60, tv_nsec: 0 };
        assert_eq!(poll(&mut fds, Some(&patience)).unwrap(), 1);
    }

    /// A load that ends when it is told to. It has one program, whose end can be seen at the other end of a socket.
    fn load() -> (impl FnOnce() -> Ended + Send, std::sync::mpsc::Sender<()>, UnixStream) {
        let (go, told) = channel();
        let (seen, program) = UnixStream::pair().unwrap();
        let load = move || {
            // No word is as good: then the test has failed.
            let _ = told.recv_timeout(Duration::from_secs(60));
            let program = Some(OwnedFd::from(program));
            Ok((Loaded::Gate { text: "pid == 1".to_owned(), program, notes: Vec::new() }, 1))
        };
        (load, go, seen)
    }

    /// Waits for the end of the program.
    fn is_gone(mut seen: UnixStream) {
        readable(&seen);
        assert_eq!(seen.read(&mut [0]).unwrap(), 0);
    }

    #[test]
    fn what_is_loaded_is_handed_out_once() {
        let (mut loading, bell) = (Loading::default(), Bell::new().unwrap());
        let (load, go, seen) = load();
        loading.begin_with(&bell, load).unwrap();
        assert!(loading.ended().is_none());
        go.send(()).unwrap();
        readable(&bell);
        let ended = loading.ended().unwrap();
        assert!(matches!(ended, Ok((Loaded::Gate { program: Some(_), .. }, 1))));
        assert!(loading.ended().is_none());
        drop(ended);
        is_gone(seen);
    }

    /// Whether it has ended before or ends afterwards: nothing stays loaded, and nothing is handed out later.
    #[test]
    fn a_load_that_is_given_up_lets_go_of_what_it_loaded() {
        let (mut loading, bell) = (Loading::default(), Bell::new().unwrap());
        for ends_first in [false, true] {
            let (load, go, seen) = load();
            loading.begin_with(&bell, load).unwrap();
            if ends_first {
                go.send(()).unwrap();
                readable(&bell);
                loading.leave();
            } else {
                loading.leave();
                go.send(()).unwrap();
                readable(&bell);
                rustix::io::read(&bell, &mut [0u8; 8]).unwrap();
            }
            is_gone(seen);
            assert!(loading.ended().is_none());
        }
    }

    #[test]
    fn no_more_than_three_are_left_behind() {
        let (mut loading, bell) = (Loading::default(), Bell::new().unwrap());
        let mut given_up = Vec::new();
        for _ in 0..LEFT_BEHIND {
            let (load, go, seen) = load();
            loading.begin_with(&bell, load).unwrap();
            loading.leave();
            given_up.push((go, seen));
        }
        let refused = loading.begin_with(&bell, load().0).unwrap_err();
        assert_eq!(refused.kind, RefusalKind::Busy);
        for (go, seen) in given_up {
            go.send(()).unwrap();
            is_gone(seen);
        }
        // Each is counted until its thread has ended, which comes right after.
        while loading.left_behind.iter().any(|load| load.strong_count() > 0) {
            std::thread::yield_now();
        }
        loading.begin_with(&bell, load().0).unwrap();
    }

    /// What brings the loader down is no silence: whoever asked is told.
    #[test]
    fn a_loader_that_panics_rings_the_bell() {
        let (mut loading, bell) = (Loading::default(), Bell::new().unwrap());
        loading.begin_with(&bell, || panic!("as a test wants it")).unwrap();
        readable(&bell);
        let Some(Err(refused)) = loading.ended() else { panic!("it has ended") };
        assert_eq!((refused.kind, refused.text.as_str()), (RefusalKind::Failed, "loading it has ended without a word"));
    }
}
