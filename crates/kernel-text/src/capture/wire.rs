//! What the capture programs write to their ring: `struct ai_text` of src/bpf/capture.bpf.h.

/// Bytes before the data.
const HEAD: usize = 200;
const NAME: usize = 128;

/// What a text is, as the program saw it (enum ai_what).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Program,
    Trampoline,
    ModuleCame,
    ModuleInit,
    ModuleGone,
    StructOps,
}

/// One piece of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Piece<'a> {
    /// CLOCK_MONOTONIC.
    pub(super) time: u64,
    /// The kernel object that the text goes with.
    pub(super) owner: u64,
    pub(super) addr: u64,
    /// CLOCK_BOOTTIME of the program's load; 0 for what no bpf(2) call loaded. Of a trampoline, not 0 when the length is
    /// that of its page.
    pub(super) loaded: u64,
    /// Of the whole text.
    pub(super) length: u32,
    /// Of this piece.
    pub(super) offset: u32,
    /// 0, or a negative error number of the read.
    pub(super) error: i32,
    pub(super) function: u32,
    pub(super) functions: u32,
    pub(super) program_type: u32,
    pub(super) what: What,
    pub(super) tag: [u8; 8],
    pub(super) name: &'a [u8],
    pub(super) bytes: &'a [u8],
}

impl<'a> Piece<'a> {
    /// Reads a record of the ring; `None` for one that makes no sense.
    pub(super) fn read(record: &'a [u8]) -> Option<Piece<'a>> {
        let word = |at: usize| Some(u64::from_ne_bytes(record.get(at..at + 8)?.try_into().ok()?));
        let half = |at: usize| Some(u32::from_ne_bytes(record.get(at..at + 4)?.try_into().ok()?));
        let what = match half(60)? {
            1 => What::Program,
            2 => What::Trampoline,
            3 => What::ModuleCame,
            4 => What::ModuleInit,
            5 => What::ModuleGone,
            7 => What::StructOps,
            _ => return None,
        };
        let name = record.get(72..72 + NAME)?;
        let length = half(40)? as usize;
        Some(Piece {
            time: word(0)?,
            owner: word(8)?,
            addr: word(16)?,
            loaded: word(24)?,
            length: half(32)?,
            offset: half(36)?,
            error: half(44)? as i32,
            function: half(48)?,
            functions: half(52)?,
            program_type: half(56)?,
            what,
            tag: record.get(64..72)?.try_into().ok()?,
            name: name.split(|byte| *byte == 0).next().unwrap_or_default(),
            bytes: record.get(HEAD..)?.get(..length)?,
        })
    }

    /// Whether no more is told than that the text goes or comes: of one that is copied the first piece has bytes.
    pub(super) fn is_news(&self) -> bool {
        self.bytes.is_empty() && self.offset == 0 && self.length > 0 && self.error == 0
    }
}
