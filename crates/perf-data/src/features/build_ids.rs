use crate::bytes::{Cursor, Out};
use crate::record::{RecordHeader, misc};
use crate::{BuildId, Error, ErrorKind, Result};

/// The build ID of a file that samples were in (`struct perf_record_header_build_id`).
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct BuildIdEntry {
    /// The process of the machine: -1 the host's files, another number a guest's.
    pub pid: i32,
    /// The build ID.
    pub build_id: BuildId,
    /// The file's path, `[kernel.kallsyms]`, `[vdso]`.
    pub filename: String,
    /// The CPU mode that tells kernel files from user files, see [`crate::record::cpumode`].
    pub cpumode: u16,
}

/// Bytes of header, pid and build ID.
const FIXED: usize = RecordHeader::SIZE + 4 + 24;
/// perf rounds the length of file names up to this.
const NAME_ALIGN: usize = 64;

impl BuildIdEntry {
    /// The entries of a section.
    pub(super) fn decode_all(mut c: Cursor<'_>) -> Result<Vec<Self>> {
        let mut all = Vec::new();
        while !c.rest().is_empty() {
            all.push(Self::decode(&mut c)?);
        }
        Ok(all)
    }

    /// One entry, header included.
    pub(crate) fn decode(c: &mut Cursor<'_>) -> Result<Self> {
        const W: &str = "build ID entry";
        let at = c.at();
        let header = RecordHeader::decode(c.bytes(W)?, c.endian);
        let Some(body) = usize::from(header.size).checked_sub(RecordHeader::SIZE) else {
            return Err(Error::at(ErrorKind::BadSize, W, at));
        };
        let mut c = Cursor::new(c.take(body as u64, W)?, at + RecordHeader::SIZE as u64, c.endian);
        let pid = c.u32(W)? as i32;
        let bytes = c.bytes::<20>(W)?;
        let [size, ..] = c.bytes::<4>(W)?;
        let len =
            if header.misc & misc::BUILD_ID_SIZE != 0 { usize::from(size).min(BuildId::MAX) } else { BuildId::MAX };
        Ok(Self {
            pid,
            build_id: BuildId::new(&bytes[..len]),
            filename: String::from_utf8_lossy(c.name()).into_owned(),
            cpumode: header.cpumode(),
        })
    }

    /// Appends the entry, header included; `kind` is 0 in a section and 67 in a stream.
    pub(crate) fn encode(&self, kind: u32, o: &mut Out<'_>) -> Result<()> {
        let name_len = (self.filename.len() + 1).next_multiple_of(NAME_ALIGN);
        let size = u16::try_from(FIXED + name_len)
            .map_err(|_| Error::new(ErrorKind::TooLong, "file name of a build ID entry"))?;
        let start = o.buf.len();
        o.u32(kind);
        o.u16(self.cpumode & crate::record::cpumode::MASK | misc::BUILD_ID_SIZE);
        o.u16(size);
        o.u32(self.pid as u32);
        o.bytes(&self.build_id.field());
        o.bytes(&[self.build_id.as_bytes().len() as u8, 0, 0, 0]);
        o.name(self.filename.as_bytes());
        o.buf.resize(start + usize::from(size), 0);
        Ok(())
    }
}
