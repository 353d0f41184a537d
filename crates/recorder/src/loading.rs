//! Loading what a controller wants, on a thread of its own: the kernel's verifier may take seconds for a large program, and
//! passes do not wait for it. One load has an asker at a time; one that nobody waits for any more ends by itself.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, TryRecvError, channel};
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
    current: Option<Receiver<Ended>>,
    left_behind: Vec<Receiver<Ended>>,
}

impl Loading {
    /// Begins to load; the bell is rung when it has ended.
    pub(crate) fn begin(&mut self, wanted: Wanted, shared: Shared, bell: &Bell) -> Result<(), Refusal> {
        self.left_behind.retain(|load| matches!(load.try_recv(), Err(TryRecvError::Empty)));
        if self.left_behind.len() >= LEFT_BEHIND {
            let text = format!("{LEFT_BEHIND} loads that were given up are still under way");
            return Err(refuse(RefusalKind::Busy, text));
        }
        let (to, from) = channel();
        let bell = bell.clone();
        let work = move || {
            let before = Instant::now();
            let loaded = wanted.load(&shared).map(|loaded| (loaded, ns_since(before)));
            // Nobody may want it any more: then it is gone with this.
            let _ = to.send(loaded);
            bell.ring();
        };
        let thread = std::thread::Builder::new().name("loader".to_owned()).spawn(work);
        thread.map_err(|error| refuse(RefusalKind::Failed, format!("a thread that loads it: {error}")))?;
        self.current = Some(from);
        Ok(())
    }

    /// What the load under way has come to, once.
    pub(crate) fn ended(&mut self) -> Option<Ended> {
        let ended = match self.current.as_ref()?.try_recv() {
            Ok(ended) => ended,
            Err(TryRecvError::Empty) => return None,
            Err(TryRecvError::Disconnected) => Err(refuse(RefusalKind::Failed, "loading it has ended without a word")),
        };
        self.current = None;
        Some(ended)
    }

    /// Nothing comes of the load under way.
    pub(crate) fn leave(&mut self) {
        self.left_behind.extend(self.current.take());
    }
}
