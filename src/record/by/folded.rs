//! Rows as folded stacks: the keys that are no stacks, then the user part from the outermost caller in, then the kernel's.

use std::io::{self, Write};

use afterimage_export::stacks::Held;
use afterimage_export::{Error, folded, profile};
use afterimage_recorder::by::{Key, Readout, Row, Value};

use super::Show;

pub(super) fn write(out: &mut dyn Write, show: &Show, readout: &Readout) -> io::Result<()> {
    let mut held = Held::default();
    for event in &readout.events {
        for row in &event.rows {
            let weight = if show.value == Value::Count { row.samples } else { row.value };
            held.push(frames(show, &event.name, row), weight);
        }
    }
    match folded::write(&held, out) {
        Ok(()) => Ok(()),
        Err(Error::Write(error)) => Err(error),
        Err(other) => Err(io::Error::other(other.to_string())),
    }
}

fn frames(show: &Show, event: &str, row: &Row) -> Vec<String> {
    let mut frames: Vec<String> = show.keys.iter().filter_map(|key| scalar(*key, row)).collect();
    if frames.is_empty() {
        // What stands first is the name of what the stacks belong to.
        frames.push(event.to_owned());
    }
    let stack = row.user.iter().rev().chain(row.kernel.iter().rev()).chain(&row.ip);
    frames.extend(stack.map(|at| profile::name(&at.frame).into_owned()));
    frames
}

fn scalar(key: Key, row: &Row) -> Option<String> {
    match key {
        Key::Comm => row.comm.clone(),
        Key::Pid => row.pid.map(|pid| format!("pid {pid}")),
        Key::Tid => row.tid.map(|tid| format!("tid {tid}")),
        Key::Cpu => row.cpu.map(|cpu| format!("cpu {cpu}")),
        Key::Cgroup => row.cgroup.as_ref().map(|(id, path)| path.clone().unwrap_or_else(|| format!("cgroup {id}"))),
        Key::Label => row.label.as_ref().map(super::label),
        Key::Kstack | Key::Ustack | Key::Stack | Key::Ip => None,
    }
}
