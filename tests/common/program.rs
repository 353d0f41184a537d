//! A BPF program as the kernel tells of it: its code, its functions, its lines.

use afterimage_perf_data::Endian;
use afterimage_perf_data::features::{BpfBtf, BpfProgInfo, array};

/// One function: where it lies, its code, and its lines as (offset, line, what stands there).
pub(crate) struct Function<'a> {
    pub(crate) addr: u64,
    pub(crate) code: &'a [u8],
    pub(crate) tag: [u8; 8],
    pub(crate) lines: &'a [(u64, u32, &'a str)],
}

/// The path that the lines are said to be of.
pub(crate) const SOURCE: &str = "/src/hot.bpf.c";

/// `struct bpf_prog_info` with its arrays, and the types, of a program with these functions.
pub(crate) fn info(id: u32, functions: &[Function<'_>]) -> (BpfProgInfo, BpfBtf) {
    let mut info = vec![0; BpfProgInfo::INFO_MAX];
    let mut data = Vec::new();
    let mut strings = vec![0];
    let file = string(&mut strings, SOURCE);

    let code: Vec<u8> = functions.iter().flat_map(|f| f.code).copied().collect();
    let addresses: Vec<u8> = functions.iter().flat_map(|f| f.addr.to_le_bytes()).collect();
    let lengths: Vec<u8> = functions.iter().flat_map(|f| (f.code.len() as u32).to_le_bytes()).collect();
    let tags: Vec<u8> = functions.iter().flat_map(|f| f.tag).collect();
    let mut records = Vec::new();
    let mut natives = Vec::new();
    for (function, offset, line, text) in
        functions.iter().flat_map(|f| f.lines.iter().map(move |(offset, line, text)| (f, *offset, *line, *text)))
    {
        let insn = natives.len() as u32 / 8;
        let words = [insn, file, string(&mut strings, text), line << 10 | 3];
        records.extend(words.iter().flat_map(|w| w.to_le_bytes()));
        natives.extend((function.addr + offset).to_le_bytes());
    }

    let mut put = |bytes: &[u8], pointer: usize, count: usize, number: u32| {
        info[pointer..pointer + 8].copy_from_slice(&(data.len() as u64).to_le_bytes());
        info[count..count + 4].copy_from_slice(&number.to_le_bytes());
        data.extend_from_slice(bytes);
        data.resize(data.len().next_multiple_of(8), 0);
    };
    let count = functions.len() as u32;
    put(&code, 24, 16, code.len() as u32);
    put(&addresses, 112, 104, count);
    put(&lengths, 120, 108, count);
    put(&records, 152, 148, records.len() as u32 / 16);
    put(&natives, 160, 168, natives.len() as u32 / 8);
    put(&tags, 184, 180, count);
    let mut word = |at: usize, value: u32| info[at..at + 4].copy_from_slice(&value.to_le_bytes());
    word(4, id);
    word(128, id);
    word(172, 16);
    word(176, 8);
    info[8..16].copy_from_slice(&functions[0].tag);
    let arrays = array::JITED_INSNS
        | array::JITED_KSYMS
        | array::JITED_FUNC_LENS
        | array::LINE_INFO
        | array::JITED_LINE_INFO
        | array::PROG_TAGS;
    (BpfProgInfo { info, arrays, data, endian: Endian::Little }, BpfBtf { id, data: btf(&strings) })
}

fn string(strings: &mut Vec<u8>, text: &str) -> u32 {
    let at = strings.len() as u32;
    strings.extend_from_slice(text.as_bytes());
    strings.push(0);
    at
}

/// A BTF of strings alone (linux/btf.h).
fn btf(strings: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x9f, 0xeb, 1, 0];
    let words = [24, 0, 0, 0, strings.len() as u32];
    bytes.extend(words.iter().flat_map(|w| w.to_le_bytes()));
    bytes.extend_from_slice(strings);
    bytes
}
