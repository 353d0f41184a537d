//! Kernel texts of a recording and their images: kinds 3 and 4 of the private section, and what only a journal holds of
//! BPF programs (kinds 7 and 8). `docs/format.md` describes them.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest, Sha256};

use crate::bytes::{Cursor, Out};
use crate::{Endian, Error, ErrorKind, Result};

/// Texts in one entry of the private section; more go into further entries.
pub(crate) const TEXTS_AN_ENTRY: usize = 4096;
/// Bytes of images in one entry, beside its last image; more go into further entries.
pub(crate) const IMAGE_BYTES_AN_ENTRY: usize = 16 << 20;

/// One kernel text: what it was, where, and from when to when.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TextDesc {
    /// Its number within the recording. A later description of a number replaces an earlier one.
    pub number: u64,
    /// What kind of code it is; docs/format.md lists the words.
    pub kind: String,
    /// The kernel's symbol; none where the text has no symbol.
    pub name: Option<String>,
    /// The kernel's id of the BPF program.
    pub id: Option<u32>,
    /// The BPF program's tag: 16 hex digits.
    pub tag: Option<String>,
    /// Which of the program's functions it is, 0 the main one.
    pub function: Option<u32>,
    /// Kernel address of the first byte.
    #[serde(serialize_with = "write_address", deserialize_with = "read_address")]
    pub address: u64,
    /// True length in bytes, where known.
    pub length: Option<u32>,
    /// Length in bytes as the kernel reported it, where it did.
    pub length_reported: Option<u32>,
    /// When it came, ns on the recording's clock; none: before the recording, or unseen.
    pub born_ns: Option<u64>,
    /// When it went, ns on the recording's clock; none: it was there at the end, or its end was not seen.
    pub gone_ns: Option<u64>,
    /// Who loaded it, where known.
    pub loader: Option<Loader>,
    /// Its bytes, in the order in which they were read.
    pub images: Vec<ImageUse>,
    /// Why there is no image.
    pub reason: Option<String>,
    /// Records were lost while it lived, or do not go together: its name or its times may be wrong.
    pub uncertain: bool,
}

/// Who loaded a text.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Loader {
    /// The process.
    pub pid: u32,
    /// The thread's name.
    pub comm: String,
}

/// Bytes of a text at a time, and how they were got.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImageUse {
    /// Which image.
    pub image: ImageId,
    /// When it was read, ns on the recording's clock.
    pub at_ns: u64,
    /// How it was read; docs/format.md lists the words.
    pub way: String,
    /// Whether nothing else can have been at the address while it was read.
    pub proven: bool,
}

/// Names an image by its contents: the first 16 bytes of their SHA-256. Displays as 32 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ImageId(pub [u8; 16]);

impl ImageId {
    /// The id of these bytes.
    pub fn of(bytes: &[u8]) -> ImageId {
        let hash = Sha256::digest(bytes);
        ImageId(std::array::from_fn(|i| hash[i]))
    }
}

impl fmt::Display for ImageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for ImageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ImageId({self})")
    }
}

impl FromStr for ImageId {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        let bad = || Error::new(ErrorKind::BadValue, "id of an image");
        if s.len() != 32 || !s.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(bad());
        }
        u128::from_str_radix(s, 16).map(|n| ImageId(n.to_be_bytes())).map_err(|_| bad())
    }
}

impl Serialize for ImageId {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ImageId {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(de::Error::custom)
    }
}

fn write_address<S: Serializer>(address: &u64, s: S) -> Result<S::Ok, S::Error> {
    s.collect_str(&format_args!("{address:#x}"))
}

fn read_address<'de, D: Deserializer<'de>>(d: D) -> Result<u64, D::Error> {
    let text = String::deserialize(d)?;
    let digits = text.strip_prefix("0x").filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
    digits.and_then(|digits| u64::from_str_radix(digits, 16).ok()).ok_or_else(|| de::Error::custom("address of a text"))
}

/// By number, each once: of several descriptions of one number the last stays.
pub(crate) fn settle(texts: &mut Vec<TextDesc>) {
    if texts.is_sorted_by(|a, b| a.number < b.number) {
        return;
    }
    texts.sort_by_key(|text| text.number);
    texts.dedup_by(|later, kept| {
        let same = later.number == kept.number;
        if same {
            std::mem::swap(later, kept);
        }
        same
    });
}

/// `{16 bytes id, u32 length, u32 zero, bytes, padding to 8}`, repeated.
pub(crate) fn encode_images<'a>(images: impl IntoIterator<Item = (&'a ImageId, &'a [u8])>) -> Result<Vec<u8>> {
    let mut data = Vec::new();
    let mut o = Out { buf: &mut data, endian: Endian::Little };
    for (id, bytes) in images {
        let len = u32::try_from(bytes.len()).map_err(|_| Error::new(ErrorKind::TooLong, "image of a text"))?;
        o.bytes(&id.0);
        o.u32(len);
        o.u32(0);
        o.bytes(bytes);
        o.pad(0, 8);
    }
    Ok(data)
}

/// Reads what [`encode_images`] wrote; refuses bytes that are not those of their id.
pub(crate) fn decode_images(data: &[u8], into: &mut BTreeMap<ImageId, Vec<u8>>) -> Result<()> {
    const W: &str = "image of a text";
    let mut c = Cursor::new(data, 0, Endian::Little);
    while !c.rest().is_empty() {
        let at = c.at();
        let id = ImageId(c.bytes(W)?);
        let (len, _) = (c.u32(W)?, c.u32(W)?);
        let bytes = c.take(len.into(), W)?;
        c.take(u64::from(len).wrapping_neg() & 7, W)?;
        if ImageId::of(bytes) != id {
            return Err(Error::at(ErrorKind::Checksum, W, at));
        }
        into.insert(id, bytes.to_vec());
    }
    Ok(())
}

/// The images in parts, each small enough for an entry.
pub(crate) fn image_entries(images: &BTreeMap<ImageId, Vec<u8>>) -> Result<Vec<Vec<u8>>> {
    let mut entries = Vec::new();
    let mut part: Vec<(&ImageId, &[u8])> = Vec::new();
    let mut bytes = 0;
    for (id, image) in images {
        part.push((id, image));
        bytes += image.len();
        if bytes >= IMAGE_BYTES_AN_ENTRY {
            entries.push(encode_images(part.drain(..))?);
            bytes = 0;
        }
    }
    if !part.is_empty() {
        entries.push(encode_images(part)?);
    }
    Ok(entries)
}
