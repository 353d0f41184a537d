//! What settings and privileges say.

use super::{Answer, Check};
use crate::caps::{Cap, Caps};
use crate::facts::Facts;

pub(super) fn checks(facts: &Facts) -> Vec<Check> {
    let caps = Caps::effective();
    vec![release(facts), paranoid(facts, caps), locked_memory(facts, caps), max_stack(facts), sample_rate(facts)]
}

fn release(facts: &Facts) -> Check {
    match facts.release() {
        Some(release) => {
            Check::new("kernel", Answer::Yes, format!("Linux {release}"), "the checks below say what it can do")
        }
        None => Check::new("kernel", Answer::Unknown, "/proc cannot be read", "the checks below may be wrong"),
    }
}

fn paranoid(facts: &Facts, caps: Caps) -> Check {
    const NAME: &str = "perf-paranoid";
    let Some(level) = facts.paranoid() else {
        return Check::new(
            NAME,
            Answer::Unknown,
            "kernel.perf_event_paranoid cannot be read",
            "nothing is known before an event is opened",
        );
    };
    let why = format!("kernel.perf_event_paranoid is {level}");
    if caps.allows(Cap::Perfmon) {
        return Check::new(NAME, Answer::Yes, format!("{why}, and CAP_PERFMON overrides it"), "every event is allowed");
    }
    let (answer, allowed) = match level {
        i32::MIN..=-1 => (Answer::Yes, "every event is allowed"),
        0 => (Answer::Yes, "all CPUs and the kernel may be sampled, but not tracepoints with their data"),
        1 => (Answer::No, "own processes may be sampled, in user code and in the kernel, but not whole CPUs"),
        2 => (Answer::No, "own processes may be sampled in user code (:u), not whole CPUs and not the kernel"),
        _ => (Answer::No, "on kernels that know this level nothing may be sampled"),
    };
    let check = Check::new(NAME, answer, format!("{why}, and CAP_PERFMON is missing"), allowed);
    if answer == Answer::Yes {
        check
    } else {
        check.fix(
            "run as root, or: setcap cap_perfmon,cap_bpf+ep on the command, or: sysctl kernel.perf_event_paranoid=-1",
        )
    }
}

fn locked_memory(facts: &Facts, caps: Caps) -> Check {
    const NAME: &str = "ring-memory";
    if caps.has(Cap::IpcLock) {
        return Check::new(NAME, Answer::Yes, "CAP_IPC_LOCK is there", "rings are as large as asked for");
    }
    if facts.paranoid() == Some(-1) {
        return Check::new(NAME, Answer::Yes, "kernel.perf_event_paranoid is -1", "rings are as large as asked for");
    }
    match facts.mlock_kb() {
        Some(kib) => Check::new(
            NAME,
            Answer::No,
            format!("kernel.perf_event_mlock_kb is {kib} per CPU and user, and CAP_IPC_LOCK is missing"),
            "rings shrink until they fit, so bursts are lost sooner",
        )
        .fix("sysctl kernel.perf_event_mlock_kb=8192, or a higher ulimit -l"),
        None => Check::new(NAME, Answer::Unknown, "kernel.perf_event_mlock_kb cannot be read", "rings may shrink"),
    }
}

fn max_stack(facts: &Facts) -> Check {
    const NAME: &str = "stack-depth";
    match facts.max_stack() {
        Some(depth) => Check::new(
            NAME,
            Answer::Yes,
            format!("kernel.perf_event_max_stack is {depth}"),
            format!("stacks hold up to {depth} addresses; deeper ones are cut at their outer end"),
        ),
        None => Check::new(NAME, Answer::Unknown, "kernel.perf_event_max_stack cannot be read", "stacks may be cut"),
    }
}

fn sample_rate(facts: &Facts) -> Check {
    const NAME: &str = "sample-rate";
    match facts.max_sample_rate() {
        Some(rate) => Check::new(
            NAME,
            Answer::Yes,
            format!("kernel.perf_event_max_sample_rate is {rate}"),
            "-F takes no more; the kernel lowers it itself when sampling takes too long",
        ),
        None => {
            Check::new(NAME, Answer::Unknown, "kernel.perf_event_max_sample_rate cannot be read", "a high -F may fail")
        }
    }
}
