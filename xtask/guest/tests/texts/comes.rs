//! Text of all kinds that this machine has: what is kept of each, and how long it lived.

use afterimage_testkit::{Need, has};

use crate::support::{Said, constants, load, plan, recorded, share, turn};

#[test]
fn programs_have_their_true_lives_and_loaders() {
    if !has("programs_have_their_true_lives_and_loaders", &[Need::Root, Need::Bpf]) {
        return;
    }
    let _turn = turn();
    let kept = recorded("bpf --count 20 --life 10ms", None);
    let texts = kept.texts();
    assert_eq!(kept.objects.len(), 20);
    for object in &kept.objects {
        let number = |key: &str| object[key].as_u64().unwrap();
        for function in object["functions"].as_array().unwrap() {
            let named: Vec<_> =
                texts.texts.iter().filter(|text| text.name.as_deref() == function["name"].as_str()).collect();
            assert_eq!(named.len(), 1, "{function}");
            let text = named[0];
            let address = format!("{:#x}", text.address);
            assert_eq!(
                (Some(address.as_str()), text.length),
                (function["address"].as_str(), function["length"].as_u64().map(|n| n as u32))
            );
            assert_eq!(text.id.map(u64::from), object["id"].as_u64());
            let (born, gone) = (text.born_ns.unwrap(), text.gone_ns.unwrap());
            assert!((number("born_ns")..number("gone_ns")).contains(&born) && born < gone, "{text:?} {object}");
            assert_eq!(text.loader.as_ref().map(|loader| loader.comm.as_str()), Some("load"), "{text:?}");
            assert!(text.images.iter().any(|image| image.way == "free-time" && image.proven), "{text:?}");
        }
    }
}

#[test]
fn a_dispatcher_is_read_while_it_stands() {
    if !has("a_dispatcher_is_read_while_it_stands", &[Need::Root, Need::Bpf]) {
        return;
    }
    let _turn = turn();
    let texts = recorded("xdp --count 3 --life 10ms", None).texts();
    let (whole, _, all) = share(&texts, "load_xdp", 3);
    assert_eq!((whole, all), (9, 9));
    let dispatcher =
        texts.of_kind("dispatcher").find(|text| text.name.as_deref() == Some("bpf_dispatcher_xdp")).unwrap();
    println!("{dispatcher:?}");
    assert!(texts.bytes(dispatcher, true).any(|bytes| bytes.iter().any(|byte| *byte != 0 && *byte != 0xcc)));
}

/// Kernels tell of them from 6.14 on, and Debian's 6.12 does.
#[test]
fn functions_of_structures_have_their_trampolines() {
    if !has("functions_of_structures_have_their_trampolines", &[Need::Root, Need::Bpf]) {
        return;
    }
    let _turn = turn();
    let kept = recorded("struct-ops --count 4 --life 10ms", None);
    let texts = kept.texts();
    let (whole, _, all) = share(&texts, "load_ops", 12);
    assert_eq!((whole, all), (36, 36));
    let trampolines: Vec<_> = texts.of_kind("struct_ops").collect();
    trampolines.iter().for_each(|text| println!("{text:?}"));
    let release = rustix::system::uname();
    let version: Vec<u32> =
        release.release().to_string_lossy().split(['.', '-']).map_while(|n| n.parse().ok()).collect();
    if version[..] < [6, 14][..] && trampolines.is_empty() {
        return;
    }
    for member in ["ssthresh", "cong_avoid", "undo_cwnd"] {
        let name = format!("bpf__tcp_congestion_ops_{member}");
        let named: Vec<_> = trampolines.iter().filter(|text| text.name.as_deref() == Some(&name)).collect();
        assert_eq!(named.len(), 4, "{name}");
        for text in named {
            assert!(text.born_ns < text.gone_ns && text.length.is_some_and(|length| length < 4096), "{text:?}");
            let mut bytes = texts.bytes(text, true);
            assert!(bytes.any(|bytes| bytes.iter().any(|byte| *byte != 0 && *byte != 0xcc)), "{text:?}");
        }
    }
}

#[test]
fn kernel_functions_that_got_samples_have_their_code() {
    if !has("kernel_functions_that_got_samples_have_their_code", &[Need::Root, Need::Bpf]) {
        return;
    }
    let _turn = turn();
    let texts = recorded("cbpf --life hot --seconds 0.5", None).texts();
    let functions: Vec<_> = texts.of_kind("kernel").collect();
    let names: Vec<_> = functions.iter().filter_map(|text| text.name.as_deref()).collect();
    println!("{} functions: {}", names.len(), names[..names.len().min(20)].join(" "));
    assert!(functions.len() > 10);
    for function in &functions {
        let length = function.length.unwrap() as usize;
        assert!(texts.bytes(function, true).any(|bytes| bytes.len() == length), "{function:?}");
    }
    // The filter itself ran hot, and is kept too.
    assert!(texts.of_kind("cbpf").any(|text| !text.images.is_empty()));
}

#[test]
fn without_text_there_is_none() {
    if !has("without_text_there_is_none", &[Need::Root, Need::Bpf]) {
        return;
    }
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.data");
    let log = folder.path().join("log");
    let mut plan = plan(&path, load(&format!("bpf --count 20 --log {}", log.display())), None);
    plan.text = None;
    afterimage_recorder::record(&plan, &false.into(), &mut Said).unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let reader = afterimage_perf_data::FileReader::open(&bytes).unwrap();
    assert!(reader.private().unwrap().texts.is_empty() && reader.private().unwrap().images.is_empty());
}

/// What stock perf lists are programs that are gone, with their code.
#[test]
fn perf_lists_programs_that_are_gone() {
    if !has("perf_lists_programs_that_are_gone", &[Need::Root, Need::Bpf]) {
        return;
    }
    let _turn = turn();
    let kept = recorded("bpf --count 50 --no-info", None);
    let texts = kept.texts();
    let reader = afterimage_perf_data::FileReader::open(&kept.bytes).unwrap();
    for n in 0..50 {
        let name = format!("_load_bpf_{n}_main");
        let id = texts.called(&name).next().unwrap().id.unwrap();
        let info = reader.features().bpf_progs.iter().find(|info| info.id() == id).unwrap_or_else(|| panic!("{name}"));
        assert_eq!(
            (info.jited_ksyms().iter().count(), info.jited_func_lens().len(), info.prog_tags().count()),
            (3, 3, 3)
        );
        assert_eq!(info.jited_insns().len() as u32, info.jited_func_lens().iter().sum::<u32>());
        let (even, _) = constants("load_bpf", n);
        assert!(info.jited_insns().windows(4).any(|four| four == even.to_le_bytes()));
    }
    if Need::Perf.missing().is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.data");
        std::fs::write(&path, &kept.bytes).unwrap();
        let output =
            std::process::Command::new("perf").args(["report", "--header-only", "-i"]).arg(&path).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let listed = text.lines().filter(|line| line.contains("bpf_prog_info")).count();
        println!("perf lists {listed} programs");
        assert!(output.status.success() && listed >= 50, "{text} {}", String::from_utf8_lossy(&output.stderr));
    }
}
