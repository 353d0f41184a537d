//! BPF programs that were loaded before the recording began.

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;

use afterimage_kernel_text::capture::by_id::{self, Program};
use afterimage_perf_data::features::{BpfProgInfo, array};
use afterimage_perf_data::record::{BpfEvent, Ksymbol};
use afterimage_perf_data::{Endian, Layout, Record, Result};

/// Appends KSYMBOL and BPF_EVENT records for `programs`, in the order in which the kernel emits them at a load.
///
/// # Errors
/// Only when a name does not fit into a record.
pub(crate) fn append(layout: &Layout, programs: &[Program], out: &mut Vec<u8>) -> Result<()> {
    for program in programs {
        for function in &program.functions {
            let ksymbol = Ksymbol {
                addr: function.address,
                len: function.length,
                kind: Ksymbol::BPF,
                name: function.name.as_bytes(),
                ..Ksymbol::default()
            };
            Record::Ksymbol(ksymbol).encode(layout, out)?;
        }
        let event = BpfEvent { kind: BpfEvent::LOAD, prog_id: program.id, tag: program.tag, ..BpfEvent::default() };
        Record::BpfEvent(event).encode(layout, out)?;
    }
    Ok(())
}

/// The type information that `programs` refer to.
pub(crate) fn type_information(programs: &[Program]) -> Vec<(u32, Vec<u8>)> {
    let ids: BTreeSet<u32> = programs.iter().map(|p| p.info.btf_id).filter(|&id| id != 0).collect();
    by_id::type_information(&ids)
}

/// The program as perf's BPF_PROG_INFO section holds it: `struct bpf_prog_info` (linux/bpf.h, Linux 6.1, 232 bytes)
/// whose pointers are offsets into the arrays that follow.
pub(crate) fn info(program: &Program) -> BpfProgInfo {
    let p = &program.info;
    let mut out = Packed::default();
    out.word32(0, p.ty as u32);
    out.word32(4, p.id);
    out.put(8, &program.tag);
    out.word64(40, u64::try_from(p.load_time.as_nanos()).unwrap_or(u64::MAX));
    out.word32(48, p.created_by_uid);
    out.name(64, p.name.as_bytes());
    out.word32(80, p.ifindex);
    out.word32(84, p.gpl_compatible.into());
    out.word64(88, p.netns_dev);
    out.word64(96, p.netns_ino);
    out.word32(128, p.btf_id);
    out.word64(192, p.run_time_ns);
    out.word64(200, p.run_cnt);
    out.word64(208, p.recursion_misses);
    out.word32(216, p.verified_insns);
    let addresses = |list: &[*const std::ffi::c_void]| -> Vec<u8> {
        list.iter().flat_map(|a| (a.addr() as u64).to_ne_bytes()).collect()
    };
    let words = |list: &[u32]| -> Vec<u8> { list.iter().flat_map(|w| w.to_ne_bytes()).collect() };
    out.array(array::JITED_INSNS, (16, 24), p.jited_prog_insns.len(), &p.jited_prog_insns);
    out.array(array::XLATED_INSNS, (20, 32), p.xlated_prog_insns.len(), &p.xlated_prog_insns);
    out.array(array::MAP_IDS, (52, 56), p.map_ids.len(), &words(&p.map_ids));
    out.array(array::JITED_KSYMS, (104, 112), p.jited_ksyms.len(), &addresses(&p.jited_ksyms));
    out.array(array::JITED_FUNC_LENS, (108, 120), p.jited_func_lens.len(), &words(&p.jited_func_lens));
    let functions: Vec<u8> = p.func_info.iter().flat_map(|f| words(&[f.insn_off, f.type_id])).collect();
    out.word32(132, 8);
    out.array(array::FUNC_INFO, (144, 136), p.func_info.len(), &functions);
    let line =
        |l: &by_id::LineInfo| words(&[l.insn_off, l.file_name_off, l.line_off, l.line_num << 10 | l.line_col & 0x3ff]);
    let lines: Vec<u8> = p.line_info.iter().flat_map(line).collect();
    out.word32(172, 16);
    out.array(array::LINE_INFO, (148, 152), p.line_info.len(), &lines);
    out.word32(176, 8);
    out.array(array::JITED_LINE_INFO, (168, 160), p.jited_line_info.len(), &addresses(&p.jited_line_info));
    let tags: Vec<u8> = p.prog_tags.iter().flat_map(|t| t.0).collect();
    out.array(array::PROG_TAGS, (180, 184), p.prog_tags.len(), &tags);
    BpfProgInfo { info: out.info.to_vec(), arrays: out.arrays, data: out.data, endian: Endian::NATIVE }
}

/// A `bpf_prog_info` under construction.
struct Packed {
    info: [u8; BpfProgInfo::INFO_MAX],
    arrays: u64,
    data: Vec<u8>,
}

impl Default for Packed {
    fn default() -> Self {
        Packed { info: [0; BpfProgInfo::INFO_MAX], arrays: 0, data: Vec::new() }
    }
}

impl Packed {
    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.info[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn word32(&mut self, at: usize, value: u32) {
        self.put(at, &value.to_ne_bytes());
    }

    fn word64(&mut self, at: usize, value: u64) {
        self.put(at, &value.to_ne_bytes());
    }

    /// At most 15 bytes, so that a NUL remains.
    fn name(&mut self, at: usize, name: &[u8]) {
        self.put(at, &name[..name.len().min(15)]);
    }

    /// An array with its count and its pointer, padded to 8 bytes. An empty one is left out.
    fn array(&mut self, bit: u64, (count_at, pointer_at): (usize, usize), count: usize, bytes: &[u8]) {
        let Ok(count) = u32::try_from(count) else { return };
        if count == 0 {
            return;
        }
        self.arrays |= bit;
        self.word32(count_at, count);
        self.word64(pointer_at, self.data.len() as u64);
        self.data.extend_from_slice(bytes);
        self.data.resize(self.data.len().next_multiple_of(8), 0);
    }
}
