//! Trampolines and probes, where the kernel has them.

use std::path::PathBuf;

use afterimage_testkit::{Need, has};
use serde_json::Value;

use crate::support::{Symbol, address, came_and_went, number, text, watch};

#[test]
fn a_trampoline_comes_with_each_hooked_function() {
    if !has("a_trampoline_comes_with_each_hooked_function", &[Need::Root, Need::Bpf, Need::Guest]) {
        return;
    }
    let mut seen = watch("fentry --count 4 --life 1ms");
    assert_eq!(seen.objects.len(), 4);
    let objects = std::mem::take(&mut seen.objects);
    for object in &objects {
        came_and_went(&seen, object);
        let name = text(&object["trampoline"], "name");
        seen.one(object, name, false);
        seen.until("the end of a trampoline", |seen| seen.symbols.iter().any(|s| s.goes && s.name == name));
    }
    let hot = watch("fentry --life hot --count 2 --seconds 0.2");
    for object in &hot.objects {
        assert!(number(object, "calls") > 0);
        let trampoline = &object["trampoline"];
        assert_eq!(hot.one(object, text(trampoline, "name"), false).addr, address(trampoline));
    }
}

#[test]
fn probes_have_slots_in_both_kinds_of_pages() {
    if !has("probes_have_slots_in_both_kinds_of_pages", &[Need::Root, Need::Kprobes]) {
        return;
    }
    let seen = watch("kprobe --life hot --count 12 --seconds 0.2 --place inside");
    assert_eq!(seen.objects.len(), 12);
    let pages = seen.objects[0]["pages"].as_array().unwrap();
    for kind in ["kprobe_insn_page", "kprobe_optinsn_page"] {
        let of_kind: Vec<&Value> = pages.iter().filter(|page| page["name"] == kind).collect();
        assert!(!of_kind.is_empty(), "{kind}: {pages:?}");
        let pokes = |object: &Value| {
            let in_page = |page: &&Value| seen.pokes_in(object, address(page)..address(page) + 4096);
            of_kind.iter().map(in_page).sum::<usize>()
        };
        // Its slot is filled when the probe is set, and emptied when it is removed.
        assert!(seen.objects.iter().map(pokes).sum::<usize>() >= 2, "no slot of a {kind} was written");
    }
    let entries = watch("kprobe --place entry --count 3");
    assert!(entries.objects.iter().all(|object| object["offset"] == 0));
}

#[test]
fn a_module_comes_and_goes() {
    if !has("a_module_comes_and_goes", &[Need::Root, Need::Modules, Need::Guest]) {
        return;
    }
    let folder = std::env::var_os("AFTERIMAGE_MODULES").map(PathBuf::from).expect("the folder of modules of the guest");
    let file = folder.join("afterimage_load.ko");
    let seen = watch(&format!("module --module {} --count 2 --spin 20 --init-spin 20", file.display()));
    assert_eq!(seen.objects.len(), 2);
    for object in &seen.objects {
        assert_eq!(object["name"], "afterimage_load");
        assert_ne!(address(object), address(&object["functions"][0]));
        assert!(number(object, "gone_ns") - number(object, "born_ns") >= 40_000_000, "{object}");
        let told: Vec<&Symbol> = seen.symbols.iter().filter(|symbol| symbol.name.contains("afterimage_load")).collect();
        assert!(told.is_empty(), "modules are announced after all: {told:?}");
    }
    let modules = std::fs::read_to_string("/proc/modules").unwrap();
    assert!(!modules.contains("afterimage_load"));
}
