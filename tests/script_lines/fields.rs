//! Fields that only some hardware gives.

use afterimage_perf_data::attr::BRANCH_HW_INDEX;
use afterimage_perf_data::record::{BranchStack, ReadValues, Regs, StackUser};
use afterimage_perf_data::{Attr, Callchain, Endian, ReadFormat, Sample, SampleType, Words, context};
use afterimage_testkit::{Need, has};

use crate::common::{file, folder, text, word};
use crate::compare::{By, lines, perfs};
use crate::hand::{bytes, full, raw_event, sample, write, write_with_ids};

/// The lines of perf for these samples and fields.
fn compare<'s>(attr: Attr, samples: &[Sample<'s>], fields: &[&str]) {
    let folder = folder();
    let path = file(&folder, "made");
    write(&path, "x86_64", attr, samples.iter().copied());
    for fields in fields {
        let options = if fields.is_empty() { &[][..] } else { &["-F", fields] };
        let compared = lines(By::Name, &path, options, &[]);
        assert!(compared.as_ref().is_ok_and(|lines| *lines >= samples.len()), "{fields}: {compared:?}");
    }
}

#[test]
fn data_sources_have_the_words_of_perf() {
    if !has("data_sources_have_the_words_of_perf", &[Need::Perf]) {
        return;
    }
    let (lvl, snoop, lock, tlb, number, remote, snoopx, blocked, hops) = (5, 19, 24, 26, 33, 37, 38, 40, 43);
    // Every bit, but for numbers of levels and hops that perf 6.1 has no names or other names for.
    let mut words: Vec<u64> = (0..33).chain([37, 38, 39, 40, 41, 42, 46, 63]).map(|bit| 1 << bit).collect();
    words.extend([1, 2, 3, 4, 7, 9, 10, 11, 12, 13, 14, 15].map(|level| level << number));
    words.extend((1..=4).map(|count| count << hops));
    words.extend([0, 6, 0x1f, 0x118_6810_0242, 0x102_6810_0142, 0x102_6a10_0142]);
    words.extend([0x2a << lvl, 0x2c << lvl | 3 << number, 0x102 << lvl | 1 << remote, 3 << lvl, 14 << lvl]);
    words.extend([2 << lvl | 1 << number | 1 << remote | 2 << hops, 1 << hops | 15 << number, 9 << lvl]);
    words.extend([6 << snoop, 4 << snoop | 1 << snoopx, 3 << lock, 0xe << tlb, 0x32 << tlb, 6 << tlb]);
    words.extend([3 << blocked, 6 << blocked, 7 << blocked]);
    let attr = raw_event(SampleType::ADDR | SampleType::DATA_SRC);
    let made = |(nth, word)| Sample { data_src: Some(word), addr: Some(0x7f00_0000_0000 + nth), ..sample(nth) };
    let samples: Vec<_> = (0..).zip(words).map(made).collect();
    compare(attr, &samples, &["", "data_src", "comm,tid,time,event,addr,data_src,ip"]);
}

#[test]
fn weights_and_sizes_of_pages() {
    if !has("weights_and_sizes_of_pages", &[Need::Perf]) {
        return;
    }
    let words = [0, 77, 1 << 32 | 5, 0x1234_5678_1234_5678, u64::MAX];
    for (bit, fields) in [
        (SampleType::WEIGHT, &["", "event,weight,ip", "weight"][..]),
        (SampleType::WEIGHT_STRUCT, &["", "event,weight,ins_lat,ip", "ins_lat"]),
    ] {
        let samples: Vec<_> = (0..).zip(words).map(|(n, w)| Sample { weight: Some(w), ..sample(n) }).collect();
        compare(raw_event(bit), &samples, fields);
    }
    let sizes = [0, 1, 512, 1000, 1024, 1536, 3000, 4096, 65536, 2 << 20, 1 << 30, 1 << 40, 5 << 60];
    let bits = SampleType::PHYS_ADDR | SampleType::DATA_PAGE_SIZE | SampleType::CODE_PAGE_SIZE;
    let made = |(nth, size)| Sample {
        phys_addr: Some(size | nth),
        data_page_size: Some(size),
        code_page_size: Some(size / 2),
        ..sample(nth)
    };
    let samples: Vec<_> = (0..).zip(sizes).map(made).collect();
    compare(raw_event(bits), &samples, &["", "phys_addr", "event,ip,data_page_size", "ip,phys_addr,code_page_size"]);
}

/// Branches of every kind, with every flag.
fn branches() -> Vec<u64> {
    let mut flags: Vec<u64> = vec![0, 1, 2, 3, 4, 8, 0xf_fff0, 0xf_fff2];
    flags.extend((0..16).map(|kind| 2 | kind << 20));
    flags.extend((0..8).map(|new| 2 | 15 << 20 | new << 26));
    flags.extend((0..8).map(|privilege| 1 | privilege << 30 | 3 << 24));
    let kernel = 0xffff_ffff_8100_0000;
    let place = |nth: u64| if nth % 3 == 0 { kernel + nth } else { 0x40_2000 + nth };
    (0..).zip(flags).flat_map(|(nth, flags)| [place(nth), place(nth + 1), flags]).collect()
}

#[test]
fn last_branches() {
    if !has("last_branches", &[Need::Perf]) {
        return;
    }
    let all = bytes(&branches());
    for index in [None, Some(5)] {
        let stack = |bytes| BranchStack { hw_index: index, entries: Words::new(bytes, Endian::Little), counters: None };
        let branch_sample_type = if index.is_some() { 8 | BRANCH_HW_INDEX } else { 8 };
        let attr = Attr { branch_sample_type, ..raw_event(SampleType::BRANCH_STACK) };
        let samples = [&all[..], &all[..24], &all[..0]];
        let samples: Vec<_> =
            (0..).zip(samples).map(|(nth, bytes)| Sample { branch_stack: Some(stack(bytes)), ..sample(nth) }).collect();
        let fields = ["", "event,brstack", "event,ip,brstack", "brstacksym", "ip,sym,brstacksym"];
        compare(attr, &samples, &fields);
    }
}

/// The places of all fields in a line, with a call chain and without.
#[test]
fn all_fields_at_once() {
    if !has("all_fields_at_once", &[Need::Perf]) {
        return;
    }
    let (branches, registers) = (bytes(&branches()[..9]), bytes(&[11, 12, 13]));
    let chain = bytes(&[context::USER, 0x40_1000, 0x40_2000, context::KERNEL, 0xffff_ffff_8100_0000]);
    let regs = Regs { abi: 2, values: Words::new(&registers, Endian::Little) };
    for chained in [false, true] {
        use SampleType as S;
        let more = S::ADDR | S::CPU | S::PERIOD | S::RAW | S::BRANCH_STACK | S::REGS_USER | S::STACK_USER;
        let most = S::DATA_SRC | S::TRANSACTION | S::REGS_INTR | S::PHYS_ADDR | S::CGROUP | S::WEIGHT_STRUCT;
        let rest = S::DATA_PAGE_SIZE | S::CODE_PAGE_SIZE | if chained { S::CALLCHAIN } else { S::empty() };
        let attr = Attr {
            branch_sample_type: 8,
            sample_regs_user: 7,
            sample_regs_intr: 7,
            sample_stack_user: 64,
            ..raw_event(more | most | rest)
        };
        let made = |nth| Sample {
            callchain: Some(Callchain::new(&chain, Endian::Little)),
            branch_stack: Some(BranchStack {
                entries: Words::new(&branches, Endian::Little),
                ..BranchStack::default()
            }),
            ..full(nth, regs)
        };
        let samples = [made(0), made(1)];
        let before = "comm,pid,tid,cpu,time,period,event,addr,data_src,weight,ins_lat,ip";
        let behind = "iregs,uregs,brstack,phys_addr,data_page_size,code_page_size";
        compare(attr, &samples, &["-dso", &format!("{before},{behind}"), behind, &format!("ip,sym,{behind}")]);
    }
}

/// perf takes each number above -4096 in a chain for a marker, and throws the whole chain away if it is none that it knows: walks
/// by frame pointers end in such numbers where there are no frames. Here the addresses before it stay.
#[test]
fn chains_with_numbers_that_are_no_markers() {
    if !has("chains_with_numbers_that_are_no_markers", &[Need::Perf]) {
        return;
    }
    let folder = folder();
    let path = file(&folder, "made");
    let chain = bytes(&[context::USER, 0x40_1000, 3, u64::MAX]);
    let chained = Sample { callchain: Some(Callchain::new(&chain, Endian::Little)), ..sample(0) };
    write(&path, "x86_64", raw_event(SampleType::CALLCHAIN), [chained]);
    let theirs = perfs(By::Name, &path, &["script", "-F", "event,ip"]);
    assert_eq!(theirs.as_deref(), Some("made: \n\n"));
    let ours = text(&["script", "-i", word(&path), "-F", "event,ip"]);
    assert_eq!(ours, format!("made: \n\t{:>16}\n\t{:>16}\n\n", "401000", "3"));
}

/// Fields that perf 6.1 has no name for.
#[test]
fn fields_that_perf_does_not_print() {
    use ReadFormat as R;
    let folder = folder();
    let path = file(&folder, "made");
    let printed = |fields: &str| text(&["script", "-i", word(&path), "-F", fields]);
    for (format, words, says) in [
        (R::empty(), &[5][..], " read:5\n"),
        (R::TOTAL_TIME_ENABLED | R::TOTAL_TIME_RUNNING, &[5, 70, 60], " read:5 enabled:70 running:60\n"),
        (R::GROUP | R::ID | R::TOTAL_TIME_ENABLED, &[2, 70, 5, 1, 6, 1], " read:1=5,1=6 enabled:70\n"),
        (R::LOST | R::ID, &[5, 1, 2], " read:1=5(lost:2)\n"),
    ] {
        let words = bytes(words);
        let read = ReadValues::new(format, Words::new(&words, Endian::Little)).unwrap();
        let attr = Attr { read_format: format, ..raw_event(SampleType::READ | SampleType::ID) };
        let events = Sample { read: Some(read), id: Some(1), ..sample(0) };
        write_with_ids(&path, "x86_64", attr, &[1], [events]);
        assert_eq!(printed("read").lines().next(), says.lines().next(), "{format:?}");
    }
    use SampleType as S;
    let attr = Attr {
        sample_stack_user: 64,
        ..raw_event(S::STACK_USER | S::AUX | S::TRANSACTION | S::STREAM_ID | S::WEIGHT_STRUCT | S::CGROUP)
    };
    let made = Sample {
        stack_user: Some(StackUser { bytes: &[7; 64], dyn_size: 40 }),
        aux: Some(b"auxiliary"),
        transaction: Some(0x11),
        stream_id: Some(12),
        weight: Some(1 << 48 | 2 << 32 | 3),
        cgroup: Some(4),
        ..sample(0)
    };
    write(&path, "x86_64", attr, [made]);
    assert_eq!(printed("ustack,aux,transaction,stream_id"), " ustack:40/64 aux:16 transaction:0x11 stream_id:12\n");
    assert_eq!(
        printed("weight,ins_lat,retire_lat,cgroup"),
        "               3               2               1 unknown\n"
    );
}
