//! What the running kernel's sideband tells.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use afterimage_perf_data::record::FileId;
use afterimage_perf_data::{AttrFlags, Record};
use afterimage_perf_event::child::spawn_stopped;
use afterimage_perf_event::facts::Facts;
use afterimage_perf_event::open::{Options, Target};
use afterimage_perf_event::sideband;
use afterimage_testkit::{Need, has};
use common::{drain, online};

#[test]
fn a_process_is_told_from_fork_to_exit() {
    if !has("a_process_is_told_from_fork_to_exit", &[Need::Root]) {
        return;
    }
    let wanted =
        AttrFlags::KSYMBOL | AttrFlags::BPF_EVENT | AttrFlags::TEXT_POKE | AttrFlags::BUILD_ID | AttrFlags::CGROUP;
    let mut child = spawn_stopped(&["true"]).unwrap();
    let target = Target::Command { pid: child.pid(), cpus: online(), inherit: true };
    let mut band =
        sideband::open(&common::kernel(), &Facts::system(), &target, wanted, Options { pages: 128 }).unwrap();
    assert!(band.all_cpus);
    assert_eq!(band.opened.rings.len(), online().len());
    let second = spawn_stopped(&["true"]).unwrap();
    child.start().unwrap();
    child.wait().unwrap();
    // The first byte wakes a reader.
    let fds: Vec<_> = band.opened.rings.iter().map(|ring| ring.fd()).collect();
    let mut polls: Vec<_> = fds.iter().map(|fd| rustix::event::PollFd::new(fd, rustix::event::PollFlags::IN)).collect();
    assert!(rustix::event::poll(&mut polls, None).unwrap() > 0);
    drop(polls);
    let (pid, second_pid) = (child.pid(), second.pid());
    let (mut forked, mut exec, mut exited, mut maps, mut with_build_id) = (0, Vec::new(), 0, 0, 0);
    let ids: Vec<u64> = band.opened.events.iter().map(|e| e.id).collect();
    drain(&mut band.opened, &mut |ring, record| match record {
        Record::Fork(t) if t.pid == second_pid => forked += 1,
        Record::Comm(c) if c.pid == pid && c.is_exec() => exec.push(String::from_utf8_lossy(c.comm).into_owned()),
        Record::Exit(t) if t.pid == pid => exited += 1,
        Record::Mmap2(m) if m.pid == pid => {
            maps += 1;
            with_build_id += usize::from(matches!(m.file, FileId::BuildId(_)));
            assert_eq!(m.id.identifier, Some(ids[ring]));
        }
        _ => {}
    });
    assert_eq!((forked, exec, exited), (1, vec!["true".to_owned()], 1));
    assert!(maps >= 2, "{maps} maps");
    if band.missing.iter().all(|(bit, _)| *bit != AttrFlags::BUILD_ID) {
        assert!(with_build_id >= 1, "{with_build_id} of {maps} maps with build IDs");
    }
}
