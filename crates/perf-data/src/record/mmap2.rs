use super::{Body, SampleId, misc};
use crate::bytes::{Cursor, Out};
use crate::{BuildId, Result};

/// What identifies the file of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileId {
    /// The device and the inode, as the kernel knows them.
    Inode {
        /// Major number of the device.
        maj: u32,
        /// Minor number of the device.
        min: u32,
        /// Inode number.
        ino: u64,
        /// Generation of the inode.
        generation: u64,
    },
    /// The build ID, with bit `MMAP_BUILD_ID` of `misc`.
    BuildId(BuildId),
}

impl Default for FileId {
    fn default() -> Self {
        FileId::Inode { maj: 0, min: 0, ino: 0, generation: 0 }
    }
}

/// PERF_RECORD_MMAP2: a map with the identity of its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[doc(alias = "PERF_RECORD_MMAP2")]
pub struct Mmap2<'a> {
    /// The process.
    pub pid: u32,
    /// The thread that mapped it.
    pub tid: u32,
    /// Where it begins.
    pub addr: u64,
    /// Its bytes.
    pub len: u64,
    /// Offset into the file in bytes.
    pub pgoff: u64,
    /// Which file.
    pub file: FileId,
    /// `PROT_*` of mmap(2).
    pub prot: u32,
    /// `MAP_*` of mmap(2).
    pub flags: u32,
    /// The file's path, or a name in brackets.
    pub filename: &'a [u8],
    /// The header's `misc`. Bit `MMAP_BUILD_ID` follows `file` when the record is encoded.
    pub misc: u16,
    /// The sample id at the end.
    pub id: SampleId,
}

impl<'a> Body<'a> for Mmap2<'a> {
    fn decode(c: &mut Cursor<'a>, misc: u16, id: SampleId) -> Result<Self> {
        const W: &str = "MMAP2 record";
        Ok(Self {
            pid: c.u32(W)?,
            tid: c.u32(W)?,
            addr: c.u64(W)?,
            len: c.u64(W)?,
            pgoff: c.u64(W)?,
            file: FileId::decode(c, misc)?,
            prot: c.u32(W)?,
            flags: c.u32(W)?,
            filename: c.name(),
            misc,
            id,
        })
    }

    fn encode(&self, o: &mut Out<'_>) {
        o.u32(self.pid);
        o.u32(self.tid);
        o.u64(self.addr);
        o.u64(self.len);
        o.u64(self.pgoff);
        self.file.encode(o);
        o.u32(self.prot);
        o.u32(self.flags);
        o.name(self.filename);
    }

    fn misc(&self) -> u16 {
        match self.file {
            FileId::Inode { .. } => self.misc & !misc::MMAP_BUILD_ID,
            FileId::BuildId(_) => self.misc | misc::MMAP_BUILD_ID,
        }
    }

    fn id(&self) -> &SampleId {
        &self.id
    }
}

impl FileId {
    fn decode(c: &mut Cursor<'_>, misc: u16) -> Result<Self> {
        const W: &str = "file of an MMAP2 record";
        if misc & misc::MMAP_BUILD_ID == 0 {
            return Ok(Self::Inode { maj: c.u32(W)?, min: c.u32(W)?, ino: c.u64(W)?, generation: c.u64(W)? });
        }
        let [size, ..] = c.bytes::<4>(W)?;
        let bytes = c.bytes::<20>(W)?;
        Ok(Self::BuildId(BuildId::new(&bytes[..usize::from(size).min(BuildId::MAX)])))
    }

    fn encode(&self, o: &mut Out<'_>) {
        match self {
            Self::Inode { maj, min, ino, generation } => {
                o.u32(*maj);
                o.u32(*min);
                o.u64(*ino);
                o.u64(*generation);
            }
            Self::BuildId(id) => {
                o.bytes(&[id.as_bytes().len() as u8, 0, 0, 0]);
                o.bytes(&id.field());
            }
        }
    }
}
