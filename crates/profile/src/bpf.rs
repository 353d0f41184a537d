//! What a recording holds of BPF programs beside their samples: machine code, BPF instructions, source lines.
//!
//! The infos are those of programs that lived when somebody asked the kernel for them. A text of the timeline is one
//! function of such a program; it is found by the program's id and its address, so that a later program at the same
//! address is never taken for it.

use afterimage_kernel_text::Text;
use afterimage_perf_data::features::BpfProgInfo;
use afterimage_perf_data::{Endian, Features};
use afterimage_symbols::Error;
use afterimage_symbols::lines::{BpfLine, BpfParts};
use rustc_hash::FxHashMap;

/// The source lines of one BPF program: those of `struct bpf_prog_info`, with the texts from its BTF.
#[derive(Clone, Debug, Default)]
pub struct BpfLines(afterimage_symbols::lines::BpfLines);

impl BpfLines {
    /// Reads the lines of a program; `btf` are its types (the [`BpfBtf`](afterimage_perf_data::features::BpfBtf) that
    /// [`BpfProgInfo::btf_id`] names), without which there are line numbers and no more.
    ///
    /// # Errors
    /// When there are line records that make no sense, or the BTF is damaged.
    pub fn new(info: &BpfProgInfo, btf: Option<&[u8]>) -> Result<BpfLines, Error> {
        let addresses: Vec<u64> = info.jited_ksyms().iter().collect();
        let natives: Vec<u64> = info.jited_line_info().iter().collect();
        let lengths = info.jited_func_lens();
        let (records, record_len) = info.line_info();
        let parts = BpfParts {
            addresses: &addresses,
            lengths: &lengths,
            records,
            record_len,
            natives: &natives,
            big_endian: info.endian == Endian::Big,
            btf,
        };
        afterimage_symbols::lines::BpfLines::new(&parts).map(BpfLines)
    }

    /// The line of the code `offset` bytes into function number `function` (0 is the main one).
    pub fn at(&self, function: usize, offset: u64) -> Option<BpfLine<'_>> {
        self.0.at(function, offset)
    }

    /// Where lines begin in a function, in bytes from its start, ascending.
    pub fn starts(&self, function: usize) -> impl Iterator<Item = (u64, BpfLine<'_>)> {
        self.0.starts(function)
    }

    /// The BPF instructions that the code of the line at that place was made from: the first, and one past the last,
    /// which is `None` where the function's last line begins.
    pub fn insns_at(&self, function: usize, offset: u64) -> Option<(u32, Option<u32>)> {
        self.0.insns_at(function, offset)
    }

    /// Whether there are no lines.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// One function of a program that the recording has an info of.
#[derive(Clone, Copy, Debug)]
pub struct BpfFunction<'f> {
    /// The program.
    pub info: &'f BpfProgInfo,
    /// Which of its functions: 0 is the main one.
    pub function: usize,
}

impl<'f> BpfFunction<'f> {
    /// Its machine code as it was when the kernel was asked.
    pub fn code(&self) -> Option<&'f [u8]> {
        self.info.code_of(self.function)
    }

    /// Its BPF instructions after the verifier's rewriting, 8 bytes each, and the number of the first of them within the
    /// program. `None` where the info has none.
    pub fn insns(&self) -> Option<(u32, &'f [u8])> {
        let all = self.info.xlated_insns();
        let mut starts = self.info.func_info().map(|(insn, _)| insn).skip(self.function);
        let count = self.info.jited_func_lens().len();
        let first = match starts.next() {
            Some(first) => first,
            // A program of one function need not say where it begins.
            None if count <= 1 => 0,
            None => return None,
        };
        let end = starts.next().and_then(|end| usize::try_from(end).ok()?.checked_mul(8)).unwrap_or(all.len());
        let start = usize::try_from(first).ok()?.checked_mul(8)?;
        all.get(start..end.min(all.len())).filter(|insns| !insns.is_empty()).map(|insns| (first, insns))
    }
}

/// The programs that a recording has infos of.
#[derive(Debug, Default)]
pub struct BpfPrograms<'f> {
    by_id: FxHashMap<u32, &'f BpfProgInfo>,
    /// Programs by the address of a function; several where one came after the other.
    by_address: FxHashMap<u64, Vec<BpfFunction<'f>>>,
    types: FxHashMap<u32, &'f [u8]>,
    lines: FxHashMap<u32, BpfLines>,
}

impl<'f> BpfPrograms<'f> {
    /// The programs in the features of a recording.
    pub fn new(features: &'f Features) -> BpfPrograms<'f> {
        let mut programs = BpfPrograms::default();
        programs.types.extend(features.bpf_btfs.iter().map(|btf| (btf.id, btf.data.as_slice())));
        for info in &features.bpf_progs {
            programs.by_id.insert(info.id(), info);
            for (function, address) in info.jited_ksyms().iter().enumerate().filter(|(_, address)| *address != 0) {
                programs.by_address.entry(address).or_default().push(BpfFunction { info, function });
            }
        }
        programs
    }

    /// The info of a program.
    pub fn program(&self, id: u32) -> Option<&'f BpfProgInfo> {
        self.by_id.get(&id).copied()
    }

    /// The function that a text is. Where no record told which program the text belongs to, the only info that names its
    /// address, length and tag stands for it.
    pub fn function_of(&self, text: &Text) -> Option<BpfFunction<'f>> {
        let here = self.by_address.get(&text.addr)?;
        if let Some(program) = text.program.filter(|program| program.id != 0) {
            return here.iter().find(|of| of.info.id() == program.id).copied();
        }
        let mut fitting = here.iter().filter(|of| {
            let len = of.info.jited_func_lens().get(of.function).copied();
            // The kernel names the main function by the tag of the whole program and each other by its own; perf names the
            // main function by its own, too.
            let whole = (of.function == 0).then(|| of.info.tag());
            let tags = whole.into_iter().chain(of.info.prog_tags().nth(of.function));
            let mut names = tags.map(|tag| format!("bpf_prog_{:016x}", u64::from_be_bytes(tag)));
            len == Some(text.len) && names.any(|name| text.name.starts_with(&name))
        });
        let first = fitting.next()?;
        fitting.next().is_none().then_some(*first)
    }

    /// The lines of a program, read once. Empty where there are none or they are damaged.
    pub fn lines(&mut self, id: u32) -> Option<&BpfLines> {
        let info = self.program(id)?;
        let types = self.types.get(&info.btf_id()).copied();
        Some(self.lines.entry(id).or_insert_with(|| {
            let read = BpfLines::new(info, types);
            // Damaged types leave the numbers.
            read.or_else(|_| BpfLines::new(info, None)).unwrap_or_default()
        }))
    }
}
