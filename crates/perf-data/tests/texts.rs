//! Kernel texts and their images in the private section and in the journal.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod common;

use std::collections::BTreeMap;
use std::io::Cursor;

use afterimage_perf_data::features::{BpfBtf, BpfProgInfo};
use afterimage_perf_data::private::{self, entry};
use afterimage_perf_data::texts::Loader;
use afterimage_perf_data::{
    ErrorKind, Features, FileReader, FileWriter, ImageId, ImageUse, Private, TextDesc, journal,
};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;

fn image_uses() -> impl Strategy<Value = Vec<ImageUse>> {
    let one = (any::<[u8; 16]>(), any::<u64>(), "[a-z-]{0,9}", any::<bool>())
        .prop_map(|(id, at_ns, way, proven)| ImageUse { image: ImageId(id), at_ns, way, proven });
    vec(one, 0..3)
}

fn texts() -> impl Strategy<Value = Vec<TextDesc>> {
    let names = (".{0,8}", option::of(".{0,30}"), option::of("[0-9a-f]{16}"), option::of(".{0,20}"));
    let numbers = (any::<u64>(), option::of(any::<[u32; 4]>()), option::of(any::<[u64; 2]>()));
    let loader = option::of((any::<u32>(), ".{0,15}").prop_map(|(pid, comm)| Loader { pid, comm }));
    let text = (names, numbers, loader, image_uses(), any::<bool>()).prop_map(
        |(names, numbers, loader, images, uncertain)| {
            let (kind, name, tag, reason) = names;
            let (address, some, times) = numbers;
            TextDesc {
                kind,
                name,
                id: some.map(|n| n[0]),
                tag,
                function: some.map(|n| n[1]),
                address,
                length: some.map(|n| n[2]),
                length_reported: some.map(|n| n[3]),
                born_ns: times.map(|t| t[0]),
                gone_ns: times.map(|t| t[1]),
                loader,
                images,
                reason,
                uncertain,
                number: 0,
            }
        },
    );
    btree_map(any::<u64>(), text, 0..6)
        .prop_map(|all| all.into_iter().map(|(number, text)| TextDesc { number, ..text }).collect())
}

fn images() -> impl Strategy<Value = BTreeMap<ImageId, Vec<u8>>> {
    let one = vec(any::<u8>(), 0..200);
    vec(one, 0..5).prop_map(|all| all.into_iter().map(|bytes| (ImageId::of(&bytes), bytes)).collect())
}

fn journal_of(private: &Private) -> Vec<u8> {
    let mut w = journal::Writer::create(Cursor::new(Vec::new())).unwrap();
    // Each text first without what became known later; the last word counts.
    let early: Vec<_> =
        private.texts.iter().map(|t| TextDesc { gone_ns: None, images: Vec::new(), ..t.clone() }).collect();
    w.texts(&early).unwrap();
    for (id, bytes) in &private.images {
        w.images([(id, bytes.as_slice())]).unwrap();
    }
    private.texts.iter().rev().for_each(|text| w.texts(std::slice::from_ref(text)).unwrap());
    for program in &private.programs {
        w.program(&BpfProgInfo { arrays: 0, data: Vec::new(), ..program.clone() }).unwrap();
        w.program(program).unwrap();
    }
    private.program_types.iter().for_each(|types| w.program_types(types).unwrap());
    w.into_inner().into_inner()
}

proptest! {
    #[test]
    fn sections_and_journals_keep_them(texts in texts(), images in images(), data in vec(any::<u8>(), 0..90)) {
        let program = |id: u32| BpfProgInfo {
            info: [&[0; 4][..], &id.to_le_bytes(), &[7; 160]].concat(),
            arrays: 3,
            data: data.clone(),
            ..BpfProgInfo::default()
        };
        let p = Private {
            texts,
            images,
            programs: vec![program(1), program(5)],
            program_types: vec![BpfBtf { id: 9, data: data.clone() }],
            ..Private::default()
        };
        prop_assert_eq!(&Private::decode(&p.encode().unwrap(), 0).unwrap(), &p);
        let journal = journal::read(&journal_of(&p)).unwrap();
        prop_assert!(journal.damage.is_none(), "{:?}", journal.damage);
        prop_assert_eq!(&journal.private, &p);
    }
}

/// The keys are a contract with everyone who reads the section.
#[test]
fn keys() {
    let id = ImageId::of(b"x");
    assert_eq!(id.to_string(), "2d711642b726b04401627ca9fbac32f5", "of sha256sum");
    let text = TextDesc {
        number: 1,
        kind: "program".into(),
        address: 0xffff_ffff_c000_0040,
        images: vec![ImageUse { image: id, at_ns: 5, way: "by-id".into(), proven: false }],
        loader: Some(Loader { pid: 3, comm: "sh".into() }),
        ..TextDesc::default()
    };
    let json = serde_json::to_string(&text).unwrap();
    let expected = concat!(
        r#"{"number":1,"kind":"program","name":null,"id":null,"tag":null,"function":null,"#,
        r#""address":"0xffffffffc0000040","length":null,"length_reported":null,"born_ns":null,"gone_ns":null,"#,
        r#""loader":{"pid":3,"comm":"sh"},"images":[{"image":"2d711642b726b04401627ca9fbac32f5","at_ns":5,"#,
        r#""way":"by-id","proven":false}],"reason":null,"uncertain":false}"#
    );
    assert_eq!(json, expected);
    assert_eq!(serde_json::from_str::<TextDesc>(&json).unwrap(), text);
    for wrong in ["+1", "0x", "0x+1", "12", "0x10000000000000000"] {
        let json = json.replace("0xffffffffc0000040", wrong);
        assert!(serde_json::from_str::<TextDesc>(&json).is_err(), "{wrong}");
    }
    for wrong in ["2d71", "+d711642b726b04401627ca9fbac32f5", "zz711642b726b04401627ca9fbac32f5"] {
        assert!(wrong.parse::<ImageId>().is_err(), "{wrong}");
    }
}

#[test]
fn an_image_of_another_id_is_refused() {
    let p = Private { images: common::private().images, ..Private::default() };
    let good = p.encode().unwrap();
    // The shorter image stands as it is, uncompressed or not: its last byte is in the entry of the journal too.
    let mut w = journal::Writer::create(Cursor::new(Vec::new())).unwrap();
    let mut data = ImageId::of(b"abc").0.to_vec();
    data.extend([3, 0, 0, 0, 0, 0, 0, 0, b'a', b'b', b'd', 0, 0, 0, 0, 0]);
    w.append(entry::IMAGES, data.clone()).unwrap();
    let journal = journal::read(&w.into_inner().into_inner()).unwrap();
    assert_eq!(journal.damage.unwrap().kind(), ErrorKind::Checksum);
    assert!(journal.private.images.is_empty());

    data[26] = b'c';
    let mut w = journal::Writer::create(Cursor::new(Vec::new())).unwrap();
    w.append(entry::IMAGES, data).unwrap();
    let journal = journal::read(&w.into_inner().into_inner()).unwrap();
    assert_eq!(journal.private.images[&ImageId::of(b"abc")], b"abc");
    assert_eq!(Private::decode(&good, 0).unwrap(), p);
}

/// Many texts and large images go into several entries, none near the limit of one.
#[test]
fn long_lists_go_into_several_entries() {
    let texts = (0..10_000).map(|number| TextDesc { number, kind: "cbpf".into(), ..TextDesc::default() }).collect();
    let images: BTreeMap<_, _> = (0..5_u8)
        .map(|i| {
            // Does not compress.
            let mut x = u64::from(i) + 1;
            let bytes: Vec<u8> = (0..5 << 20)
                .map(|_| {
                    x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (x >> 56) as u8
                })
                .collect();
            (ImageId::of(&bytes), bytes)
        })
        .collect();
    let p = Private { texts, images, ..Private::default() };
    let bytes = p.encode().unwrap();
    let mut kinds = Vec::new();
    let mut rest = &bytes[16..];
    while let Some((head, tail)) = rest.split_first_chunk::<16>() {
        let len = u64::from_le_bytes(head[8..].try_into().unwrap());
        kinds.push(u32::from_le_bytes(head[..4].try_into().unwrap()));
        rest = &tail[len.next_multiple_of(8) as usize..];
    }
    assert_eq!(kinds, [entry::TEXTS, entry::TEXTS, entry::TEXTS, entry::IMAGES, entry::IMAGES]);
    assert_eq!(Private::decode(&bytes, 0).unwrap(), p);
}

/// A killed recorder's programs are read from the journal as features, where a finished recording has them.
#[test]
fn programs_of_a_journal_are_features() {
    let mut writer = FileWriter::create(Cursor::new(Vec::new()), &common::events()).unwrap();
    common::fill(&mut writer);
    let file = writer.finish(&common::features(), Some(&common::private())).unwrap().into_inner();
    let finished = FileReader::open(&file).unwrap();
    assert_eq!(finished.private().unwrap().texts, common::texts());

    let mut cut = file.clone();
    cut[72..104].fill(0);
    let programs = common::features().bpf_progs;
    let types = common::features().bpf_btfs;
    assert!(!programs.is_empty() && !types.is_empty());
    let p = Private { programs: programs.clone(), program_types: types, ..common::private() };
    let mut unfinished = FileReader::open(&cut).unwrap();
    assert!(unfinished.features().bpf_progs.is_empty());
    unfinished.use_journal(&journal_of(&p)).unwrap();
    assert_eq!(unfinished.features().bpf_progs, finished.features().bpf_progs);
    assert_eq!(unfinished.features().bpf_btfs, finished.features().bpf_btfs);
    assert_eq!(unfinished.private().unwrap().texts, common::texts());
    assert_eq!(unfinished.private().unwrap().images, common::private().images);
    assert!(unfinished.private().unwrap().programs.is_empty());
    assert_eq!(private::VERSION, 1, "kinds are added without a new version");
}

/// What a journal holds of texts can stand in a finished recording entry by entry, behind what is written anew.
#[test]
fn entries_of_a_journal_are_carried_over() {
    let all = common::private();
    let own = TextDesc { number: 1 << 32, kind: "kernel".into(), ..TextDesc::default() };
    let private = Private { texts: vec![own.clone()], tally: all.tally.clone(), ..Private::default() };
    let journal = journal_of(&all);
    let of_texts = |entry: &journal::PackedEntry<'_>| [entry::TEXTS, entry::IMAGES].contains(&entry.kind);
    let carried: Vec<_> = journal::entries(&journal).unwrap().map(Result::unwrap).filter(of_texts).collect();
    assert!(carried.len() > 2, "{}", carried.len());
    let writer = FileWriter::create(Cursor::new(Vec::new()), &common::events()).unwrap();
    let bytes = writer.finish_with(&Features::default(), Some(&private), &carried).unwrap().into_inner();
    let reader = FileReader::open(&bytes).unwrap();
    let mut texts = all.texts.clone();
    texts.push(own);
    assert_eq!(reader.private(), Some(&Private { texts, images: all.images.clone(), ..private.clone() }));

    let writer = FileWriter::create(Cursor::new(Vec::new()), &common::events()).unwrap();
    assert_eq!(writer.finish_with(&Features::default(), None, &carried).unwrap_err().kind(), ErrorKind::BadValue);
}
