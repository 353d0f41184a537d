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
        if misc & misc::MMAP_BUILD_ID != 0 {
            let mut ahead = *c;
            if let Some(build_id) = build_id(ahead.bytes::<4>(W)?, &ahead.bytes::<20>(W)?) {
                *c = ahead;
                return Ok(Self::BuildId(build_id));
            }
        }
        Ok(Self::Inode { maj: c.u32(W)?, min: c.u32(W)?, ino: c.u64(W)?, generation: c.u64(W)? })
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

/// The build ID, if it is one: the bit alone does not tell. Where two recorders listen and one of them wants build IDs, the
/// kernel leaves the bit set in the records of the other (`perf_event_mmap_output`, seen on Linux 6.18), which have device
/// and inode there. A build ID has zeros in the reserved bytes and behind its end.
fn build_id([size, reserved @ ..]: [u8; 4], bytes: &[u8; BuildId::MAX]) -> Option<BuildId> {
    let (id, rest) = bytes.split_at_checked(usize::from(size))?;
    (reserved == [0; 3] && rest.iter().all(|byte| *byte == 0)).then(|| BuildId::new(id))
}

#[cfg(test)]
mod tests {
    use crate::Endian;

    use super::*;

    fn decoded(bytes: &[u8; 24]) -> FileId {
        FileId::decode(&mut Cursor::new(bytes, 0, Endian::Little), misc::MMAP_BUILD_ID).unwrap()
    }

    fn of_inode(maj: u32, min: u32, ino: u64) -> FileId {
        let mut bytes = Vec::new();
        let inode = FileId::Inode { maj, min, ino, generation: 7 };
        inode.encode(&mut Out { buf: &mut bytes, endian: Endian::Little });
        assert_eq!(decoded(bytes.as_slice().try_into().unwrap()), inode);
        inode
    }

    #[test]
    fn the_bit_of_another_listener_makes_no_build_id() {
        // A disk of virtio, one of SCSI, and a file system without a device.
        of_inode(254, 0, 1_234_567);
        of_inode(8, 1, 1_234_567);
        of_inode(0, 45, 12);
    }

    #[test]
    fn build_ids_of_every_length() {
        for size in [0, 8, 16, 20] {
            let mut bytes = [0; 24];
            bytes[0] = size;
            bytes[4..4 + usize::from(size)].fill(0xab);
            assert_eq!(decoded(&bytes), FileId::BuildId(BuildId::new(&[0xab; 20][..size.into()])));
        }
    }
}
