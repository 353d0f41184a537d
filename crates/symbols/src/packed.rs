//! Bytes that are packed inside of a file: how much of them is believed.
//!
//! The files are anybody's and are read as root, so a length in one decides nothing before it was held against these:
//! what is plausible for so many packed bytes, and what the caller takes at most. The decoders run no further than that,
//! whatever a stream goes on to say, and a block of a stream is checked before it is unpacked (by libzstd, miniz and
//! xz4rust). What is beyond is [`ErrorKind::Limit`], and costs what stands in it and no more.

use std::io::{self, Read};

use object::read::{CompressedData, CompressionFormat};

use crate::error::{Error, ErrorKind, damaged};

/// So many bytes may come of one packed byte. Debug sections pack to a third, tables of symbols to a tenth; one that is the
/// same byte over and over packs to a thousandth, and says nothing.
const GROWTH: u64 = 200;
/// So many may come of any number.
const ANYWAY: u64 = 1 << 20;

/// The smallest and the largest window of a zstd stream, as powers of two: what programs of today choose for small contents,
/// and for those of any size.
const WINDOWS: std::ops::RangeInclusive<u32> = 23..=27;

/// The most bytes that are believed to come of so many packed ones.
pub(crate) fn plausible(packed: u64) -> u64 {
    packed.saturating_mul(GROWTH).saturating_add(ANYWAY)
}

/// What `section` holds, unpacked, if that is no more than `most`; what is not packed is bounded alike.
///
/// # Errors
/// [`ErrorKind::Limit`] for more, or more than is plausible; [`ErrorKind::Damaged`] for what cannot be unpacked, or comes to
/// another length than it says.
pub(crate) fn unpack(section: &CompressedData<'_>, most: u64, what: &'static str) -> Result<Vec<u8>, Error> {
    let (packed, stated) = (section.data, section.uncompressed_size);
    let limit = match section.format {
        CompressionFormat::None => most,
        _ => most.min(plausible(packed.len() as u64)),
    };
    if stated > limit {
        return Err(Error::new(ErrorKind::Limit, what));
    }
    let bytes = match section.format {
        CompressionFormat::None => return Ok(packed.to_vec()),
        CompressionFormat::Zlib => take(flate2::read::ZlibDecoder::new(packed), stated),
        CompressionFormat::Zstandard => zstd(packed, stated),
        _ => return Err(Error::new(ErrorKind::Damaged, what)),
    };
    let bytes = bytes.map_err(damaged(what))?;
    if bytes.len() as u64 != stated {
        return Err(Error::new(ErrorKind::Damaged, what));
    }
    Ok(bytes)
}

fn zstd(packed: &[u8], stated: u64) -> io::Result<Vec<u8>> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(packed)?;
    let window = u64::BITS - stated.leading_zeros();
    decoder.window_log_max(window.clamp(*WINDOWS.start(), *WINDOWS.end()))?;
    take(decoder, stated)
}

/// At most one byte more than was stated.
fn take(from: impl Read, stated: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(stated.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use std::io::Write;

    const MOST: u64 = 64 << 20;

    fn section(format: CompressionFormat, data: &[u8], uncompressed_size: u64) -> CompressedData<'_> {
        CompressedData { format, data, uncompressed_size }
    }

    fn zlib(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn kind(result: Result<Vec<u8>, Error>) -> ErrorKind {
        result.unwrap_err().kind()
    }

    /// Bytes of which few follow from those before.
    fn content(len: usize) -> Vec<u8> {
        let next = |x: &u64| Some(x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
        std::iter::successors(Some(7), next).map(|x| (x >> 60) as u8).take(len).collect()
    }

    #[test]
    fn what_was_packed_comes_out() {
        for len in [0, 1, 4096, 3 << 20] {
            let bytes = content(len);
            let frames = [&bytes[..len / 3], &bytes[len / 3..]].map(|part| zstd::bulk::compress(part, 3).unwrap());
            for (format, packed) in [
                (CompressionFormat::None, bytes.clone()),
                (CompressionFormat::Zlib, zlib(&bytes)),
                (CompressionFormat::Zstandard, zstd::bulk::compress(&bytes, 19).unwrap()),
                (CompressionFormat::Zstandard, frames.concat()),
            ] {
                let unpacked = unpack(&section(format, &packed, len as u64), MOST, "test").unwrap();
                assert!(unpacked == bytes, "{format:?} {len}");
            }
        }
    }

    #[test]
    fn more_than_is_plausible_is_not_unpacked() {
        let long = vec![0; 48 << 20];
        let packed = [
            (CompressionFormat::Zlib, zlib(&long)),
            (CompressionFormat::Zstandard, zstd::bulk::compress(&long, 3).unwrap()),
        ];
        for (format, packed) in &packed {
            assert!(plausible(packed.len() as u64) < long.len() as u64);
            assert_eq!(kind(unpack(&section(*format, packed, long.len() as u64), MOST, "test")), ErrorKind::Limit);
            // A length that is too small is no way around that: what comes out is cut there, and refused.
            assert_eq!(kind(unpack(&section(*format, packed, 1000), MOST, "test")), ErrorKind::Damaged);
        }
        let few = zlib(&[1; 100]);
        assert_eq!(kind(unpack(&section(CompressionFormat::Zlib, &few, u64::MAX), u64::MAX, "test")), ErrorKind::Limit);
        assert_eq!(kind(unpack(&section(CompressionFormat::Zlib, &few, 101), MOST, "test")), ErrorKind::Damaged);
        assert_eq!(kind(unpack(&section(CompressionFormat::Zlib, &few, 100), 99, "test")), ErrorKind::Limit);
        assert_eq!(
            kind(unpack(&section(CompressionFormat::None, &few, few.len() as u64), 9, "test")),
            ErrorKind::Limit
        );
    }

    /// The copies that a block of zstd tells of may come to gigabytes, where a block is of 128 KiB at most.
    #[test]
    fn a_block_is_no_longer_than_blocks_are() {
        let bomb = block_bomb();
        assert!(bomb.len() < 1 << 17);
        let found = unpack(&section(CompressionFormat::Zstandard, &bomb, plausible(bomb.len() as u64)), MOST, "test");
        assert_eq!(kind(found), ErrorKind::Damaged);
    }

    /// A frame of one block: 20,000 literals and as many sequences, each one literal and then the longest match (code 52: 65,539
    /// bytes and 16 bits more) of the byte before. RFC 8878, 3.1.1.
    fn block_bomb() -> Vec<u8> {
        const SEQUENCES: u32 = 20_000;
        // Literals: one byte repeated, their number in 20 bits.
        let mut block = (SEQUENCES << 4 | 3 << 2 | 1).to_le_bytes()[..3].to_vec();
        block.push(b'x');
        // The number of sequences in two bytes; a single code for each of the three tables: a literal, the last offset, the match.
        block.extend([0x80 | (SEQUENCES >> 8) as u8, SEQUENCES as u8, 0b0101_0100, 1, 0, 52]);
        // The bits beyond the codes, read from the end; the last set one is where they begin.
        block.extend(vec![0xff; SEQUENCES as usize * 2]);
        block.push(1);
        let header = (block.len() as u32) << 3 | 2 << 1 | 1;
        // Magic, no content size, a window of 1 MiB.
        let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 10 << 3];
        frame.extend(&header.to_le_bytes()[..3]);
        frame.extend(block);
        frame
    }
}
