//! Which functions belong to which program: a program's load is told after its functions, by the same thread.
//!
//! A thread that moves from one CPU to another in between tells the one in another ring than the others, and that ring may
//! be read first. So the times decide, and a load waits a while for functions that are told late.

use std::collections::{HashMap, VecDeque};

use crate::text::{BpfProgram, TextId};

/// Functions of one thread that wait for their load, or whose load came lately; more are forgotten, the oldest first.
/// A program has at most 256 functions.
const FUNCTIONS: usize = 512;
/// Loads of one thread that wait for functions which are told late.
const LOADS: usize = 64;
/// Threads of which anything waits. At one more all are forgotten.
const THREADS: usize = 4096;

/// A program's functions, as far as they were told, in the order of their times.
pub(crate) struct Loaded {
    pub(crate) program: BpfProgram,
    pub(crate) functions: Vec<TextId>,
}

/// What waits of each thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Loads {
    threads: HashMap<u32, Thread>,
}

#[derive(Clone, Debug, Default)]
struct Thread {
    /// By their times.
    functions: VecDeque<Function>,
    /// By their times.
    loads: VecDeque<Load>,
    numbered: u64,
    /// The latest time of a load that is not kept any more.
    gone: u64,
}

#[derive(Clone, Copy, Debug)]
struct Function {
    time: u64,
    text: TextId,
    /// The number of the load that it was given to.
    load: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Load {
    time: u64,
    number: u64,
    program: BpfProgram,
}

impl Loads {
    /// A function came. Answers its program, if that was told before it.
    pub(crate) fn function(&mut self, time: u64, origin: u32, text: TextId) -> Option<Loaded> {
        let thread = self.thread(origin);
        if thread.functions.iter().any(|known| known.text == text) {
            return None;
        }
        // Without a time nothing says that it is late; and the load of one from before those that are kept is not there.
        let late = time != 0 && time > thread.gone;
        let load = thread.loads.iter().find(|load| late && load.time >= time).copied();
        let place = thread.functions.partition_point(|known| known.time <= time);
        thread.functions.insert(place, Function { time, text, load: load.map(|load| load.number) });
        if thread.functions.len() > FUNCTIONS {
            thread.forget_first();
        }
        load.filter(|load| thread.loads.iter().any(|known| known.number == load.number)).map(|load| thread.of(&load))
    }

    /// A program was loaded. Answers the functions that were told before it, and anew those of a later program that had
    /// been given some of them.
    pub(crate) fn load(&mut self, time: u64, origin: u32, program: BpfProgram) -> Vec<Loaded> {
        let thread = self.thread(origin);
        thread.numbered += 1;
        let load = Load { time, number: thread.numbered, program };
        let place = thread.loads.partition_point(|known| known.time <= time);
        let before = place.checked_sub(1).and_then(|at| thread.loads.get(at)).map_or(thread.gone, |load| load.time);
        thread.loads.insert(place, load);
        let later = thread.loads.get(place + 1).copied();
        // What came before an earlier load is of that one, or of one that is not kept any more.
        let its = |function: &&mut Function| {
            function.time <= time && (function.time == 0 || function.time > before || before >= time)
        };
        for function in thread.functions.iter_mut().filter(its) {
            if function.load.is_none() || function.load == later.map(|load| load.number) {
                function.load = Some(load.number);
            }
        }
        let loaded = std::iter::once(load).chain(later).map(|load| thread.of(&load)).collect();
        if thread.loads.len() > LOADS {
            if let Some(gone) = thread.loads.pop_front() {
                thread.forget(&gone);
            }
        }
        loaded
    }

    /// Records were lost: what waits may belong to none that will be told.
    pub(crate) fn clear(&mut self) {
        self.threads.clear();
    }

    fn thread(&mut self, origin: u32) -> &mut Thread {
        if self.threads.len() >= THREADS && !self.threads.contains_key(&origin) {
            self.threads.retain(|_, thread| thread.functions.iter().any(|function| function.load.is_none()));
            if self.threads.len() >= THREADS {
                self.threads.clear();
            }
        }
        self.threads.entry(origin).or_default()
    }
}

impl Thread {
    /// Makes room: the first function goes, and where its program is known, all of that one, so that none is numbered anew.
    fn forget_first(&mut self) {
        let Some(number) = self.functions.pop_front().and_then(|function| function.load) else { return };
        if let Some(at) = self.loads.iter().position(|load| load.number == number) {
            if let Some(gone) = self.loads.remove(at) {
                self.forget(&gone);
            }
        }
    }

    /// A load is not kept any more.
    fn forget(&mut self, gone: &Load) {
        self.gone = self.gone.max(gone.time);
        self.functions.retain(|function| function.load != Some(gone.number));
    }

    fn of(&self, load: &Load) -> Loaded {
        let functions = self.functions.iter().filter(|function| function.load == Some(load.number));
        Loaded { program: load.program, functions: functions.map(|function| function.text).collect() }
    }
}
