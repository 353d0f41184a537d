//! The containers: what is written is read back, and what is damaged is told with its place.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use std::io::{self, Cursor, Seek, SeekFrom, Write};

use afterimage_perf_data::features::{RawFeature, bit};
use afterimage_perf_data::record::{Record, Sample, kind};
use afterimage_perf_data::{
    Attr, AttrFlags, Endian, ErrorKind, EventDesc, Features, FileReader, FileWriter, Layout, PipeWriter, SampleType,
    journal,
};

fn samples(file: &FileReader<'_>) -> usize {
    file.records().filter(|r| r.as_ref().is_ok_and(|r| r.header.kind == kind::SAMPLE)).count()
}

#[test]
fn written_is_read() {
    let bytes = common::recording();
    let file = FileReader::open(&bytes).unwrap();
    assert!(file.finished() && !file.is_pipe() && file.problems().is_empty());
    assert_eq!(file.events(), common::events());
    assert_eq!(samples(&file), common::SAMPLES);
    let mut expected = common::features();
    expected.private = Some(common::private());
    expected.event_desc.clone_from(&file.features().event_desc);
    assert_eq!(file.features(), &expected);
    assert_eq!(file.features().event_desc.len(), 2);

    // The records are those that were put in, each of its own event.
    let mut expected = common::sideband().into_iter();
    let chain = common::chain();
    let mut seen = 0;
    for raw in file.records() {
        let raw = raw.unwrap();
        match file.decode(&raw).unwrap() {
            Record::Sample(s) => {
                assert_eq!(s, common::sample(seen, &chain));
                assert_eq!(file.event_for(&raw), Some(seen % 4 / 2));
                seen += 1;
            }
            Record::FinishedRound => {}
            other => assert_eq!(Some(other), expected.next()),
        }
    }
    assert_eq!(seen, common::SAMPLES);
    assert_eq!(expected.next(), None);
}

#[test]
fn programs_are_told() {
    let bytes = common::recording();
    let file = FileReader::open(&bytes).unwrap();
    let prog = &file.features().bpf_progs[0];
    assert_eq!((prog.id(), prog.name().as_str()), (9, "probe"));
    assert_eq!(prog.jited_insns(), [0xc3; 8]);
    assert_eq!(prog.jited_ksyms().iter().collect::<Vec<_>>(), [0xffff_ffff_c000_0000]);
    assert_eq!(prog.jited_func_lens(), [8]);
    assert_eq!(prog.prog_tags().collect::<Vec<_>>(), [prog.tag()]);
}

#[test]
fn sections_of_others_are_kept() {
    let mut features = common::features();
    features.extra.push(RawFeature { bit: bit::TRACING_DATA, data: b"tracing".to_vec() });
    features.extra.push(RawFeature { bit: 40, data: b"later".to_vec() });
    let mut writer = FileWriter::create(Cursor::new(Vec::new()), &common::events()).unwrap();
    common::fill(&mut writer);
    let bytes = writer.finish(&features, None).unwrap().into_inner();
    let file = FileReader::open(&bytes).unwrap();
    assert!(file.private().is_none());
    let unknown: Vec<_> =
        file.features().unknown.iter().map(|(bit, range)| (*bit, file.bytes(range).unwrap())).collect();
    assert_eq!(unknown, [(bit::TRACING_DATA, &b"tracing"[..]), (40, b"later")]);
}

/// The private bit of another tool's file means something else.
#[test]
fn private_bit_without_magic() {
    let mut features = Features::default();
    features.extra.push(RawFeature { bit: 200, data: b"something else".to_vec() });
    let writer = FileWriter::create(Cursor::new(Vec::new()), &common::events()).unwrap();
    let bytes = writer.finish(&features, None).unwrap().into_inner();
    let file = FileReader::open(&bytes).unwrap();
    assert!(file.private().is_none() && file.problems().is_empty());
    assert_eq!(file.features().unknown[0].0, 200);
}

/// A recorder that was killed: before the first pass, and after one.
#[test]
fn unfinished() {
    let shared = SharedFile::default();
    let mut writer = FileWriter::create(shared.clone(), &common::events()).unwrap();
    let bytes = shared.contents();
    let file = FileReader::open(&bytes).unwrap();
    assert!(!file.finished());
    assert_eq!((samples(&file), file.events().len()), (0, 2));

    common::fill(&mut writer);
    let chain = common::chain();
    let layout = Layout::new(&common::events()[0].attr, Endian::Little);
    writer.record(&Record::Sample(common::sample(0, &chain)), &layout).unwrap();
    let bytes = shared.contents();
    let file = FileReader::open(&bytes).unwrap();
    assert!(!file.finished());
    assert_eq!(samples(&file), common::SAMPLES);
    assert!(file.records().all(|r| r.is_ok()));
    assert_eq!(writer.bytes_written(), file.data_size() + 8 * 8 + chain.len() as u64);
}

/// Formats of tracepoints are there from the first checkpoint on, whenever the recorder is killed, but for the instant
/// between two writes; a finished file has them once.
#[test]
fn formats_in_front() {
    let formats = b"formats of some tracepoints";
    let shared = SharedFile::default();
    let mut writer = FileWriter::create_with_formats(shared.clone(), &common::events(), Some(formats)).unwrap();
    let chain = common::chain();
    let layout = Layout::new(&common::events()[0].attr, Endian::Little);
    let mut record = Vec::new();
    Record::Sample(common::sample(0, &chain)).encode(&layout, &mut record).unwrap();
    let (mut written, mut seen) = (0, 0);
    shared.watch();
    for records in [1, 3000, 2, 1] {
        for _ in 0..3 {
            writer.write(&record.repeat(records)).unwrap();
        }
        writer.finished_round().unwrap();
        writer.checkpoint().unwrap();
        let moments = shared.moments();
        let torn = moments.iter().filter(|bytes| {
            let file = FileReader::open(bytes).unwrap();
            assert!(!file.finished() && file.problems().is_empty());
            // While the header says nothing yet, records behind the place of the table are found without it.
            assert!(
                samples(&file) == seen
                    || samples(&file) <= 3 * records && seen == 0
                    || samples(&file) == written + 3 * records
            );
            let told = formats_of(&file).is_some_and(|found| found == formats);
            !told && samples(&file) > 0
        });
        // Until the first checkpoint no table is there: two writes of it, and the records.
        let most = if seen == 0 { 3 } else { 1 };
        let torn = torn.count();
        assert!(torn <= most, "{torn} of {} moments of a pass", moments.len());
        written += 3 * records;
        seen = samples(&FileReader::open(&shared.contents()).unwrap());
        assert_eq!(seen, written);
        assert_eq!(formats_of(&FileReader::open(&shared.contents()).unwrap()), Some(formats.to_vec()));
    }
    let mut features = common::features();
    features.extra.push(RawFeature { bit: bit::TRACING_DATA, data: formats.to_vec() });
    writer.finish(&features, Some(&common::private())).unwrap();
    let bytes = shared.contents();
    let file = FileReader::open(&bytes).unwrap();
    assert!(file.finished() && file.problems().is_empty());
    assert_eq!(file.private(), Some(&common::private()));
    assert_eq!((samples(&file), formats_of(&file)), (written, Some(formats.to_vec())));
    assert_eq!(bytes.windows(formats.len()).filter(|w| w == formats).count(), 1);
}

fn formats_of(file: &FileReader<'_>) -> Option<Vec<u8>> {
    let (_, range) = file.features().unknown.iter().find(|(feature, _)| *feature == bit::TRACING_DATA)?;
    file.bytes(range).map(<[u8]>::to_vec)
}

#[test]
fn formats_in_a_stream() {
    let mut features = common::features();
    features.extra.push(RawFeature { bit: bit::TRACING_DATA, data: b"formats of tracepoints".to_vec() });
    let mut writer = PipeWriter::create(Vec::new(), &common::events(), &features).unwrap();
    writer.finished_round().unwrap();
    let bytes = writer.finish(&features).unwrap();
    let file = FileReader::open(&bytes).unwrap();
    assert!(file.problems().is_empty() && file.records().all(|r| r.is_ok()));
    assert_eq!(formats_of(&file).unwrap(), b"formats of tracepoints\0\0");
}

/// perf's own unfinished files say 0 for the size of the records.
#[test]
fn unfinished_by_perf() {
    let mut bytes = common::recording();
    let file = FileReader::open(&bytes).unwrap();
    let end = (file.data_offset() + file.data_size()) as usize;
    bytes.truncate(end - 3);
    bytes[48..56].fill(0);
    // The feature bits may be set already: perf sets them when it begins.
    let mut without_bits = bytes.clone();
    without_bits[72..104].fill(0);
    for bytes in [bytes, without_bits] {
        let file = FileReader::open(&bytes).unwrap();
        assert!(!file.finished() && file.problems().is_empty());
        assert_eq!(samples(&file), common::SAMPLES);
        // The last record, a FINISHED_ROUND of 8 bytes, was cut: that is where the recorder was killed, and no damage.
        let mut records = file.records();
        assert!(records.by_ref().all(|r| r.is_ok()));
        assert_eq!((records.cut(), records.skipped()), (5, 0));
    }
}

/// A finished recording in which nothing happened is no unfinished one.
#[test]
fn finished_without_records() {
    let writer = FileWriter::create(Cursor::new(Vec::new()), &common::events()).unwrap();
    let bytes = writer.finish(&common::features(), Some(&common::private())).unwrap().into_inner();
    let file = FileReader::open(&bytes).unwrap();
    assert!(file.finished() && file.problems().is_empty());
    assert_eq!((file.records().count(), file.features().hostname.as_deref()), (0, Some("host")));
}

#[test]
fn cut_at_every_byte() {
    let bytes = common::recording();
    let whole = FileReader::open(&bytes).unwrap();
    let data_end = (whole.data_offset() + whole.data_size()) as usize;
    assert_eq!(FileReader::open(&[]).unwrap_err().kind(), ErrorKind::Empty);
    for end in 1..bytes.len() {
        let in_the_middle = end > 2000 && end < data_end - 500;
        if in_the_middle && end % 7 != 0 {
            continue;
        }
        let cut = &bytes[..end];
        match FileReader::open(cut) {
            Err(e) => assert!(end < whole.data_offset() as usize, "{end}: {e}"),
            Ok(file) => {
                let count = file.records().count();
                let last_is_error = file.records().last().is_some_and(|r| r.is_err());
                assert_eq!(last_is_error, end < data_end, "{end}");
                assert!(count > 0 || end >= data_end);
                assert!(!file.problems().is_empty(), "{end}: a section must be missing");
            }
        }
    }
}

#[test]
fn records_that_lie() {
    let good = common::recording();
    let file = FileReader::open(&good).unwrap();
    let third = file.records().nth(2).unwrap().unwrap();
    for (size, error) in [(0_u16, ErrorKind::BadSize), (7, ErrorKind::BadSize), (u16::MAX, ErrorKind::Truncated)] {
        let mut bytes = good.clone();
        // The file ends soon after, so that the largest size is too large.
        bytes.truncate(third.offset as usize + 400);
        let at = third.offset as usize + 6;
        bytes[at..at + 2].copy_from_slice(&size.to_le_bytes());
        let file = FileReader::open(&bytes).unwrap();
        let records: Vec<_> = file.records().collect();
        assert!(records.len() > 4, "{} records", records.len());
        let e = records[2].as_ref().unwrap_err();
        assert_eq!((e.kind(), e.offset()), (error, Some(third.offset)));
        // Those behind it are found again, up to where the file was cut.
        let (last, others) = records[3..].split_last().unwrap();
        assert!(others.iter().all(Result::is_ok) && last.is_err());
    }
}

#[test]
fn headers_that_lie() {
    let good = common::recording();
    let with = |at: usize, value: u64| {
        let mut bytes = good.clone();
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        FileReader::open(&bytes).map(|f| (f.records().count(), f.problems().len())).map_err(|e| e.kind())
    };
    let all = FileReader::open(&good).unwrap().records().count();
    assert_eq!(with(0, 0), Err(ErrorKind::NotPerfData));
    assert_eq!(with(8, 103), Err(ErrorKind::BadSize));
    for attr_size in [0, 16, 79, u64::MAX] {
        assert_eq!(with(16, attr_size), Err(ErrorKind::BadSize), "attrs of {attr_size} bytes");
    }
    assert_eq!(with(24, u64::MAX), Err(ErrorKind::BadOffset), "offset of the attrs");
    assert_eq!(with(32, u64::MAX), Err(ErrorKind::Truncated), "size of the attrs");
    assert_eq!(with(32, 0), Err(ErrorKind::BadSize), "no attrs");
    assert_eq!(with(40, u64::MAX), Err(ErrorKind::BadOffset), "offset of the records");
    // Too many records: up to the end of the file, read as records, then an error; and no section can be found.
    assert!(with(48, u64::MAX).is_ok_and(|(_, problems)| problems > 10));
    // Feature bits that promise more than there is.
    assert!(with(72, u64::MAX).is_ok_and(|(records, problems)| records == all && problems > 0));
    // Ids outside the file cost the attribution only.
    let ids = 104 + 4 * 8 + 128;
    assert_eq!(with(ids, u64::MAX), Ok((all, 1)));
}

/// A file as a big-endian machine writes it, with attrs of an old size.
#[test]
fn big_endian_and_old_attrs() {
    for size in [64_u32, 72, 80, 96, 104, 112, 120, 128, 136] {
        for endian in [Endian::Little, Endian::Big] {
            let attr = Attr {
                kind: 1,
                config: 2,
                sample_type: SampleType::IP | SampleType::TID | SampleType::TIME,
                flags: AttrFlags::SAMPLE_ID_ALL | AttrFlags::FREQ,
                ..Attr::default()
            };
            let bytes = foreign_file(&attr, size, endian);
            let file = FileReader::open(&bytes).unwrap();
            assert_eq!((file.endian(), file.finished()), (endian, true));
            assert_eq!(file.events(), [EventDesc::named_by_attr(attr, vec![5])]);
            assert_eq!(file.events()[0].name, "page-faults");
            let raw = file.records().next().unwrap().unwrap();
            let Record::Sample(s) = file.decode(&raw).unwrap() else { panic!("not a sample") };
            assert_eq!((s.ip, s.pid, s.tid, s.time), (Some(1), Some(2), Some(3), Some(4)));
            assert_eq!(file.features().hostname.as_deref(), Some("s390"));
        }
    }
}

fn foreign_file(attr: &Attr, size: u32, endian: Endian) -> Vec<u8> {
    let mut out = Vec::new();
    let words = |out: &mut Vec<u8>, words: &[u64]| words.iter().for_each(|w| out.extend(endian.put_u64(*w)));
    let entry = u64::from(size) + 16;
    let mut record = Vec::new();
    let sample = Sample { ip: Some(1), pid: Some(2), tid: Some(3), time: Some(4), ..Sample::default() };
    Record::Sample(sample).encode(&Layout::new(attr, endian), &mut record).unwrap();
    let data = 112 + entry;
    let magic = u64::from_le_bytes(*b"PERFILE2");
    words(&mut out, &[magic, 104, entry, 112, entry, data, record.len() as u64, 0, 0, 1 << bit::HOSTNAME, 0, 0, 0, 5]);
    attr.encode_as(&mut out, endian, size);
    words(&mut out, &[104, 8]);
    out.extend_from_slice(&record);
    let end = out.len() as u64;
    words(&mut out, &[end + 16, 12]);
    out.extend(endian.put_u32(8));
    out.extend_from_slice(b"s390\0\0\0\0");
    out
}

#[test]
fn first_format_and_not_perf() {
    // The magic of the first tools says nothing about the byte order.
    for endian in [Endian::Little, Endian::Big] {
        let sample_type = SampleType::IP | SampleType::TID | SampleType::TIME;
        let mut bytes = foreign_file(&Attr { kind: 1, sample_type, ..Attr::default() }, 64, endian);
        bytes[..8].copy_from_slice(b"PERFFILE");
        let file = FileReader::open(&bytes).unwrap();
        assert_eq!((file.endian(), samples(&file)), (endian, 1));
    }
    let elf = FileReader::open(b"\x7fELF and so on").unwrap_err();
    assert_eq!(elf.to_string(), "recording: not a perf.data file");
}

#[test]
fn pipes_are_read() {
    let events = common::events();
    let layout = Layout::new(&events[0].attr, Endian::Little);
    let mut writer = PipeWriter::create(Vec::new(), &events, &common::features()).unwrap();
    let mut record = Vec::new();
    let chain = common::chain();
    Record::Sample(common::sample(2, &chain)).encode(&layout, &mut record).unwrap();
    writer.write(&record).unwrap();
    writer.finished_round().unwrap();
    let bytes = writer.finish(&common::features()).unwrap();
    let file = FileReader::open(&bytes).unwrap();
    assert!(file.is_pipe() && file.problems().is_empty());
    assert_eq!(file.events(), events);
    let mut expected = common::features();
    expected.event_desc.clone_from(&file.features().event_desc);
    assert_eq!(file.features(), &expected);
    let raw = file.records().map(Result::unwrap).find(|r| r.header.kind == kind::SAMPLE).unwrap();
    assert_eq!(file.event_for(&raw), Some(1));
    for end in 16..bytes.len() {
        if let Ok(file) = FileReader::open(&bytes[..end]) {
            file.records().for_each(|r| drop(r.map(|r| drop(file.decode(&r)))));
        }
    }
}

/// Ids far apart do not cost memory, and a sample of an unknown id belongs to no event.
#[test]
fn ids_far_apart() {
    let mut events = common::events();
    events[1].ids = vec![u64::MAX - 1, 21];
    let layout = Layout::new(&events[0].attr, Endian::Little);
    let mut writer = FileWriter::create(Cursor::new(Vec::new()), &events).unwrap();
    for id in [11, u64::MAX - 1, 21, 0, 99] {
        let sample = Sample { identifier: Some(id), ..Sample::default() };
        writer.record(&Record::Sample(sample), &layout).unwrap();
    }
    let bytes = writer.finish(&Features::default(), None).unwrap().into_inner();
    let file = FileReader::open(&bytes).unwrap();
    let of: Vec<_> = file.records().map(|r| file.event_for(&r.unwrap())).collect();
    assert_eq!(of, [Some(0), Some(1), Some(1), Some(0), None]);
}

/// A disk that fills up in the middle of a record: what went in whole stays readable, the cause is told.
#[test]
fn full_disk() {
    let chain = common::chain();
    let layout = Layout::new(&common::events()[0].attr, Endian::Little);
    let mut record = Vec::new();
    Record::Sample(common::sample(0, &chain)).encode(&layout, &mut record).unwrap();
    let pass = record.repeat(100);
    for (room, formats) in
        [500, 1000, 20_000, 300_001].into_iter().flat_map(|room| [(room, None), (room, Some(b"12345678"))])
    {
        let disk = SharedFile::default();
        disk.limit(room);
        let formats = formats.map(|f| &f[..]);
        let mut writer = FileWriter::create_with_formats(disk.clone(), &common::events(), formats).unwrap();
        let error = (0..100).find_map(|_| writer.write(&pass).and_then(|()| writer.checkpoint()).err()).unwrap();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert_eq!(error.io_error().unwrap().kind(), io::ErrorKind::StorageFull);
        assert!(writer.checkpoint().is_err());
        let bytes = disk.contents();
        let file = FileReader::open(&bytes).unwrap();
        // A table of 16 bytes has room behind the records, unless it happens to be less than that.
        let whole = (room - file.data_offset() as usize) / record.len();
        assert!(formats.is_none() || whole == 0 || formats_of(&file).as_deref() == formats);
        assert_eq!(file.records().filter(Result::is_ok).count(), whole, "room {room}");
        assert!(writer.finish(&common::features(), None).is_err());
        let bytes = disk.contents();
        assert!(!FileReader::open(&bytes).unwrap().finished());
    }
}

#[test]
fn full_disk_with_room_again() {
    let chain = common::chain();
    let layout = Layout::new(&common::events()[0].attr, Endian::Little);
    let mut record = Vec::new();
    Record::Sample(common::sample(0, &chain)).encode(&layout, &mut record).unwrap();
    let disk = SharedFile::default();
    disk.limit(1000);
    let mut writer = FileWriter::create(disk.clone(), &common::events()).unwrap();
    writer.write(&record.repeat(20)).unwrap();
    assert!(writer.checkpoint().is_err());
    disk.limit(usize::MAX);
    writer.finish(&common::features(), None).unwrap();
    let bytes = disk.contents();
    let file = FileReader::open(&bytes).unwrap();
    assert!(file.finished() && file.problems().is_empty());
    assert_eq!(samples(&file), 20);
}

#[test]
fn large_pieces_are_written_whole() {
    let chain = common::chain();
    let layout = Layout::new(&common::events()[0].attr, Endian::Little);
    let mut record = Vec::new();
    Record::Sample(common::sample(0, &chain)).encode(&layout, &mut record).unwrap();
    let mut writer = FileWriter::create(Cursor::new(Vec::new()), &common::events()).unwrap();
    for n in [1, 10_000, 2, 1000, 3000] {
        writer.write(&record.repeat(n)).unwrap();
    }
    assert_eq!(writer.bytes_written(), 14_003 * record.len() as u64);
    let bytes = writer.finish(&Features::default(), None).unwrap().into_inner();
    assert_eq!(samples(&FileReader::open(&bytes).unwrap()), 14_003);
}

/// A file in memory that others can look at while it is written, with room for so many bytes.
#[derive(Clone, Debug)]
struct SharedFile(std::rc::Rc<std::cell::RefCell<(Cursor<Vec<u8>>, usize)>>, Moments);

/// What the file held after each write, where that is watched.
type Moments = std::rc::Rc<std::cell::RefCell<Option<Vec<Vec<u8>>>>>;

impl Default for SharedFile {
    fn default() -> Self {
        Self(std::rc::Rc::new((Cursor::default(), usize::MAX).into()), Moments::default())
    }
}

impl SharedFile {
    fn contents(&self) -> Vec<u8> {
        self.0.borrow().0.get_ref().clone()
    }

    fn limit(&self, room: usize) {
        self.0.borrow_mut().1 = room;
    }

    fn watch(&self) {
        *self.1.borrow_mut() = Some(Vec::new());
    }

    fn moments(&self) -> Vec<Vec<u8>> {
        self.1.borrow_mut().as_mut().map(std::mem::take).unwrap_or_default()
    }
}

impl Write for SharedFile {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let (file, limit) = &mut *self.0.borrow_mut();
        let room = limit.saturating_sub(file.position() as usize).min(buf.len());
        if room == 0 && !buf.is_empty() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let written = file.write(&buf[..room]);
        if let Some(moments) = &mut *self.1.borrow_mut() {
            moments.push(file.get_ref().clone());
        }
        written
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for SharedFile {
    fn seek(&mut self, pos: SeekFrom) -> io::Result<u64> {
        self.0.borrow_mut().0.seek(pos)
    }
}

/// The journal of a killed recorder may end in half an entry; that is no damage. A wrong byte is.
#[test]
fn journal_of_an_unfinished_file() {
    let mut writer = journal::Writer::create(Cursor::new(Vec::new())).unwrap();
    writer.handlers(&common::private().handlers).unwrap();
    writer.true_counts(0, &[1, 2, 3]).unwrap();
    let mut journal = writer.into_inner().into_inner();
    let mut bytes = common::recording();
    bytes[72..104].fill(0);
    let mut file = FileReader::open(&bytes).unwrap();
    assert!(file.private().is_none());
    file.use_journal(&journal[..journal.len() - 5]).unwrap();
    assert!(file.problems().is_empty());
    let private = file.private().unwrap();
    assert_eq!((&private.handlers, private.true_counts(0)), (&common::private().handlers, None));
    let last = journal.len() - 1;
    journal[last] ^= 1;
    file.use_journal(&journal).unwrap();
    assert_eq!(file.problems()[0].kind(), ErrorKind::Checksum);
    assert!(file.use_journal(b"no journal, but long enough").is_err());
}

/// A journal on a full disk: half an entry is written over by the next one that fits.
#[test]
fn journal_on_a_full_disk() {
    let disk = SharedFile::default();
    let mut writer = journal::Writer::create(disk.clone()).unwrap();
    writer.true_counts(0, &[1, 2]).unwrap();
    disk.limit(disk.contents().len() + 30);
    assert_eq!(writer.true_counts(0, &[3; 20]).unwrap_err().kind(), ErrorKind::Io);
    let read = journal::read(&disk.contents()).unwrap();
    assert_eq!((read.entries, read.damage.map(|e| e.kind())), (1, Some(ErrorKind::Truncated)));
    disk.limit(usize::MAX);
    writer.true_counts(0, &[4; 20]).unwrap();
    assert_eq!(writer.bytes_written(), disk.contents().len() as u64);
    let read = journal::read(&disk.contents()).unwrap();
    assert!(read.damage.is_none());
    let counts: Vec<u64> = [1, 2].into_iter().chain([4; 20]).collect();
    assert_eq!(read.private.true_counts(0), Some(&counts[..]));
}
