//! The names of threads, for who loaded what.
//!
//! The rings of the CPUs are read one after the other, so the record that a thread ended, in one ring, can be read a pass
//! before the record of what it loaded, in another; and the record that names a thread can be read a pass after it. So a
//! name stays for one more whole pass after its thread ended, and a text waits as long for the name of its loader.

use std::collections::HashMap;

use afterimage_kernel_text::{Loader, TextId, Timeline};

/// The threads that are known by name.
#[derive(Debug, Default)]
pub(crate) struct Threads {
    by_tid: HashMap<u32, Thread>,
    /// Texts whose loader's name was not known when they came.
    unnamed: Vec<Unnamed>,
}

#[derive(Debug)]
struct Thread {
    comm: Box<str>,
    /// Passes that ended since the thread did; none while it runs.
    ended: Option<u8>,
}

#[derive(Debug)]
struct Unnamed {
    text: TextId,
    pid: u32,
    tid: u32,
    /// Passes that ended since it came.
    passes: u8,
}

impl Threads {
    /// A thread has this name from now on.
    pub(crate) fn named(&mut self, tid: u32, comm: &[u8]) {
        let comm = String::from_utf8_lossy(comm).into();
        self.by_tid.insert(tid, Thread { comm, ended: None });
    }

    /// A thread began, and has the name of the one that made it.
    pub(crate) fn forked(&mut self, from: u32, tid: u32) {
        let Some(comm) = self.by_tid.get(&from).map(|thread| thread.comm.clone()) else { return };
        // Its own name may have been read before its beginning.
        if self.by_tid.get(&tid).is_none_or(|thread| thread.ended.is_some()) {
            self.by_tid.insert(tid, Thread { comm, ended: None });
        }
    }

    /// A thread ended.
    pub(crate) fn ended(&mut self, tid: u32) {
        if let Some(thread) = self.by_tid.get_mut(&tid) {
            thread.ended = Some(0);
        }
    }

    /// Who loads, if the thread's name is known.
    pub(crate) fn loader(&self, pid: u32, tid: u32) -> Option<Loader<'_>> {
        self.by_tid.get(&tid).map(|thread| Loader { pid, comm: &thread.comm })
    }

    /// A text came whose loader's name is not known yet.
    pub(crate) fn awaits(&mut self, text: TextId, pid: u32, tid: u32) {
        self.unnamed.push(Unnamed { text, pid, tid, passes: 0 });
    }

    /// A pass over all rings is over.
    pub(crate) fn pass(&mut self, timeline: &mut Timeline) {
        let by_tid = &self.by_tid;
        self.unnamed.retain_mut(|unnamed| {
            if let Some(thread) = by_tid.get(&unnamed.tid) {
                timeline.set_loader(unnamed.text, Loader { pid: unnamed.pid, comm: &thread.comm });
                return false;
            }
            unnamed.passes += 1;
            unnamed.passes < 2
        });
        self.by_tid.retain(|_, thread| match &mut thread.ended {
            Some(passes) => {
                *passes += 1;
                *passes < 2
            }
            None => true,
        });
    }
}

#[cfg(test)]
mod tests {
    use afterimage_kernel_text::KsymChange;

    use super::*;

    fn text(timeline: &mut Timeline) -> TextId {
        let change = KsymChange {
            addr: 0xffff_ffff_c000_0000,
            len: 64,
            ksym_type: 1,
            unregister: false,
            name: b"bpf_prog_0011223344556677_main\0",
            origin: 7,
            loader: None,
        };
        timeline.apply(10, &change).unwrap()
    }

    fn comm(timeline: &Timeline, text: TextId) -> Option<String> {
        timeline.text(text).and_then(|text| text.loader).map(|loader| loader.comm.to_owned())
    }

    #[test]
    fn a_name_outlives_its_thread_by_a_whole_pass() {
        let (mut threads, mut timeline) = (Threads::default(), Timeline::new());
        threads.named(7, b"load");
        threads.ended(7);
        assert_eq!(threads.loader(7, 7).map(|loader| loader.comm), Some("load"));
        threads.pass(&mut timeline);
        assert_eq!(threads.loader(7, 7).map(|loader| loader.comm), Some("load"));
        threads.pass(&mut timeline);
        assert!(threads.loader(7, 7).is_none());
    }

    #[test]
    fn a_text_waits_a_whole_pass_for_its_loader() {
        let (mut threads, mut timeline) = (Threads::default(), Timeline::new());
        let (early, late) = (text(&mut timeline), 8);
        threads.awaits(early, 7, 7);
        threads.pass(&mut timeline);
        assert_eq!(comm(&timeline, early), None);
        threads.named(7, b"load");
        threads.forked(7, late);
        threads.pass(&mut timeline);
        assert_eq!(comm(&timeline, early).as_deref(), Some("load"));
        assert_eq!(threads.loader(7, late).map(|loader| loader.comm), Some("load"));
        threads.awaits(early, 9, 9);
        threads.pass(&mut timeline);
        threads.pass(&mut timeline);
        assert!(threads.unnamed.is_empty());
    }

    #[test]
    fn a_number_that_is_used_again_has_the_new_name() {
        let (mut threads, mut timeline) = (Threads::default(), Timeline::new());
        threads.named(1, b"init");
        threads.named(7, b"old");
        threads.ended(7);
        threads.forked(1, 7);
        threads.pass(&mut timeline);
        threads.pass(&mut timeline);
        assert_eq!(threads.loader(7, 7).map(|loader| loader.comm), Some("init"));
    }
}
