//! Where kernel memory stands in /proc/kcore: the program headers of an ELF file without an end (elf(5)).

/// Bytes of `Elf64_Ehdr` and `Elf64_Phdr`.
pub(super) const HEADER: usize = 64;
const SEGMENT: usize = 56;
/// `PT_LOAD`.
const LOAD: u32 = 1;

/// A range of kernel memory: its address, its bytes, and where they stand in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    addr: u64,
    size: u64,
    at: u64,
}

/// All ranges, as they were when the headers were read. Memory that is added or removed moves what is behind in the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Segments(Vec<Segment>);

/// How many bytes of the file its headers take, from its first 64; `None` for what is no 64-bit ELF file of this machine's
/// byte order. At most 3.7 MB.
pub(super) fn headers_len(head: &[u8]) -> Option<usize> {
    let order = if cfg!(target_endian = "big") { 2 } else { 1 };
    if !head.starts_with(b"\x7fELF") || head.get(4..6)? != [2, order] || usize::from(half(head, 54)?) < SEGMENT {
        return None;
    }
    let start = usize::try_from(word(head, 32)?).ok().filter(|start| (HEADER..=1 << 16).contains(start))?;
    Some(start + usize::from(half(head, 54)?).min(1 << 8) * usize::from(half(head, 56)?))
}

impl Segments {
    /// From the file's first bytes, [`headers_len`] of them. Headers that are cut off are left out.
    pub(super) fn parse(head: &[u8]) -> Option<Segments> {
        headers_len(head)?;
        let (start, size, count) = (word(head, 32)? as usize, half(head, 54)?.into(), half(head, 56)?.into());
        let headers = head.get(start..)?.chunks_exact(size).take(count);
        let segment = |header: &[u8]| {
            let is_load = u32::from_ne_bytes(*header.first_chunk()?) == LOAD;
            let segment = Segment { at: word(header, 8)?, addr: word(header, 16)?, size: word(header, 40)? };
            (is_load && segment.addr.checked_add(segment.size).is_some()).then_some(segment)
        };
        Some(Segments(headers.filter_map(segment).collect()))
    }

    /// Where a range of memory stands in the file; `None` unless all of it is in one segment.
    pub(super) fn find(&self, addr: u64, len: usize) -> Option<u64> {
        let end = addr.checked_add(len as u64)?;
        let segment = self.0.iter().find(|segment| segment.addr <= addr && end <= segment.addr + segment.size)?;
        segment.at.checked_add(addr - segment.addr)
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|word| u64::from_ne_bytes(*word))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|half| u16::from_ne_bytes(*half))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// The headers of a file with these segments: type, address, size, place in the file.
    pub(crate) fn headers(segments: &[(u32, u64, u64, u64)]) -> Vec<u8> {
        let mut head = vec![0; HEADER];
        head[..6].copy_from_slice(&[0x7f, b'E', b'L', b'F', 2, if cfg!(target_endian = "big") { 2 } else { 1 }]);
        head[32..40].copy_from_slice(&64u64.to_ne_bytes());
        head[54..56].copy_from_slice(&56u16.to_ne_bytes());
        head[56..58].copy_from_slice(&(segments.len() as u16).to_ne_bytes());
        for (kind, addr, size, at) in segments {
            let mut header = [0; SEGMENT];
            header[..4].copy_from_slice(&kind.to_ne_bytes());
            header[8..16].copy_from_slice(&at.to_ne_bytes());
            header[16..24].copy_from_slice(&addr.to_ne_bytes());
            header[40..48].copy_from_slice(&size.to_ne_bytes());
            head.extend_from_slice(&header);
        }
        head
    }

    #[test]
    fn addresses_are_found_where_their_segment_stands() {
        let text = 0xffff_ffff_8100_0000;
        let head =
            headers(&[(4, 0, 100, 500), (1, text, 0x1000, 0x7000), (1, u64::MAX - 8, 64, 0), (1, 0x10, 8, 0x9000)]);
        assert_eq!(headers_len(&head), Some(head.len()));
        let segments = Segments::parse(&head).unwrap();
        assert_eq!(segments.0.len(), 2, "notes, and what goes over the end of memory, are none");
        assert_eq!(segments.find(text, 0x1000), Some(0x7000));
        assert_eq!(segments.find(text + 0xfff, 1), Some(0x7fff));
        assert_eq!(segments.find(text + 0xfff, 2), None, "half of it is in no segment");
        assert_eq!((segments.find(0x10, 8), segments.find(0x8, 8)), (Some(0x9000), None));
        assert_eq!(segments.find(u64::MAX, 2), None);
    }

    #[test]
    fn made_up_headers_are_no_panic() {
        let whole = headers(&[(1, 4096, 4096, 64), (1, 1 << 20, 4096, 1 << 20)]);
        for cut in 0..whole.len() {
            if let Some(segments) = Segments::parse(&whole[..cut]) {
                assert!(segments.0.len() < 2, "{cut}");
            }
        }
        for at in 0..whole.len() {
            for bits in [0x01, 0x80, 0xff] {
                let mut bad = whole.clone();
                bad[at] ^= bits;
                assert!(headers_len(&bad).is_none_or(|len| len <= (1 << 16) + (1 << 24)));
                Segments::parse(&bad);
            }
        }
        assert_eq!(Segments::parse(b""), None);
    }
}
