//! `.gnu_debugdata`: a small ELF object with a symbol table, compressed by xz, inside a stripped one.
//!
//! The decoder is pure Rust and runs over foreign bytes as root, so its dictionary and its output are bounded here.

use std::io::Read;

use xz4rust::{XzDecoder, XzReader};

use crate::error::{Error, ErrorKind};
use crate::packed;

/// Largest dictionary that is granted. `xz -9` uses 64 MiB.
const MAX_DICTIONARY: usize = 64 << 20;
/// Where the dictionary begins; it grows as the stream asks for more.
const FIRST_DICTIONARY: usize = 1 << 16;
/// Largest object that is unpacked. The symbols of a browser are about 100 MiB.
pub(super) const MAX_OBJECT: u64 = 256 << 20;
const STEP: std::num::NonZeroUsize = std::num::NonZeroUsize::MIN.saturating_add((1 << 16) - 1);

/// The object inside.
///
/// # Errors
/// [`ErrorKind::Limit`] when it is larger than is taken, or than is plausible for so few bytes; [`ErrorKind::Damaged`].
pub(super) fn unpack(packed: &[u8]) -> Result<Vec<u8>, Error> {
    let most = MAX_OBJECT.min(packed::plausible(packed.len() as u64));
    let decoder = XzDecoder::in_heap_with_alloc_dict_size(FIRST_DICTIONARY, MAX_DICTIONARY);
    let reader = XzReader::new_with_buffer_size_and_decoder(std::io::Cursor::new(packed.to_vec()), STEP, decoder);
    let mut object = Vec::new();
    let what = ".gnu_debugdata";
    reader.take(most + 1).read_to_end(&mut object).map_err(crate::error::damaged(what))?;
    if object.len() as u64 > most {
        return Err(Error::new(ErrorKind::Limit, what));
    }
    Ok(object)
}
