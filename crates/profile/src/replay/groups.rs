//! What handlers from objects wrote, put together by the sample that it is of.
//!
//! ```text
//!   sampling ring   ─── sample 7 ─────────────────────── sample 9 ──        A handler may write several records of one sample,
//!   handler ring    ─────────── value 7, label 7 ── label 8 ─────────        chained or not. They come later than it does.
//! ```
//!
//! Records are noted when they are read and looked up when their turn comes. By then the next round has been read, so that
//! all of a sample are known when the first of them, or the sample itself, is handed out; and what has been handed out is
//! forgotten, so that no more is kept than what waits for its turn.
//!
//! Where the kernel gives handlers no time of the sample (before 6.2) it takes the sample's time when it writes it, after
//! the handler. Then the sample follows its records, and is the next on that CPU with their address.

use std::sync::Arc;

use afterimage_perf_data::{AiHdr, LabelPayload, RawRecord, RecordHeader, ValuePayload};
use rustc_hash::FxHashMap;

use crate::said::Said;

/// A sample that something was written of: the event whose handler wrote, the CPU, its number there.
pub(crate) type GroupKey = (usize, u32, u64);

/// What a handler wrote, kept until it goes out. [`read`] reads it.
pub(crate) type Payload = Arc<[u8]>;

/// A record that is kept.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Kept {
    header: RecordHeader,
    bytes: Box<[u8]>,
    offset: u64,
}

impl Kept {
    fn new(raw: &RawRecord<'_>) -> Kept {
        Kept { header: raw.header, bytes: raw.bytes.into(), offset: raw.offset }
    }

    /// The record.
    pub(crate) fn raw(&self) -> RawRecord<'_> {
        RawRecord { header: self.header, bytes: &self.bytes, offset: self.offset }
    }
}

/// What was written of one sample.
#[derive(Debug)]
struct Group {
    time: u64,
    ip: u64,
    /// What was said, and whether it is a label.
    said: Vec<(Payload, bool)>,
    /// Something that was said is no label.
    has_value: bool,
    /// Records that were read and not yet handed out.
    waiting: u32,
    /// The sample itself came by, and took what is here.
    claimed: bool,
    /// It went out as a sample of its own.
    delivered: bool,
}

impl Group {
    /// Whether it says nothing but about a sample that stands elsewhere.
    fn only_labels(&self) -> bool {
        !self.has_value
    }

    fn all(&self) -> Vec<Payload> {
        self.said.iter().map(|(payload, _)| Arc::clone(payload)).collect()
    }
}

/// What becomes of a record whose turn it is.
#[derive(Debug, PartialEq)]
pub(crate) enum Turn {
    /// It stands for a sample of which this is all that was written.
    Stands(Vec<Payload>),
    /// What it says has gone out before, or goes out with the sample itself.
    Done,
    /// It is to be kept until [`Groups::claim`] or [`Groups::passed`] speaks of it.
    Waits,
}

/// What was written and has not gone out yet.
#[derive(Debug, Default)]
pub(crate) struct Groups {
    groups: FxHashMap<GroupKey, Group>,
    by_time: FxHashMap<(usize, u32, u64), GroupKey>,
    /// By event and CPU the last group of labels whose sample may follow, and the first record of it.
    last: FxHashMap<(usize, u32), (GroupKey, Kept)>,
    /// Records in all groups, and the bytes of what they say.
    said: usize,
    bytes: usize,
}

/// What a record here weighs beside one that waits in the queue: its group, its place by time, and itself.
const WEIGHT: usize = 12;

/// Bytes of an entry of the queue.
const ENTRY: usize = 16;

impl Groups {
    /// What is kept, in entries of the queue.
    pub(crate) fn weight(&self) -> usize {
        self.said.saturating_mul(WEIGHT).saturating_add(self.bytes / ENTRY)
    }

    /// A record with this payload was read, in the order of the file. It is of the handlers on `event`.
    pub(crate) fn note(&mut self, event: usize, payload: &[u8]) {
        let Some((hdr, said)) = read(payload) else { return };
        let key = (event, hdr.cpu, hdr.seq);
        let group = self.groups.entry(key).or_insert_with(|| Group {
            time: hdr.time,
            ip: hdr.ip,
            said: Vec::new(),
            has_value: false,
            waiting: 0,
            claimed: false,
            delivered: false,
        });
        group.said.push((payload.into(), said.key.is_some()));
        group.has_value |= said.key.is_none();
        self.said += 1;
        self.bytes += payload.len();
        group.waiting += 1;
        if hdr.time != 0 {
            self.by_time.entry((event, hdr.cpu, hdr.time)).or_insert(key);
        }
    }

    /// It is the turn of a record that was noted, `written` after the sample. `None`: it was not.
    pub(crate) fn turn(
        &mut self,
        event: usize,
        raw: &RawRecord<'_>,
        hdr: &AiHdr,
        written: Option<u64>,
    ) -> Option<Turn> {
        let key = (event, hdr.cpu, hdr.seq);
        let group = self.groups.get_mut(&key)?;
        group.waiting = group.waiting.saturating_sub(1);
        let only_labels = group.only_labels();
        // The sample has had its turn, but for one without a time, or of the same.
        let may_follow = group.time == 0 || written.is_none_or(|written| written <= group.time);
        let turn = if group.delivered || (group.claimed && only_labels) {
            Turn::Done
        } else if only_labels && may_follow {
            Turn::Waits
        } else {
            group.delivered = true;
            Turn::Stands(group.all())
        };
        if may_follow && !group.claimed {
            // One that waits already stays with its first record.
            let place = (event, hdr.cpu);
            if self.last.get(&place).is_none_or(|(last, _)| *last != key) {
                self.last.insert(place, (key, Kept::new(raw)));
            }
        } else if group.waiting == 0 {
            self.forget(key);
        }
        Some(turn)
    }

    /// The labels of an ordinary sample. Values stand where they were written.
    pub(crate) fn claim(&mut self, event: usize, cpu: u32, time: Option<u64>, ip: u64) -> Vec<Payload> {
        let by_time = time.and_then(|time| self.by_time.get(&(event, cpu, time)));
        let follows = |key: &GroupKey| {
            self.groups.get(key).is_some_and(|group| (group.time == 0 && group.ip == ip) || Some(group.time) == time)
        };
        let last = self.last.get(&(event, cpu)).map(|(key, _)| key);
        let Some(key) = by_time.or(last.filter(|key| follows(key))).copied() else { return Vec::new() };
        if self.last.get(&(event, cpu)).is_some_and(|(last, _)| *last == key) {
            self.last.remove(&(event, cpu));
        }
        let Some(group) = self.groups.get_mut(&key) else { return Vec::new() };
        group.claimed = true;
        let labels = group.said.iter().filter(|(_, is_label)| *is_label);
        let said = labels.map(|(payload, _)| Arc::clone(payload)).collect();
        if group.waiting == 0 {
            self.forget(key);
        }
        said
    }

    /// Something else of the event is about to go out on the CPU: the group of labels that waited there for its sample has
    /// none. `but` is the group that goes out.
    pub(crate) fn passed(&mut self, event: usize, cpu: u32, but: Option<GroupKey>) -> Option<(Kept, Vec<Payload>)> {
        let (key, _) = self.last.get(&(event, cpu)).filter(|(key, _)| Some(*key) != but)?;
        let key = *key;
        let (_, raw) = self.last.remove(&(event, cpu))?;
        self.alone(key).map(|said| (raw, said))
    }

    /// The recording has ended: the groups of labels that still wait for their samples, by event and CPU.
    pub(crate) fn rest(&mut self) -> Vec<(usize, Kept, Vec<Payload>)> {
        let mut last: Vec<_> = std::mem::take(&mut self.last).into_iter().collect();
        last.sort_by_key(|(place, _)| *place);
        last.into_iter().filter_map(|((event, _), (key, raw))| Some((event, raw, self.alone(key)?))).collect()
    }

    /// Takes a group for a sample of its own; `None` where it went out already.
    fn alone(&mut self, key: GroupKey) -> Option<Vec<Payload>> {
        let group = self.groups.get_mut(&key)?;
        let said = (!group.delivered && !group.claimed).then(|| group.all());
        group.delivered = true;
        if group.waiting == 0 {
            self.forget(key);
        }
        said
    }

    fn forget(&mut self, key: GroupKey) {
        let Some(group) = self.groups.remove(&key) else { return };
        self.said = self.said.saturating_sub(group.said.len());
        let bytes: usize = group.said.iter().map(|(payload, _)| payload.len()).sum();
        self.bytes = self.bytes.saturating_sub(bytes);
        let (event, cpu, _) = key;
        let time = (event, cpu, group.time);
        if self.by_time.get(&time) == Some(&key) {
            self.by_time.remove(&time);
        }
    }

    /// How many groups there are.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.groups.len().max(self.by_time.len()).max(self.last.len())
    }
}

/// A payload of a handler from an object, also one whose contents are damaged.
pub(crate) fn read(payload: &[u8]) -> Option<(AiHdr, Said<'_>)> {
    let hdr = AiHdr::decode(payload).ok()?;
    let damaged = Said {
        handler: hdr.handler,
        generation: hdr.generation,
        key: (hdr.kind == AiHdr::LABEL).then_some(&[][..]),
        type_id: None,
        bytes: payload.get(AiHdr::SIZE..).unwrap_or_default(),
    };
    let said = match hdr.kind {
        AiHdr::VALUE => match ValuePayload::decode(payload) {
            Ok(value) => Said { type_id: Some(value.type_id), bytes: value.bytes, ..damaged },
            Err(_) => damaged,
        },
        AiHdr::LABEL => match LabelPayload::decode(payload) {
            Ok(label) => Said { key: Some(label.key), type_id: Some(label.type_id), bytes: label.bytes, ..damaged },
            Err(_) => damaged,
        },
        _ => return None,
    };
    Some((hdr, said))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use afterimage_perf_data::{Endian, RawRecord};

    use super::*;

    fn payload(kind: u16, time: u64, seq: u64) -> Vec<u8> {
        let hdr = AiHdr { version: 1, kind, cpu: 3, time, ip: 7, seq, ..AiHdr::default() };
        let mut out = Vec::new();
        match kind {
            AiHdr::VALUE => ValuePayload { hdr, type_id: 1, bytes: b"v" }.encode(&mut out),
            _ => LabelPayload { hdr, type_id: 1, key: b"k", bytes: b"v" }.encode(&mut out),
        }
        out
    }

    /// What has had its turn is forgotten, whether its sample came or not.
    #[test]
    fn nothing_is_kept_for_ever() {
        let record = [9, 0, 0, 0, 0, 0, 8, 0];
        let raw = RawRecord::parse(&record, 0, Endian::Little).unwrap();
        for (kind, time) in [(AiHdr::LABEL, 0), (AiHdr::LABEL, 1), (AiHdr::VALUE, 0), (AiHdr::VALUE, 1)] {
            let payloads: Vec<Vec<u8>> = (1..1000).map(|seq| payload(kind, time * seq, seq)).collect();
            let mut groups = Groups::default();
            for (seq, payload) in (1..).zip(&payloads) {
                groups.note(0, payload);
                groups.note(0, payload);
                let (hdr, _) = read(payload).unwrap();
                // Of a third the sample comes by: before it where the time is known, else behind it.
                let sample = seq % 3 == 0;
                let labels = if kind == AiHdr::LABEL { 2 } else { 0 };
                if sample && time != 0 {
                    assert_eq!(groups.claim(0, 3, Some(seq), 7).len(), labels);
                }
                for _ in 0..2 {
                    groups.passed(0, 3, Some((0, 3, seq)));
                    assert!(groups.turn(0, &raw, &hdr, Some(seq + 1)).is_some());
                }
                if sample && time == 0 {
                    assert_eq!(groups.claim(0, 3, Some(seq), 7).len(), labels);
                }
                assert!(groups.len() <= 2, "{} of kind {kind} at {seq}", groups.len());
                let bytes = 2 * payload.len() / ENTRY * groups.groups.len();
                assert!(groups.weight().abs_diff(WEIGHT * 2 * groups.groups.len() + bytes) < 4);
            }
            groups.rest();
            assert_eq!((groups.len(), groups.weight()), (0, 0), "kind {kind}");
        }
    }
}
