use crate::bytes::{Cursor, Out, until_nul};
use crate::{Endian, Error, ErrorKind, Result, Words};

/// Bits of [`BpfProgInfo::arrays`]: which arrays the data holds, in this order (tools/lib/perf bpil).
#[expect(missing_docs, reason = "the names are perf's")]
pub mod array {
    pub const JITED_INSNS: u64 = 1;
    pub const XLATED_INSNS: u64 = 1 << 1;
    pub const MAP_IDS: u64 = 1 << 2;
    pub const JITED_KSYMS: u64 = 1 << 3;
    pub const JITED_FUNC_LENS: u64 = 1 << 4;
    pub const FUNC_INFO: u64 = 1 << 5;
    pub const LINE_INFO: u64 = 1 << 6;
    pub const JITED_LINE_INFO: u64 = 1 << 7;
    pub const PROG_TAGS: u64 = 1 << 8;
}

/// `struct bpf_prog_info` and the arrays that it points to, in the byte order of the recording. Pointers in the info
/// are offsets into the data.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct BpfProgInfo {
    /// `struct bpf_prog_info`, as long as the kernel that filled it knew it.
    pub info: Vec<u8>,
    /// Which arrays there are, see [`mod@array`].
    pub arrays: u64,
    /// The arrays, each padded to 8 bytes.
    pub data: Vec<u8>,
    /// The byte order.
    pub endian: Endian,
}

impl BpfProgInfo {
    /// Bytes of `struct bpf_prog_info` from Linux 6.1 on. Readers of perf refuse more than they know.
    pub const INFO_MAX: usize = 232;

    fn u32(&self, at: usize) -> u32 {
        self.info.get(at..).and_then(|b| b.first_chunk::<4>()).map_or(0, |b| self.endian.u32(*b))
    }

    fn u64(&self, at: usize) -> u64 {
        self.info.get(at..).and_then(|b| b.first_chunk::<8>()).map_or(0, |b| self.endian.u64(*b))
    }

    /// `len` bytes of the data at the offset that the info holds at `pointer`.
    fn array(&self, bit: u64, pointer: usize, len: u64) -> &[u8] {
        if self.arrays & bit == 0 {
            return &[];
        }
        let range = usize::try_from(self.u64(pointer)).ok().zip(usize::try_from(len).ok());
        range.and_then(|(at, len)| self.data.get(at..at.checked_add(len)?)).unwrap_or_default()
    }

    /// The program's id.
    pub fn id(&self) -> u32 {
        self.u32(4)
    }

    /// The program's tag.
    pub fn tag(&self) -> [u8; 8] {
        self.info.get(8..).and_then(|b| b.first_chunk::<8>()).copied().unwrap_or_default()
    }

    /// The program's name, at most 15 bytes.
    pub fn name(&self) -> String {
        String::from_utf8_lossy(until_nul(self.info.get(64..80).unwrap_or_default())).into_owned()
    }

    /// The id of the program's types, 0 for none.
    pub fn btf_id(&self) -> u32 {
        self.u32(128)
    }

    /// The machine code of all subprograms, one after the other.
    pub fn jited_insns(&self) -> &[u8] {
        self.array(array::JITED_INSNS, 24, self.u32(16).into())
    }

    /// The address of each subprogram.
    pub fn jited_ksyms(&self) -> Words<'_> {
        Words::new(self.array(array::JITED_KSYMS, 112, 8 * u64::from(self.u32(104))), self.endian)
    }

    /// The length of each subprogram's machine code in bytes.
    pub fn jited_func_lens(&self) -> Vec<u32> {
        let bytes = self.array(array::JITED_FUNC_LENS, 120, 4 * u64::from(self.u32(108)));
        bytes.chunks_exact(4).map(|b| self.endian.u32(b.try_into().unwrap_or_default())).collect()
    }

    /// The machine code of subprogram `function` (0 is the main function): it begins where the lengths of those before it
    /// end. `None` where the info has no code of it.
    pub fn code_of(&self, function: usize) -> Option<&[u8]> {
        let lens = self.jited_func_lens();
        let (before, rest) = lens.split_at_checked(function)?;
        let start = before.iter().try_fold(0usize, |sum, len| sum.checked_add(usize::try_from(*len).ok()?))?;
        let len = usize::try_from(*rest.first()?).ok()?;
        self.jited_insns().get(start..start.checked_add(len)?).filter(|code| !code.is_empty())
    }

    /// The BPF instructions after the verifier rewrote them, 8 bytes each.
    pub fn xlated_insns(&self) -> &[u8] {
        self.array(array::XLATED_INSNS, 32, self.u32(20).into())
    }

    /// Where each subprogram begins: `struct bpf_func_info` (offset in BPF instructions, type of the function).
    pub fn func_info(&self) -> impl Iterator<Item = (u32, u32)> + '_ {
        let (size, count) = (self.u32(132), self.u32(144));
        let bytes = self.array(array::FUNC_INFO, 136, u64::from(size) * u64::from(count));
        let endian = self.endian;
        let size = usize::try_from(size).unwrap_or(usize::MAX).max(8);
        bytes.chunks_exact(size).filter_map(move |b| {
            let (insn, rest) = b.split_first_chunk::<4>()?;
            Some((endian.u32(*insn), endian.u32(*rest.first_chunk::<4>()?)))
        })
    }

    /// The records of `struct bpf_line_info`, and the bytes of one.
    pub fn line_info(&self) -> (&[u8], u32) {
        let (size, count) = (self.u32(172), self.u32(148));
        (self.array(array::LINE_INFO, 152, u64::from(size) * u64::from(count)), size)
    }

    /// The address of the machine code that each record of [`line_info`](Self::line_info) speaks of.
    pub fn jited_line_info(&self) -> Words<'_> {
        // The kernel has known no other size than 8.
        let count = if self.u32(176) == 8 { self.u32(168) } else { 0 };
        Words::new(self.array(array::JITED_LINE_INFO, 160, 8 * u64::from(count)), self.endian)
    }

    /// The tag of each subprogram.
    pub fn prog_tags(&self) -> impl Iterator<Item = [u8; 8]> + '_ {
        let bytes = self.array(array::PROG_TAGS, 184, 8 * u64::from(self.u32(180)));
        bytes.chunks_exact(8).map(|b| b.try_into().unwrap_or_default())
    }

    fn decode(c: &mut Cursor<'_>) -> Result<Self> {
        const W: &str = "BPF program info";
        let (info_len, data_len, arrays) = (c.u32(W)?, c.u32(W)?, c.u64(W)?);
        let info = c.take(info_len.into(), W)?.to_vec();
        Ok(Self { info, arrays, data: c.take(data_len.into(), W)?.to_vec(), endian: c.endian })
    }

    fn encode(&self, o: &mut Out<'_>) -> Result<()> {
        let data_len =
            u32::try_from(self.data.len()).map_err(|_| Error::new(ErrorKind::TooLong, "arrays of a BPF program"))?;
        let info = &self.info[..self.info.len().min(Self::INFO_MAX)];
        o.u32(info.len() as u32);
        o.u32(data_len);
        o.u64(self.arrays);
        o.bytes(info);
        o.bytes(&self.data);
        Ok(())
    }

    /// One program alone, little-endian.
    pub(crate) fn decode_one(data: &[u8]) -> Result<Self> {
        let mut one = Self::decode(&mut Cursor::new(data, 0, Endian::Little))?;
        one.info.truncate(Self::INFO_MAX);
        Ok(one)
    }

    pub(crate) fn encode_one(&self) -> Result<Vec<u8>> {
        let mut data = Vec::new();
        self.encode(&mut Out { buf: &mut data, endian: Endian::Little })?;
        Ok(data)
    }

    /// The programs of a BPF_PROG_INFO section.
    pub(super) fn decode_all(mut c: Cursor<'_>) -> Result<Vec<Self>> {
        let count = c.u32("BPF program info")?;
        let mut all = Vec::new();
        for _ in 0..count {
            all.push(Self::decode(&mut c)?);
        }
        Ok(all)
    }

    pub(super) fn encode_all(progs: &[Self], o: &mut Out<'_>) -> Result<()> {
        o.u32(progs.len() as u32);
        progs.iter().try_for_each(|prog| prog.encode(o))
    }
}

/// The types of BPF programs, as the kernel gives them.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct BpfBtf {
    /// The id that [`BpfProgInfo::btf_id`] names.
    pub id: u32,
    /// The BTF.
    pub data: Vec<u8>,
}

impl BpfBtf {
    fn decode(c: &mut Cursor<'_>) -> Result<Self> {
        const W: &str = "BPF types";
        let (id, len) = (c.u32(W)?, c.u32(W)?);
        Ok(Self { id, data: c.take(len.into(), W)?.to_vec() })
    }

    fn encode(&self, o: &mut Out<'_>) -> Result<()> {
        let len = u32::try_from(self.data.len()).map_err(|_| Error::new(ErrorKind::TooLong, "BPF types"))?;
        o.u32(self.id);
        o.u32(len);
        o.bytes(&self.data);
        Ok(())
    }

    /// One program's types alone, little-endian.
    pub(crate) fn decode_one(data: &[u8]) -> Result<Self> {
        Self::decode(&mut Cursor::new(data, 0, Endian::Little))
    }

    pub(crate) fn encode_one(&self) -> Result<Vec<u8>> {
        let mut data = Vec::new();
        self.encode(&mut Out { buf: &mut data, endian: Endian::Little })?;
        Ok(data)
    }

    /// The types in a BPF_BTF section.
    pub(super) fn decode_all(mut c: Cursor<'_>) -> Result<Vec<Self>> {
        let count = c.u32("BPF types")?;
        let mut all = Vec::new();
        for _ in 0..count {
            all.push(Self::decode(&mut c)?);
        }
        Ok(all)
    }

    pub(super) fn encode_all(btfs: &[Self], o: &mut Out<'_>) -> Result<()> {
        o.u32(btfs.len() as u32);
        btfs.iter().try_for_each(|btf| btf.encode(o))
    }
}
