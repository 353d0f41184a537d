//! Text that only a guest has: trampolines, ftrace, probes, modules.

use std::path::PathBuf;

use afterimage_testkit::{Need, guest, has};

use crate::support::{recorded, share, turn};

#[test]
fn trampolines_are_copied_as_they_go() {
    if !has("trampolines_are_copied_as_they_go", &[Need::Root, Need::Bpf, Need::Guest]) {
        return;
    }
    let _turn = turn();
    // So many that the first ones are freed before the last ones come, half a second and more later.
    let kept = recorded("fentry --count 12 --life 10ms", None);
    let texts = kept.texts();
    let (whole, _, all) = share(&texts, "load_fentry", 12);
    assert_eq!((whole, all), (36, 36));
    let mut freed = 0;
    for object in &kept.objects {
        let name = object["trampoline"]["name"].as_str().unwrap();
        let gone: Vec<_> = texts.of_kind("trampoline").filter(|text| text.name.as_deref() == Some(name)).collect();
        println!("{gone:?}");
        // Tasks have to leave a trampoline before it is freed, which may take longer than the recording: then it was read
        // where it stood.
        let Some(text) = gone.iter().find(|text| text.gone_ns.is_some()) else {
            // Proven where its bytes show where it ends.
            assert!(gone.iter().all(|text| text.images.iter().any(|image| image.way == "memory")));
            continue;
        };
        freed += 1;
        let image =
            text.images.iter().find(|image| image.way == "free-time" && image.proven).expect("a copy at its free");
        let bytes = &texts.images[&image.image];
        // Its true length, not the page that the kernel reports; 6.1 knows no better, so it ends where the fill begins.
        let length = text.length.unwrap() as usize;
        assert_eq!(text.length_reported, Some(4096));
        assert_eq!(bytes.len(), length);
        assert!((64..1024).contains(&length), "{length}");
        assert_eq!(text.uncertain, guest().as_deref() == Some("6.1"), "{text:?}");
        // It begins as a function does: endbr64, or the call that ftrace patches, or push %rbp.
        let begins: [&[u8]; 3] = [&[0xf3, 0x0f, 0x1e, 0xfa], &[0x0f, 0x1f, 0x44], &[0x55]];
        assert!(begins.iter().any(|begin| bytes.starts_with(begin)), "{:x?}", &bytes[..16]);
    }
    assert!(freed >= 2, "{freed} trampolines of 12 went");
}

#[test]
fn a_module_is_copied_as_it_comes_and_goes() {
    if !has("a_module_is_copied_as_it_comes_and_goes", &[Need::Root, Need::Bpf, Need::Modules, Need::Guest]) {
        return;
    }
    let _turn = turn();
    let folder = std::env::var_os("AFTERIMAGE_MODULES").map(PathBuf::from).expect("the folder of modules of the guest");
    let file = folder.join("afterimage_load.ko");
    let kept = recorded(&format!("module --module {} --count 2 --spin 20", file.display()), None);
    let texts = kept.texts();
    let modules: Vec<_> =
        texts.of_kind("module").filter(|text| text.name.as_deref() == Some("afterimage_load")).collect();
    println!("{modules:?}");
    assert_eq!(modules.len(), 2);
    for (module, object) in modules.iter().zip(&kept.objects) {
        assert!(module.born_ns.unwrap() < module.gone_ns.unwrap());
        let address = object["address"].as_str().unwrap();
        assert_eq!(format!("{:#x}", module.address), address);
        assert!(texts.bytes(module, true).all(|bytes| bytes.len() == module.length.unwrap() as usize));
        assert!(module.images.len() >= 2 || module.images.iter().any(|image| image.way == "free-time"));
    }
    let init = texts.of_kind("module_init").filter(|text| text.name.as_deref() == Some("afterimage_load"));
    assert!(init.count() >= 2);
}

#[test]
fn probe_pages_and_ftrace_are_told_by_pokes() {
    if !has("probe_pages_and_ftrace_are_told_by_pokes", &[Need::Root, Need::Bpf, Need::Kprobes]) {
        return;
    }
    let _turn = turn();
    let kept = recorded("kprobe --life hot --count 12 --seconds 0.2 --place inside", None);
    let texts = kept.texts();
    let pages: Vec<_> = texts.of_kind("kprobe").chain(texts.of_kind("optprobe")).collect();
    println!("{pages:?}");
    assert!(!pages.is_empty());
    assert!(pages.iter().all(|page| !page.images.is_empty() || page.reason.is_some()));
    assert!(
        pages
            .iter()
            .any(|page| texts.bytes(page, false).any(|bytes| bytes.iter().any(|byte| *byte != 0 && *byte != 0xcc)))
    );
}
