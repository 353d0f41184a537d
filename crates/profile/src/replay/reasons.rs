//! Why a thread was off CPU: labels in the raw data of the sample itself, one payload behind the other.

use afterimage_perf_data::AiHdr;

use super::groups;
use crate::said::Said;

/// Each payload begins at a multiple of 8 bytes. Reading ends at the first that is no label.
pub(super) fn read(mut raw: &[u8]) -> Vec<Said<'_>> {
    let mut said = Vec::new();
    while let Some((hdr, one)) = groups::read(raw) {
        if one.key.is_none() {
            break;
        }
        said.push(one);
        let size = usize::from(hdr.size).max(AiHdr::SIZE).next_multiple_of(8);
        raw = raw.get(size..).unwrap_or_default();
    }
    said
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use afterimage_perf_data::LabelPayload;

    use super::*;

    #[test]
    fn labels_stand_one_behind_the_other() {
        let mut raw = Vec::new();
        for (key, bytes) in [(&b"state"[..], &[1, 0, 0, 0][..]), (b"waker", b"sh")] {
            let hdr = AiHdr { version: AiHdr::VERSION, kind: AiHdr::LABEL, handler: 3, ..AiHdr::default() };
            LabelPayload { hdr, type_id: 1, key, bytes }.encode(&mut raw);
            raw.resize(raw.len().next_multiple_of(8), 0);
        }
        let names = |raw: &[u8]| read(raw).iter().map(|said| said.name().unwrap().into_owned()).collect::<Vec<_>>();
        assert_eq!(names(&raw), ["state", "waker"]);
        assert_eq!(read(&raw)[1].bytes, b"sh");
        for cut in 0..raw.len() {
            assert!(read(&raw[..cut]).len() <= 2);
        }
        assert_eq!(names(&[0; 200]), [""; 0]);
    }
}
