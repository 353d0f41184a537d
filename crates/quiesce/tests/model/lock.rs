//! How threads share a queue: each lock section one step, in every order. Hooks free a text each, openers join, call once
//! and close. That is what the crate asks of whoever puts a lock around it. The crate itself has no atomics, no cells and
//! no unsafe code, so that lock sections are all there is to interleave, and nothing for tools that look for wrong memory.

use std::format;
use std::string::String;
use std::vec::Vec;

use super::explore::{Log, Model};
use super::world::name;
use crate::{Limits, Opener, Place, Queue, Slab};

const HOOKS: usize = 2;
const OPENERS: usize = 2;
/// Fewer than texts, so that there may be no room.
const PLACES: usize = 1;

pub(super) struct Sharing {
    /// The first call of an opener returns when the hooks that were under way have left.
    pub(super) waits: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Hook {
    Outside,
    /// Has looked at the flag.
    Looked {
        asked: bool,
    },
    /// Has to free the text itself; whether the openers know.
    Frees {
        told: bool,
    },
    Left,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum At {
    Outside,
    /// Has joined, and waits for hooks, a bit each.
    Joined(u8),
    /// May rely on it.
    Promised,
    Called,
    Closed,
    Done,
}

#[derive(Clone, Hash)]
struct Thread {
    at: At,
    opener: Opener,
    /// Taken out of the queue, not freed yet.
    holds: Option<u8>,
}

#[derive(Clone, Hash)]
pub(super) struct Shared {
    queue: Queue<u32, OPENERS>,
    slab: Slab<[Place<u8>; PLACES]>,
    asked: bool,
    hooks: [Hook; HOOKS],
    openers: [Thread; OPENERS],
    freed: [u8; HOOKS],
}

#[derive(Clone, Copy)]
pub(super) enum Step {
    Hook(u8),
    Opener(u8),
}

impl Model for Sharing {
    type State = Shared;
    type Step = Step;

    fn start(&self) -> Shared {
        let opener = Thread { at: At::Outside, opener: Opener::default(), holds: None };
        Shared {
            queue: Queue::new(Limits::NONE),
            slab: Slab::new([Place::default(); PLACES]),
            asked: false,
            hooks: [Hook::Outside; HOOKS],
            openers: [opener.clone(), opener],
            freed: [0; HOOKS],
        }
    }

    fn steps(&self, shared: &Shared, steps: &mut Vec<Step>) {
        let hooks = (0_u8..).zip(&shared.hooks).filter(|(_, hook)| **hook != Hook::Left);
        steps.extend(hooks.map(|(at, _)| Step::Hook(at)));
        let openers = (0_u8..).zip(&shared.openers);
        let ready = openers.filter(|(_, thread)| match thread.at {
            At::Joined(hooks) => hooks == 0 || !self.waits,
            at => at != At::Done,
        });
        steps.extend(ready.map(|(at, _)| Step::Opener(at)));
    }

    fn step(&self, shared: &mut Shared, step: Step, log: &mut Log) -> Result<(), String> {
        match step {
            Step::Hook(at) => shared.hook(at, log),
            Step::Opener(at) => shared.opener(at, log),
        }
    }

    fn settles(&self, shared: &Shared) -> Result<(), String> {
        let mut steps = Vec::new();
        self.steps(shared, &mut steps);
        let clean = shared.queue.is_empty() && shared.slab.taken() == 0 && shared.freed == [1; HOOKS];
        let over = shared.openers.iter().all(|thread| thread.at == At::Done);
        if !steps.is_empty() || over && clean { Ok(()) } else { Err(format!("=> {} are left", shared.queue.len())) }
    }
}

impl Shared {
    fn hook(&mut self, at: u8, log: &mut Log) -> Result<(), String> {
        let text = name(at);
        let (next, words) = match self.hooks[at as usize] {
            Hook::Outside => (Hook::Looked { asked: self.asked }, "looks whether anyone asks for it"),
            Hook::Looked { asked: false } => (Hook::Frees { told: false }, "finds that nobody does"),
            Hook::Looked { asked: true } => match self.slab.take(at, 1, 0) {
                None => {
                    self.queue.missed();
                    (Hook::Frees { told: true }, "has no room, and says so")
                }
                Some(node) => match self.queue.defer(&mut self.slab, node) {
                    Ok(()) => (Hook::Left, "hands it over"),
                    Err(_) => {
                        assert_eq!(self.slab.give_back(node), Some(at));
                        (Hook::Frees { told: false }, "finds that nobody asks any more")
                    }
                },
            },
            Hook::Frees { told } => {
                log.say(format_args!("the hook for {text} frees it"));
                self.free(at)?;
                if !told && self.openers.iter().any(|thread| matches!(thread.at, At::Promised | At::Called)) {
                    return Err(format!("=> {text} was freed at once, though an opener had been promised to find it"));
                }
                (Hook::Left, ", and leaves")
            }
            Hook::Left => return Err("a hook goes on after its end".into()),
        };
        log.say(format_args!("the hook for {text} {words}"));
        self.hooks[at as usize] = next;
        if next == Hook::Left {
            for thread in &mut self.openers {
                if let At::Joined(hooks) = &mut thread.at {
                    *hooks &= !(1 << at);
                }
            }
        }
        Ok(())
    }

    fn opener(&mut self, at: u8, log: &mut Log) -> Result<(), String> {
        let thread = &mut self.openers[at as usize];
        log.say(format_args!("opener {at} "));
        if let Some(text) = thread.holds.take() {
            log.say(format_args!("frees {}", name(text)));
            return self.free(text);
        }
        thread.at = match thread.at {
            At::Outside => {
                self.queue.qc(&mut thread.opener).map_err(|why| format!("{why:?}"))?;
                self.asked = true;
                let under_way = self.hooks.iter().enumerate();
                let under_way = under_way.filter(|(_, hook)| !matches!(hook, Hook::Outside | Hook::Left));
                log.say(format_args!("joins"));
                At::Joined(under_way.fold(0, |set, (hook, _)| set | 1 << hook))
            }
            At::Joined(_) => {
                log.say(format_args!("returns from its first call"));
                At::Promised
            }
            At::Promised => {
                self.queue.qc(&mut thread.opener).map_err(|why| format!("{why:?}"))?;
                log.say(format_args!("calls"));
                At::Called
            }
            At::Called if self.queue.due() == 0 => {
                self.queue.close(thread.opener);
                self.asked = self.queue.is_asked();
                log.say(format_args!("closes"));
                At::Closed
            }
            At::Called | At::Closed => match self.queue.pop(&mut self.slab, 0) {
                Some((node, _)) => {
                    thread.holds = self.slab.give_back(node);
                    log.say(format_args!("takes one out"));
                    thread.at
                }
                None => At::Done,
            },
            At::Done => return Err("an opener goes on after its end".into()),
        };
        Ok(())
    }

    fn free(&mut self, text: u8) -> Result<(), String> {
        self.freed[text as usize] += 1;
        if self.freed[text as usize] > 1 { Err(format!("=> {} was freed twice", name(text))) } else { Ok(()) }
    }
}
