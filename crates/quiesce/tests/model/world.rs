//! CPUs with rings, text that comes and goes, and readers: what all of them can do, around the queue as it is.

use std::format;
use std::string::String;
use std::vec::Vec;

use super::explore::{Log, Model};
use super::setup::{Kind, Setup};
use crate::{Opener, Queue, Store, Why};

mod readers;

pub(super) const CPUS: usize = 2;
pub(super) const READERS: usize = 2;
pub(super) const TEXTS: usize = 3;

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Life {
    Unborn,
    Here,
    Unregistered,
    /// In the queue. The readers who may rely on it, a bit each.
    Waits(u8),
    /// Freed. The readers who rely on that not having happened.
    Gone(u8),
}

/// What a reader has not read of a CPU.
#[derive(Clone, Default, Hash)]
struct Ring {
    /// Twice the text, and one more where it went.
    records: [u8; 2 * TEXTS],
    len: u8,
    lost: bool,
    /// The record that says so was written.
    told: bool,
}

#[derive(Clone, Default, Hash)]
struct Pass {
    running: bool,
    rescan: bool,
    /// Texts to copy, a bit each; and those that the pass before left.
    copies: u8,
    late: u8,
    /// So many passes end with a call.
    owed: u8,
    /// It left out a ring.
    skipped: bool,
}

#[derive(Clone, Default, Hash)]
struct Reader {
    open: bool,
    opened: u8,
    opener: Opener,
    rings: [Ring; CPUS],
    /// One, or one for each ring.
    passes: [Pass; CPUS],
}

/// The links of the queue.
#[derive(Clone, Default, Hash)]
struct Links([Option<u8>; TEXTS]);

impl Store for Links {
    type Node = u8;

    fn next(&self, node: u8) -> Option<u8> {
        self.0[node as usize]
    }

    fn set_next(&mut self, node: u8, next: Option<u8>) {
        self.0[node as usize] = next;
    }

    fn bytes(&self, node: u8) -> u64 {
        1 << node
    }
}

#[derive(Clone, Hash)]
pub(super) struct World {
    queue: Queue<u8, READERS>,
    links: Links,
    texts: [Life; TEXTS],
    readers: [Reader; READERS],
    losses: u8,
}

#[derive(Clone, Copy)]
pub(super) enum Step {
    /// Of a text, on a CPU, whose record is lost for a reader.
    Comes(u8, u8, Option<u8>),
    Goes(u8, u8, Option<u8>),
    Freed(u8),
    /// All that waits has waited for too long.
    Ages,
    /// Of a reader.
    Opens(u8),
    Closes(u8),
    /// Of a reader and one of its passes; leaving out a ring.
    Begins(u8, u8, Option<u8>),
    Rescans(u8, u8),
    Copies(u8, u8, u8),
    Ends(u8, u8),
}

pub(super) fn name(text: u8) -> char {
    (b'A' + text) as char
}

fn bits(set: u8) -> impl Iterator<Item = u8> {
    (0..8).filter(move |bit| set >> bit & 1 == 1)
}

impl Model for Setup {
    type State = World;
    type Step = Step;

    fn start(&self) -> World {
        let mut texts = [Life::Unborn; TEXTS];
        for (life, _) in texts.iter_mut().zip(self.texts).filter(|(_, kind)| **kind == Kind::Silent) {
            *life = Life::Here;
        }
        let queue = Queue::new(self.limits);
        let mut world =
            World { queue, links: Links::default(), texts, readers: Default::default(), losses: self.losses };
        if self.early {
            self.open(&mut world, 0).unwrap();
        }
        world
    }

    fn steps(&self, world: &World, steps: &mut Vec<Step>) {
        self.steps_of_texts(world, steps);
        if self.limits.age == 0 && !world.queue.is_empty() {
            steps.push(Step::Ages);
        }
        for who in 0..self.readers as u8 {
            let reader = &world.readers[who as usize];
            if reader.open {
                self.steps_of_reader(who, reader, steps);
            } else if reader.opened < self.opens && (who == 0 || world.readers[who as usize - 1].opened > 0) {
                // Readers are alike, so that the first is the first to open leaves nothing out.
                steps.push(Step::Opens(who));
            }
        }
    }

    fn step(&self, world: &mut World, step: Step, log: &mut Log) -> Result<(), String> {
        match step {
            Step::Comes(text, cpu, lost) => {
                log.say(format_args!("text {} comes; on CPU {cpu} a record says so", name(text)));
                world.texts[text as usize] = Life::Here;
                world.publish(2 * text, cpu, lost, log);
            }
            Step::Goes(text, cpu, lost) => {
                log.say(format_args!("{} is unregistered; on CPU {cpu} a record says so", name(text)));
                world.texts[text as usize] = Life::Unregistered;
                world.publish(2 * text + 1, cpu, lost, log);
                if self.texts[text as usize] == Kind::Trampoline {
                    log.say(format_args!(", and at once "));
                    world.free(text, log)?;
                }
            }
            Step::Freed(text) => world.free(text, log)?,
            Step::Ages => {
                log.say(format_args!("what waits is too old"));
                world.pop(1, log)?;
            }
            Step::Opens(who) => {
                log.say(format_args!("reader {who} opens, and calls for the first time"));
                self.open(world, who)?;
            }
            Step::Closes(who) => {
                log.say(format_args!("reader {who} closes"));
                let reader = &mut world.readers[who as usize];
                let opener = reader.opener;
                *reader = Reader { opened: reader.opened, ..Reader::default() };
                if !world.readers.iter().any(|other| other.opener == opener) {
                    world.queue.close(opener);
                }
                for life in &mut world.texts {
                    if let Life::Waits(who_relies) | Life::Gone(who_relies) = life {
                        *who_relies &= !(1 << who);
                    }
                }
                world.pop(0, log)?;
            }
            Step::Begins(who, pass, skipped) => self.begin(world, who, pass, skipped, log),
            Step::Rescans(who, pass) => {
                let here = world.texts.iter().enumerate().filter(|(_, life)| **life == Life::Here);
                let here = here.fold(0, |set, (text, _)| set | 1 << text);
                let pass = &mut world.readers[who as usize].passes[pass as usize];
                pass.rescan = false;
                pass.copies |= here;
                log.say(format_args!("reader {who} looks up what text there is now:"));
                bits(here).for_each(|text| log.say(format_args!(" {}", name(text))));
            }
            Step::Copies(who, pass, text) => {
                log.say(format_args!("reader {who} copies {}", name(text)));
                let pass = &mut world.readers[who as usize].passes[pass as usize];
                pass.copies &= !(1 << text);
                pass.late &= !(1 << text);
                if matches!(world.texts[text as usize], Life::Gone(relies) if relies >> who & 1 == 1) {
                    return Err(format!(
                        "=> what it got is not {}: that was freed, though it was held for it",
                        name(text)
                    ));
                }
            }
            Step::Ends(who, pass) => self.end(world, who, pass, log)?,
        }
        world.check()
    }

    /// Nothing more happens but passes: then all has to be freed after three of each reader.
    fn settles(&self, world: &World) -> Result<(), String> {
        let running = world.readers.iter().flat_map(|reader| &reader.passes).any(|pass| pass.running || pass.late != 0);
        if running || world.queue.is_empty() {
            return Ok(());
        }
        let mut after = world.clone();
        for _ in 0..3 {
            // What a copy gets is for the steps themselves to find.
            if self.round(&mut after, &mut Log::nothing()).is_err() || after.queue.is_empty() {
                return Ok(());
            }
        }
        let freed = after.queue.freed();
        for _ in 0..3 {
            self.round(&mut after, &mut Log::nothing())?;
        }
        if after.queue.freed() != freed {
            return Err("=> something waits longer than three passes".into());
        }
        let mut log = Log::words();
        let mut after = world.clone();
        for _ in 0..2 {
            self.round(&mut after, &mut log)?;
        }
        log.say(format_args!("=> {} still waits, and passes make no calls any more", after.queue.len()));
        Err(log.into_words())
    }
}

impl Setup {
    fn steps_of_texts(&self, world: &World, steps: &mut Vec<Step>) {
        // CPUs are alike, too: the first record is on the first.
        let first =
            world.texts.iter().zip(self.texts).all(|(life, kind)| *kind == Kind::Silent || *life == Life::Unborn);
        let records = |make: &dyn Fn(u8, Option<u8>) -> Step, steps: &mut Vec<Step>| {
            for cpu in 0..if first { 1 } else { CPUS as u8 } {
                steps.push(make(cpu, None));
                let losers =
                    (0..self.readers as u8).filter(|who| world.losses > 0 && world.readers[*who as usize].open);
                steps.extend(losers.map(|who| make(cpu, Some(who))));
            }
        };
        for (at, kind) in self.texts.iter().enumerate() {
            let text = at as u8;
            // Texts of a kind are alike.
            let turn = at == 0 || self.texts[at - 1] != *kind || world.texts[at - 1] != Life::Unborn;
            match world.texts[at] {
                Life::Unborn if turn => records(&|cpu, lost| Step::Comes(text, cpu, lost), steps),
                Life::Here if *kind == Kind::Silent => steps.push(Step::Freed(text)),
                Life::Here => records(&|cpu, lost| Step::Goes(text, cpu, lost), steps),
                Life::Unregistered => steps.push(Step::Freed(text)),
                Life::Unborn | Life::Waits(_) | Life::Gone(_) => (),
            }
        }
    }
}

impl World {
    fn publish(&mut self, record: u8, cpu: u8, lost: Option<u8>, log: &mut Log) {
        self.losses -= u8::from(lost.is_some());
        for (who, reader) in self.readers.iter_mut().enumerate().filter(|(_, reader)| reader.open) {
            let ring = &mut reader.rings[cpu as usize];
            if lost == Some(who as u8) {
                log.say(format_args!(" (lost for reader {who})"));
                ring.lost = true;
            } else {
                ring.told |= ring.lost;
                ring.records[ring.len as usize] = record;
                ring.len += 1;
            }
        }
    }

    fn free(&mut self, text: u8, log: &mut Log) -> Result<(), String> {
        let joined = |reader: &Reader| self.queue.standing(reader.opener).is_some();
        let relies =
            self.readers.iter().enumerate().fold(0, |set, (who, reader)| set | u8::from(joined(reader)) << who);
        self.texts[text as usize] = match self.queue.defer(&mut self.links, text) {
            Ok(()) => Life::Waits(relies),
            Err(_) if relies == 0 => Life::Gone(0),
            Err(_) => return Err(format!("{} was not taken over, though a reader relies on it", name(text))),
        };
        log.say(format_args!(
            "{} is {}",
            name(text),
            if relies == 0 { "freed at once" } else { "handed over instead of freed" }
        ));
        self.pop(0, log)
    }

    fn pop(&mut self, now: u64, log: &mut Log) -> Result<(), String> {
        let broken = |world: &World| {
            let all = world.readers.each_ref();
            all.map(|reader| world.queue.standing(reader.opener).map_or(0, |standing| standing.broken))
        };
        loop {
            let before = broken(self);
            let Some((text, why)) = self.queue.pop(&mut self.links, now) else { return Ok(()) };
            let told = broken(self)
                .iter()
                .zip(before)
                .rev()
                .fold(0, |set, (after, before)| set << 1 | u8::from(*after > before));
            let Life::Waits(relies) = self.texts[text as usize] else {
                return Err(format!("{} was given back, but was not handed over", name(text)));
            };
            if told & !relies != 0 || (why == Why::Passed) != (told == 0) {
                return Err(format!("{} went because of {why:?}, and that was told wrongly", name(text)));
            }
            self.texts[text as usize] = Life::Gone(relies & !told);
            log.say(format_args!("; {} is freed", name(text)));
        }
    }

    fn check(&self) -> Result<(), String> {
        let waiting = (0_u8..).zip(&self.texts).filter(|(_, life)| matches!(life, Life::Waits(_)));
        let (len, bytes) = waiting.fold((0, 0), |(len, bytes), (text, _)| (len + 1, bytes + (1 << text)));
        if (self.queue.len(), self.queue.bytes()) != (len, bytes) {
            return Err(format!("{len} wait, and the queue says {}", self.queue.len()));
        }
        Ok(())
    }
}
