//! What readers do: open, begin a pass, end it.

use std::format;
use std::string::String;
use std::vec::Vec;

use super::super::explore::{Log, Model};
use super::super::setup::{Loss, Setup, Skips};
use super::{CPUS, Reader, Ring, Step, World, bits, name};
use crate::Opener;

impl Setup {
    pub(super) fn open(&self, world: &mut World, who: u8) -> Result<(), String> {
        let other = world.readers.iter().find(|reader| self.shared && reader.open);
        let mut opener = other.map_or(Opener::default(), |reader| reader.opener);
        if opener == Opener::default() {
            world.queue.qc(&mut opener).map_err(|why| format!("reader {who}: {why:?}"))?;
        }
        let reader = &mut world.readers[who as usize];
        *reader = Reader { open: true, opened: reader.opened + 1, opener, ..Reader::default() };
        // What is there already comes in no record.
        reader.passes[0].rescan = !self.early;
        Ok(())
    }

    /// A pass of every reader that is there, from begin to end, a line a step.
    pub(super) fn round(&self, world: &mut World, log: &mut Log) -> Result<(), String> {
        for who in 0..self.readers as u8 {
            for pass in 0..if self.threads { CPUS as u8 } else { 1 } {
                let mut next = world.readers[who as usize].open.then_some(Step::Begins(who, pass, None));
                while let Some(step) = next {
                    self.step(world, step, log)?;
                    log.say(format_args!("\n"));
                    let left = &world.readers[who as usize].passes[pass as usize];
                    next = match bits(left.copies).next() {
                        _ if !left.running => None,
                        _ if left.rescan => Some(Step::Rescans(who, pass)),
                        Some(text) => Some(Step::Copies(who, pass, text)),
                        None => Some(Step::Ends(who, pass)),
                    };
                }
            }
        }
        Ok(())
    }

    pub(super) fn steps_of_reader(&self, who: u8, reader: &Reader, steps: &mut Vec<Step>) {
        steps.push(Step::Closes(who));
        for at in 0..if self.threads { CPUS as u8 } else { 1 } {
            let pass = &reader.passes[at as usize];
            steps.extend(bits(pass.copies | pass.late).map(|text| Step::Copies(who, at, text)));
            if !pass.running {
                steps.push(Step::Begins(who, at, None));
                if self.skips == Skips::AtWill || self.skips == Skips::NotTwice && !pass.skipped {
                    steps.extend((0..CPUS as u8).map(|ring| Step::Begins(who, at, Some(ring))));
                }
            } else if pass.rescan {
                steps.push(Step::Rescans(who, at));
            } else if if self.late { pass.late == 0 } else { pass.copies == 0 } {
                steps.push(Step::Ends(who, at));
            }
        }
    }

    /// Looks at the heads and reads up to there at once. What is read does not change until it is read, and what comes
    /// later belongs to the next pass, so when exactly a ring is read within the pass makes no difference.
    pub(super) fn begin(&self, world: &mut World, who: u8, at: u8, skipped: Option<u8>, log: &mut Log) {
        let reader = &mut world.readers[who as usize];
        let standing = world.queue.standing(reader.opener).unwrap_or_default();
        let pass = &mut reader.passes[at as usize];
        pass.running = true;
        pass.skipped = skipped.is_some() && self.skips == Skips::NotTwice;
        log.say(format_args!("reader {who} begins a pass"));
        for (cpu, ring) in reader.rings.iter_mut().enumerate() {
            if self.threads && at as usize != cpu {
                continue;
            }
            if skipped == Some(cpu as u8) {
                log.say(format_args!("; leaves out CPU {cpu}"));
                continue;
            }
            log.say(format_args!("; reads on CPU {cpu}:"));
            for record in &ring.records[..ring.len as usize] {
                let went = record % 2 == 1;
                log.say(format_args!(" {} {}", name(record / 2), if went { "went" } else { "came" }));
                pass.copies |= 1 << (record / 2);
                pass.owed = pass.owed.max(if went { self.unregister } else { 0 });
            }
            let loss = self.loss == Loss::Record && ring.told || self.loss == Loss::Count && ring.lost;
            if loss {
                log.say(format_args!(" some lost"));
                pass.owed = pass.owed.max(self.unregister);
                pass.rescan = true;
            } else if ring.len == 0 {
                log.say(format_args!(" nothing"));
            }
            // What is not looked at is not known later either.
            *ring = Ring { lost: ring.lost && !loss && self.loss == Loss::Record, ..Ring::default() };
        }
        if self.query && standing.waiting > 0 {
            log.say(format_args!("; finds that {} waits", standing.waiting));
            pass.owed = pass.owed.max(1);
        }
    }

    pub(super) fn end(&self, world: &mut World, who: u8, at: u8, log: &mut Log) -> Result<(), String> {
        let reader = &mut world.readers[who as usize];
        let pass = &mut reader.passes[at as usize];
        pass.running = false;
        if self.late {
            (pass.late, pass.copies) = (pass.copies, 0);
        }
        if pass.owed == 0 {
            log.say(format_args!("reader {who} ends its pass, without a call"));
            return Ok(());
        }
        pass.owed -= 1;
        log.say(format_args!("reader {who} ends its pass with a call"));
        for _ in self.lists..=3 {
            world.queue.qc(&mut reader.opener).map_err(|why| format!("{why:?}"))?;
        }
        world.pop(0, log)
    }
}
