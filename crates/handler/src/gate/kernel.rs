//! Where the running kernel keeps what gates read, from its BTF.

use std::ffi::OsStr;
use std::sync::OnceLock;

use libbpf_rs::btf::types::{Composite, MemberAttr};
use libbpf_rs::btf::{Btf, BtfKind, BtfType, HasSize as _};

use crate::{Error, ErrorKind, Result};

/// A member of a kernel structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Member {
    ContextData,
    SampleFlags,
    SampleIp,
    SampleTime,
    SampleAddr,
    SamplePid,
    SampleTid,
    TaskComm,
    TaskParent,
    TaskTgid,
    TaskSignal,
    SignalPids,
    PidLevel,
    PidNumbers,
    NumberNr,
}

/// In the order of [`Member`]: structure, and path in it.
const MEMBERS: [(&str, &str); 15] = [
    ("bpf_perf_event_data_kern", "data"),
    ("perf_sample_data", "sample_flags"),
    ("perf_sample_data", "ip"),
    ("perf_sample_data", "time"),
    ("perf_sample_data", "addr"),
    ("perf_sample_data", "tid_entry.pid"),
    ("perf_sample_data", "tid_entry.tid"),
    ("task_struct", "comm"),
    ("task_struct", "real_parent"),
    ("task_struct", "tgid"),
    ("task_struct", "signal"),
    ("signal_struct", "pids"),
    ("pid", "level"),
    ("pid", "numbers"),
    ("upid", "nr"),
];

const CAST: &str = "bpf_cast_to_kern_ctx";

/// Offsets of members in bytes, and what else must be known of the kernel.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    offsets: [Option<i16>; MEMBERS.len()],
    /// BTF id of the function that gives a program the kernel's own context.
    pub(crate) cast: Option<i32>,
    /// Bytes of `struct upid`.
    pub(crate) number_size: Option<i32>,
}

impl Layout {
    /// Of no kernel at all: for the size of a program.
    pub(crate) fn anywhere() -> Layout {
        Layout { offsets: [Some(0); MEMBERS.len()], cast: Some(1), number_size: Some(16) }
    }

    /// Of the kernel that runs, read once.
    pub(crate) fn running() -> Result<&'static Layout> {
        static RUNNING: OnceLock<Layout> = OnceLock::new();
        match RUNNING.get() {
            Some(layout) => Ok(layout),
            None => Layout::read().map(|layout| RUNNING.get_or_init(|| layout)),
        }
    }

    fn read() -> Result<Layout> {
        let what = "the kernel's types";
        let btf = Btf::from_vmlinux().map_err(|e| Error::libbpf(what, &e, Vec::new()))?;
        let mut layout = Layout::default();
        for id in 1..u32::try_from(btf.len()).unwrap_or(u32::MAX) {
            let Some(kind) = btf.type_by_id::<BtfType<'_>>(id.into()) else { break };
            match kind.kind() {
                BtfKind::Struct => layout.take(&btf, kind),
                BtfKind::Func if kind.name().is_some_and(|name| name == CAST) => layout.cast = i32::try_from(id).ok(),
                _ => {}
            }
        }
        Ok(layout)
    }

    fn take(&mut self, btf: &Btf<'_>, structure: BtfType<'_>) {
        let Some(name) = structure.name().and_then(OsStr::to_str) else { return };
        if !MEMBERS.iter().any(|(of, _)| *of == name) {
            return;
        }
        let Ok(composite) = Composite::try_from(structure) else { return };
        if name == "upid" {
            self.number_size = i32::try_from(composite.size()).ok();
        }
        for ((of, path), offset) in MEMBERS.iter().zip(&mut self.offsets) {
            if *of == name && offset.is_none() {
                *offset = at(btf, &composite, path).and_then(|bits| i16::try_from(bits / 8).ok());
            }
        }
    }

    /// Where a member is.
    pub(crate) fn offset(&self, member: Member) -> Result<i16> {
        let missing = || {
            let (of, path) = MEMBERS[member as usize];
            Error::new(ErrorKind::Unsupported, "loading the gate", format!("this kernel has no {of}.{path}"))
        };
        self.offsets[member as usize].ok_or_else(missing)
    }

    /// The function that gives a program the kernel's own context.
    pub(crate) fn cast(&self) -> Result<i32> {
        self.cast
            .ok_or_else(|| Error::new(ErrorKind::Unsupported, "loading the gate", format!("this kernel has no {CAST}")))
    }
}

/// Bits from the start of a structure to a member; members without a name are looked into.
fn at(btf: &Btf<'_>, composite: &Composite<'_>, path: &str) -> Option<u32> {
    let (first, rest) = path.split_once('.').map_or((path, None), |(first, rest)| (first, Some(rest)));
    for index in 0..composite.len() {
        let member = composite.get(index)?;
        let MemberAttr::Normal { offset } = member.attr else { continue };
        let inner = || {
            let kind = btf.type_by_id::<BtfType<'_>>(member.ty)?;
            Composite::try_from(kind.skip_mods_and_typedefs()).ok()
        };
        let found = match member.name.and_then(OsStr::to_str) {
            Some(name) if name == first => match rest {
                None => Some(0),
                Some(rest) => inner().and_then(|inner| at(btf, &inner, rest)),
            },
            None | Some("") => inner().and_then(|inner| at(btf, &inner, path)),
            Some(_) => None,
        };
        if let Some(below) = found {
            return offset.checked_add(below);
        }
    }
    None
}
