//! A program's information put together from copies of its functions, for a program that was gone before the kernel could
//! be asked about it: addresses, lengths, tags and code; no lines and no types.

use afterimage_perf_data::Endian;
use afterimage_perf_data::features::{BpfProgInfo, array};

/// One function of a program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Code<'a> {
    pub(crate) addr: u64,
    pub(crate) tag: [u8; 8],
    pub(crate) bytes: &'a [u8],
}

/// The information of a program from its functions, main first.
pub(crate) fn of_functions(id: u32, tag: [u8; 8], symbol: &str, functions: &[Code<'_>]) -> BpfProgInfo {
    let mut info = vec![0; BpfProgInfo::INFO_MAX];
    let mut data = Vec::new();
    put(&mut info, 4, &id.to_ne_bytes());
    put(&mut info, 8, &tag);
    put(&mut info, 64, short_name(symbol).as_bytes());
    let code: Vec<u8> = functions.iter().flat_map(|text| text.bytes.iter().copied()).collect();
    let addresses: Vec<u8> = functions.iter().flat_map(|text| text.addr.to_ne_bytes()).collect();
    let lengths: Vec<u8> = functions.iter().flat_map(|text| (text.bytes.len() as u32).to_ne_bytes()).collect();
    let tags: Vec<u8> = functions.iter().flat_map(|text| text.tag).collect();
    // Where count and pointer of each array stand in struct bpf_prog_info (uapi/linux/bpf.h).
    let mut array = |(count_at, pointer_at): (usize, usize), count: usize, bytes: &[u8]| {
        put(&mut info, count_at, &(count as u32).to_ne_bytes());
        put(&mut info, pointer_at, &(data.len() as u64).to_ne_bytes());
        data.extend_from_slice(bytes);
        data.resize(data.len().next_multiple_of(8), 0);
    };
    let count = functions.len();
    array((16, 24), code.len(), &code);
    array((104, 112), count, &addresses);
    array((108, 120), count, &lengths);
    array((180, 184), count, &tags);
    let arrays = array::JITED_INSNS | array::JITED_KSYMS | array::JITED_FUNC_LENS | array::PROG_TAGS;
    BpfProgInfo { info, arrays, data, endian: Endian::NATIVE }
}

fn put(info: &mut [u8], at: usize, value: &[u8]) {
    info[at..at + value.len()].copy_from_slice(value);
}

/// The program's own name in a symbol `bpf_prog_<tag>_<name>`, at most the 15 bytes that the structure has for it.
fn short_name(symbol: &str) -> &str {
    let name = symbol.strip_prefix("bpf_prog_").and_then(|rest| rest.get(17..)).unwrap_or_default();
    let end = (0..=name.len().min(15)).rev().find(|at| name.is_char_boundary(*at)).unwrap_or(0);
    &name[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_back_is_what_was_copied() {
        let main = Code { addr: 0xffff_ffff_c000_0000, tag: [1; 8], bytes: &[0x90; 3] };
        let sub = Code { addr: 0xffff_ffff_c000_0040, tag: [2; 8], bytes: &[0xc3; 4] };
        let info = of_functions(77, [3; 8], "bpf_prog_0303030303030303_a_very_long_name", &[main, sub]);
        assert_eq!((info.id(), info.name().as_str(), info.tag()), (77, "a_very_long_nam", [3; 8]));
        assert_eq!(info.jited_insns(), [0x90, 0x90, 0x90, 0xc3, 0xc3, 0xc3, 0xc3]);
        assert_eq!(info.jited_ksyms().iter().collect::<Vec<_>>(), [main.addr, sub.addr]);
        assert_eq!(info.jited_func_lens(), [3, 4]);
        assert_eq!(info.prog_tags().collect::<Vec<_>>(), [[1; 8], [2; 8]]);
    }

    #[test]
    fn names_of_any_shape() {
        assert_eq!(short_name("bpf_prog_0303030303030303"), "");
        assert_eq!(short_name("bpf_prog_0303030303030303_äöüäöüäöü"), "äöüäöüä");
        assert_eq!(short_name("x"), "");
    }
}
