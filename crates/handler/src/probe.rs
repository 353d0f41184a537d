//! What this kernel and these privileges allow to BPF programs, for `doctor`.

use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};

use afterimage_perf_data::Attr;
use afterimage_perf_event::caps::{Cap, Caps};
use afterimage_perf_event::facts::Facts;
use afterimage_perf_event::probe::{Answer, Check};
use afterimage_perf_event::sys::{Kernel, Real};

use crate::handlers::{cannot_cast, lasts};
use crate::mapping::Mapping;
use crate::settled::{Lasts, Settled};
use crate::{Error, ErrorKind, EventConfig, Handlers, Mechanism, Options, libbpf_log};

const PRIVILEGES: &str = "run as root, or: setcap cap_bpf,cap_perfmon+ep on the command";

/// Every check; each tries the thing itself and leaves nothing behind.
pub fn all() -> Vec<Check> {
    vec![
        privileges(),
        jit(&Facts::system()),
        kernel_types(),
        perf_event_program(),
        sample_context(),
        kernel_memory(),
        shared_arrays(),
        handler_ring(),
        raw_tracepoint_program(),
        fentry_program(),
    ]
}

fn privileges() -> Check {
    const NAME: &str = "bpf-privileges";
    let caps = Caps::effective();
    let missing: Vec<&str> = [Cap::Bpf, Cap::Perfmon].into_iter().filter(|&c| !caps.allows(c)).map(Cap::name).collect();
    if missing.is_empty() {
        return Check::new(NAME, Answer::Yes, "CAP_BPF and CAP_PERFMON are there", "programs may be loaded");
    }
    Check::new(
        NAME,
        Answer::No,
        format!("{} missing", missing.join(" and ")),
        "events run without a program: no --handler, and drops are not told from losses",
    )
    .fix(PRIVILEGES)
}

fn jit(facts: &Facts) -> Check {
    const NAME: &str = "bpf-jit";
    match std::fs::read_to_string(facts.proc().join("sys/net/core/bpf_jit_enable")) {
        Ok(text) if text.trim() == "0" => Check::new(
            NAME,
            Answer::No,
            "net.core.bpf_jit_enable is 0",
            "programs are interpreted, several times slower",
        )
        .fix("sysctl net.core.bpf_jit_enable=1"),
        Ok(text) => Check::new(
            NAME,
            Answer::Yes,
            format!("net.core.bpf_jit_enable is {}", text.trim()),
            "programs are compiled to machine code",
        ),
        Err(e) => Check::new(
            NAME,
            Answer::Unknown,
            format!("net.core.bpf_jit_enable cannot be read: {e}"),
            "programs may be interpreted, which is slower",
        ),
    }
}

fn kernel_types() -> Check {
    const NAME: &str = "kernel-btf";
    const PATH: &str = "/sys/kernel/btf/vmlinux";
    match std::fs::metadata(PATH) {
        Ok(_) => {
            Check::new(NAME, Answer::Yes, format!("{PATH} is there"), "programs adapt to this kernel's structures")
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Check::new(
            NAME,
            Answer::No,
            format!("{PATH} is missing"),
            "programs cannot find their way in kernel structures: no handlers",
        )
        .fix("a kernel built with CONFIG_DEBUG_INFO_BTF=y"),
        Err(e) => Check::new(NAME, Answer::Unknown, format!("{PATH}: {e}"), "handlers may not load"),
    }
}

fn perf_event_program() -> Check {
    let loaded = load(libbpf_sys::BPF_PROG_TYPE_PERF_EVENT, 0, None, &RETURN_0);
    judge(
        "bpf-perf-event",
        loaded,
        "a program of type perf_event loads",
        "an event can carry a program: --handler works",
        "no event can carry a program",
    )
}

/// Whether this kernel shows programs the sample that it has prepared; tried until it is known.
pub(crate) fn shows_samples() -> bool {
    static SHOWN: Settled = Settled::new();
    SHOWN.ask(|| match cannot_cast() {
        true => (false, Lasts::Yes),
        false => match load_better_stub() {
            Ok(_) => (true, Lasts::Yes),
            Err(error) => (false, lasts(&error)),
        },
    })
}

/// The stub in its better form: `bpf_cast_to_kern_ctx` and the fields it reads.
fn load_better_stub() -> crate::Result<Handlers> {
    Handlers::load(&Options {
        events: vec![EventConfig { callchain: true, ..EventConfig::default() }],
        mechanism: Some(Mechanism::Kfuncs),
        ..Options::default()
    })
}

fn sample_context() -> Check {
    const NAME: &str = "bpf-sample-context";
    let worse = "handlers use helpers: stacks by bpf_get_stack, ids of the initial pid namespace, no time in emit";
    match load_better_stub() {
        Ok(_) => Check::new(
            NAME,
            Answer::Yes,
            "a program that reads its sample through bpf_cast_to_kern_ctx loads",
            "handlers see exactly what the ring's record would hold",
        ),
        Err(e) if e.kind() == ErrorKind::NotPermitted && !may_load() => {
            Check::new(NAME, Answer::Unknown, refused_text(&e), worse).fix(PRIVILEGES)
        }
        Err(e) => Check::new(NAME, Answer::No, refused_text(&e), worse).fix("Linux 6.2 or later"),
    }
}

/// bpf_probe_read_kernel, which lockdown for confidentiality takes away.
fn kernel_memory() -> Check {
    const READ_KERNEL: i32 = 113;
    let program = [
        insn(0xbf, 1, 10, 0), // r1 = fp
        insn(0x07, 1, 0, -8), // r1 -= 8
        insn(0xb7, 2, 0, 8),  // r2 = 8
        insn(0xb7, 3, 0, 0),  // r3 = 0
        insn(0x85, 0, 0, READ_KERNEL),
        RETURN_0[0],
        RETURN_0[1],
    ];
    judge(
        "bpf-kernel-memory",
        load(libbpf_sys::BPF_PROG_TYPE_PERF_EVENT, 0, None, &program),
        "a program that calls bpf_probe_read_kernel loads",
        "handlers read stacks, and kernel text can be read by a program",
        "handlers cannot read stacks (lockdown for confidentiality takes this helper away)",
    )
}

fn shared_arrays() -> Check {
    const NAME: &str = "bpf-shared-arrays";
    let made = create_map(libbpf_sys::BPF_MAP_TYPE_ARRAY, 8, libbpf_sys::BPF_F_MMAPABLE).and_then(|map| {
        Mapping::<u64>::new("an array", map.as_fd(), 8, 1).map_err(|e| io::Error::other(e.to_string()))
    });
    judge(
        NAME,
        made.map(|_| ()),
        "an array map can be created and mapped",
        "counters are read as memory, without disturbing samples",
        "counters could be read by system calls only, which cost samples: no handlers",
    )
}

fn handler_ring() -> Check {
    const NAME: &str = "handler-rings";
    let attr = Attr { kind: 1, config: 10, period_or_freq: 1, ..Attr::default() };
    let cpu = Facts::system().online_cpus().ok().and_then(|cpus| cpus.first().copied()).unwrap_or(0);
    let tried = Real.perf_event_open(&attr, -1, cpu as i32, None).and_then(|event| {
        let array = create_map(libbpf_sys::BPF_MAP_TYPE_PERF_EVENT_ARRAY, 4, 0)?;
        let (key, value) = (0u32, event.as_raw_fd());
        // SAFETY: key and value have the sizes that the map was made with and live through the call.
        check(unsafe {
            libbpf_sys::bpf_map_update_elem(array.as_raw_fd(), (&raw const key).cast(), (&raw const value).cast(), 0)
        })
        .map(|_| ())
    });
    judge(
        NAME,
        tried,
        "a bpf-output event opens and an array of events takes it",
        "emit has a ring of its own on each CPU",
        "emit has nowhere to write",
    )
}

fn raw_tracepoint_program() -> Check {
    tracing(
        "bpf-tp-btf",
        c"sched_switch",
        libbpf_sys::BPF_TRACE_RAW_TP,
        "a program on a tracepoint with types (tp_btf) loads",
        "short-lived kernel text can be copied just before it is freed",
        "short-lived kernel text is copied only if we come in time",
    )
}

fn fentry_program() -> Check {
    tracing(
        "bpf-fentry",
        c"schedule",
        libbpf_sys::BPF_TRACE_FENTRY,
        "a program at a kernel function's entry (fentry) loads",
        "kernel functions can be watched as text comes and goes",
        "kernel functions cannot be watched; tracepoints (bpf-tp-btf) take their place where they load",
    )
}

fn tracing(
    name: &'static str,
    target: &std::ffi::CStr,
    attach_type: libbpf_sys::bpf_attach_type,
    yes: &str,
    with: &str,
    without: &str,
) -> Check {
    // SAFETY: the name is a string that lives through the call.
    let (id, _) =
        libbpf_log::capture(|| unsafe { libbpf_sys::libbpf_find_vmlinux_btf_id(target.as_ptr(), attach_type) });
    match check(id) {
        Ok(id) => {
            let loaded = load(libbpf_sys::BPF_PROG_TYPE_TRACING, attach_type, Some(id as u32), &RETURN_0);
            judge(name, loaded, yes, with, without)
        }
        Err(e) => Check::new(name, Answer::Unknown, format!("{target:?} is not in the kernel's BTF: {e}"), without),
    }
}

/// What a try says. A refusal is a no when we have the privileges that the kernel documents, else it tells nothing.
fn judge(name: &'static str, tried: io::Result<()>, yes: &str, with: &str, without: &str) -> Check {
    let error = match tried {
        Ok(()) => return Check::new(name, Answer::Yes, yes, with),
        Err(e) => e,
    };
    let why = match error.raw_os_error() {
        Some(libc::EPERM) => "refused with EPERM".to_owned(),
        Some(libc::EACCES) => "refused with EACCES".to_owned(),
        Some(libc::ENOSYS) => "this kernel has no bpf system call".to_owned(),
        _ => format!("refused: {error}"),
    };
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) if !may_load() => {
            Check::new(name, Answer::Unknown, format!("{why}, without CAP_BPF and CAP_PERFMON"), without)
                .fix(PRIVILEGES)
        }
        Some(libc::EPERM) => {
            Check::new(name, Answer::No, format!("{why}, though CAP_BPF and CAP_PERFMON are there"), without)
        }
        Some(libc::ENOMEM | libc::EMFILE | libc::ENFILE | libc::EAGAIN) => {
            Check::new(name, Answer::Unknown, why, without)
        }
        _ => Check::new(name, Answer::No, why, without),
    }
}

fn may_load() -> bool {
    let caps = Caps::effective();
    caps.allows(Cap::Bpf) && caps.allows(Cap::Perfmon)
}

fn refused_text(error: &Error) -> String {
    error.log().last().map_or_else(|| error.to_string(), |line| format!("{error} ({})", line.trim()))
}

/// r0 = 0; exit
static RETURN_0: [libbpf_sys::bpf_insn; 2] = [insn(0xb7, 0, 0, 0), insn(0x95, 0, 0, 0)];

/// One instruction: code, destination and source register, constant (struct bpf_insn, uapi/linux/bpf.h).
const fn insn(code: u8, dst: u8, src: u8, imm: i32) -> libbpf_sys::bpf_insn {
    let registers = if cfg!(target_endian = "little") { src << 4 | dst } else { dst << 4 | src };
    // SAFETY: bpf_insn is 8 bytes of integers without padding: code, registers, a 16-bit offset, a 32-bit constant.
    unsafe { std::mem::transmute::<Insn, libbpf_sys::bpf_insn>(Insn { code, registers, offset: 0, imm }) }
}

/// The layout of bpf_insn with its two 4-bit fields in one byte.
#[repr(C)]
struct Insn {
    code: u8,
    registers: u8,
    offset: i16,
    imm: i32,
}

/// Loads a program and lets it go again.
fn load(
    kind: libbpf_sys::bpf_prog_type,
    attach_type: libbpf_sys::bpf_attach_type,
    btf_id: Option<u32>,
    program: &[libbpf_sys::bpf_insn],
) -> io::Result<()> {
    let mut options = libbpf_sys::bpf_prog_load_opts {
        sz: size_of::<libbpf_sys::bpf_prog_load_opts>() as u64,
        expected_attach_type: attach_type,
        attach_btf_id: btf_id.unwrap_or(0),
        ..Default::default()
    };
    // SAFETY: name, licence, instructions and options live through the call and have the lengths given.
    let fd = unsafe {
        libbpf_sys::bpf_prog_load(
            kind,
            c"ai_probe".as_ptr(),
            c"Dual MIT/GPL".as_ptr(),
            program.as_ptr(),
            program.len() as u64,
            &raw mut options,
        )
    };
    own(fd).map(|_| ())
}

fn create_map(kind: libbpf_sys::bpf_map_type, value_size: u32, flags: u32) -> io::Result<OwnedFd> {
    let options = libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_sys::bpf_map_create_opts>() as u64,
        map_flags: flags,
        ..Default::default()
    };
    // SAFETY: name and options live through the call.
    own(unsafe { libbpf_sys::bpf_map_create(kind, c"ai_probe".as_ptr(), 4, value_size, 1, &raw const options) })
}

fn own(fd: i32) -> io::Result<OwnedFd> {
    // SAFETY: a result that is no error is a descriptor which the kernel has just given us.
    check(fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// libbpf returns the negative error number.
fn check(result: i32) -> io::Result<i32> {
    if result < 0 { Err(io::Error::from_raw_os_error(-result)) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_apart() {
        let judged = |errno| judge("x", Err(io::Error::from_raw_os_error(errno)), "yes", "with", "without");
        assert_eq!(judge("x", Ok(()), "yes", "with", "without").consequence, "with");
        assert_eq!(judged(libc::ENOMEM).answer, Answer::Unknown);
        assert_eq!(judged(libc::EINVAL).answer, Answer::No);
        let refused = judged(libc::EPERM);
        assert_eq!(refused.answer, if may_load() { Answer::No } else { Answer::Unknown });
        assert!(refused.why.starts_with("refused with EPERM"), "{}", refused.why);
    }
}
