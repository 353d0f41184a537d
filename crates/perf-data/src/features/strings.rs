//! Strings of feature sections: a u32 length, then that many bytes with a NUL among them.

use crate::Result;
use crate::bytes::{Cursor, Out, until_nul};

/// perf rounds the length up to this.
const ALIGN: usize = 64;

pub(super) fn get(c: &mut Cursor<'_>, what: &'static str) -> Result<String> {
    let len = c.u32(what)?;
    let bytes = c.take(len.into(), what)?;
    Ok(String::from_utf8_lossy(until_nul(bytes)).into_owned())
}

/// `u32 n`, then `n` strings.
pub(super) fn get_list(c: &mut Cursor<'_>, what: &'static str) -> Result<Vec<String>> {
    let n = c.u32(what)?;
    (0..n).map(|_| get(c, what)).collect()
}

pub(super) fn put(o: &mut Out<'_>, s: &str) {
    let len = (s.len() + 1).next_multiple_of(ALIGN);
    o.u32(len as u32);
    let start = o.buf.len();
    o.name(s.as_bytes());
    o.buf.resize(start + len, 0);
}

pub(super) fn put_list<S: AsRef<str>>(o: &mut Out<'_>, list: &[S]) {
    o.u32(list.len() as u32);
    list.iter().for_each(|s| put(o, s.as_ref()));
}
