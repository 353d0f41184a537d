//! Call chains of every form: the text, which remembers parts of them, has the addresses that the objects have, which are
//! made one by one.

use std::fs::File;
use std::path::Path;

use afterimage_perf_data::context::{GUEST_USER, KERNEL, USER, USER_DEFERRED};
use afterimage_perf_data::record::{FileId, Mmap2, cpumode};
use afterimage_perf_data::{
    Callchain, Endian, EventDesc, Features, FileWriter, Layout, Record, Sample, SampleId, SampleType,
};
use serde_json::Value;

use crate::common::{file, folder, text, word};
use crate::hand::{bytes, raw_event, sample};

const fn k(nth: u64) -> u64 {
    0xffff_ffff_8100_0000 + 16 * nth
}

/// Mapped, at the offset in the file that is its address.
const fn u(nth: u64) -> u64 {
    0x40_1000 + 16 * nth
}

/// Of the usual form and of others; the last address of one of them is mapped nowhere.
const CHAINS: [&[u64]; 19] = [
    &[KERNEL, k(0), k(1), k(2), USER, u(0), u(1), u(2)],
    &[KERNEL, k(0), k(1), k(2)],
    &[USER, u(0), u(1), u(2)],
    &[USER, u(0), u(1), 0x99_0000],
    &[KERNEL, k(3), USER_DEFERRED, 7],
    &[],
    &[KERNEL],
    &[USER],
    &[k(0), k(1)],
    &[u(0), u(1)],
    &[KERNEL, USER, u(0), u(1)],
    &[KERNEL, k(0), USER],
    &[KERNEL, k(0), USER, u(0), GUEST_USER, u(1), u(2)],
    &[KERNEL, k(0), GUEST_USER, u(1), u(2)],
    &[USER, u(0), KERNEL, k(0), USER, u(1)],
    &[USER, u(0), USER_DEFERRED, 3],
    &[KERNEL, k(0), KERNEL, k(1)],
    &[USER, u(0), USER, u(1), u(2)],
    &[KERNEL, k(0), USER, u(0), USER_DEFERRED, 3, USER, u(1)],
];

/// Each of them again and again, in each mode.
fn write(path: &Path) -> usize {
    let attr = raw_event(SampleType::CALLCHAIN);
    let layout = Layout::new(&attr, Endian::Little);
    let events = [EventDesc { attr, ids: Vec::new(), name: "made".to_owned() }];
    let mut writer = FileWriter::create(File::create(path).unwrap(), &events).unwrap();
    let map = Mmap2 {
        pid: 7,
        tid: 7,
        addr: 0x40_0000,
        len: 0x1_0000,
        pgoff: 0x40_0000,
        file: FileId::Inode { maj: 8, min: 1, ino: 4, generation: 0 },
        prot: 5,
        flags: 2,
        filename: b"/nonexistent/program",
        misc: cpumode::USER,
        id: SampleId { pid: Some(7), tid: Some(7), time: Some(1), ..SampleId::default() },
    };
    writer.record(&Record::Mmap2(map), &layout).unwrap();
    let mut samples = 0;
    for _ in 0..4 {
        for chain in CHAINS {
            for misc in [0, cpumode::KERNEL, cpumode::USER, cpumode::HYPERVISOR, cpumode::GUEST_USER] {
                // The sampled address is the first of most chains.
                let ip = if misc == cpumode::KERNEL { k(0) } else { u(0) };
                let words = bytes(chain);
                let callchain = Some(Callchain::new(&words, Endian::Little));
                let sample = Sample { misc, ip: Some(ip), callchain, ..sample(samples) };
                writer.record(&Record::Sample(sample), &layout).unwrap();
                samples += 1;
            }
        }
    }
    writer.finish(&Features { arch: Some("x86_64".to_owned()), ..Features::default() }, None).unwrap();
    samples as usize
}

fn address(text: &str) -> u64 {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).unwrap()
}

/// The addresses of each sample's chain, as text.
fn in_text(path: &Path, more: &[&str]) -> Vec<Vec<u64>> {
    let text = text(&[&["script", "-i", word(path), "-F", "time,ip"], more].concat());
    let of_sample = |lines: &str| -> Vec<u64> {
        lines.lines().filter_map(|line| line.strip_prefix('\t')).map(str::trim).map(address).collect()
    };
    text.split_terminator("\n\n").map(of_sample).collect()
}

/// The same of the objects.
fn in_objects(path: &Path, more: &[&str]) -> Vec<Vec<u64>> {
    let text = text(&[&["script", "--json", "-i", word(path)], more].concat());
    let of_sample = |line: &str| -> Vec<u64> {
        let object: Value = serde_json::from_str(line).unwrap();
        let chain = object["callchain"].as_array().unwrap();
        chain.iter().map(|frame| address(frame["ip"].as_str().unwrap())).collect()
    };
    text.lines().map(of_sample).collect()
}

#[test]
fn parts_that_come_again_are_what_they_were() {
    let folder = folder();
    let path = file(&folder, "chains");
    let samples = write(&path);
    let whole = in_objects(&path, &[]);
    assert_eq!(whole.len(), samples);
    let deepest = whole.iter().map(Vec::len).max().unwrap();
    assert_eq!(deepest, 7, "a sampled address in front of six");
    assert!(in_text(&path, &[]) == whole);
    for most in 0..=deepest {
        let most_word = most.to_string();
        let short: Vec<Vec<u64>> = whole.iter().map(|chain| chain.iter().copied().take(most).collect()).collect();
        assert!(in_objects(&path, &["--max-stack", &most_word]) == short, "{most}");
        let ours = in_text(&path, &["--max-stack", &most_word]);
        let differs = ours.iter().zip(&short).position(|(ours, short)| ours != short);
        assert!(ours == short, "{most}: sample {differs:?} of {}, {}", ours.len(), short.len());
    }
}
