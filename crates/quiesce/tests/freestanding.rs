//! The crate as a kernel would compile it: without `std`, and with nothing in it that could panic or allocate.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::fs;
use std::path::Path;
use std::process::Command;

/// Everything that the crate does, for one kind of node, by names that a linker sees.
const USER: &str = r#"
pub type Held = Queue<u32, 16>;
pub type Texts = Slab<&'static mut [Place<(u64, u32)>]>;
#[unsafe(no_mangle)] pub extern "C" fn qc(queue: &mut Held, opener: &mut Opener) -> bool { queue.qc(opener).is_ok() }
#[unsafe(no_mangle)] pub extern "C" fn close(queue: &mut Held, opener: &Opener) { queue.close(*opener) }
#[unsafe(no_mangle)] pub extern "C" fn missed(queue: &mut Held) { queue.missed() }
#[unsafe(no_mangle)] pub extern "C" fn due(queue: &Held) -> u64 { queue.due() }
#[unsafe(no_mangle)] pub extern "C" fn waiting(queue: &Held, opener: &Opener) -> u64 {
    queue.standing(*opener).map_or(0, |standing| standing.waiting)
}
#[unsafe(no_mangle)] pub extern "C" fn expires(queue: &Held, slab: &Texts) -> u64 { queue.expires(slab).unwrap_or(0) }
#[unsafe(no_mangle)] pub extern "C" fn hold(queue: &mut Held, slab: &mut Texts, at: u64, len: u32, now: u64) -> bool {
    let Some(node) = slab.take((at, len), len.into(), now) else { queue.missed(); return false };
    let held = queue.defer(slab, node).is_ok();
    if !held { slab.give_back(node); }
    held
}
#[unsafe(no_mangle)] pub extern "C" fn pop(queue: &mut Held, slab: &mut Texts, now: u64, at: &mut u64) -> u32 {
    let Some((node, _)) = queue.pop(slab, now) else { return 0 };
    let Some((address, len)) = slab.give_back(node) else { return 0 };
    *at = address;
    len
}
"#;

fn object(source: &str) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let (file, object) = (folder.path().join("held.rs"), folder.path().join("held.o"));
    fs::write(&file, source).unwrap();
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc)
        .args(["--edition=2024", "--crate-type=lib", "--crate-name=held", "--emit=obj", "-Cpanic=abort"])
        .args(["-Copt-level=2", "-Coverflow-checks=on", "-Ccodegen-units=1", "-o"])
        .args([&object, &file])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    fs::read(object).unwrap()
}

/// Names of what it calls that says that something went wrong, or that asks for memory.
fn mentions(object: &[u8]) -> Vec<&'static str> {
    let names = ["panic", "unwrap_failed", "expect_failed", "slice_index", "__rust_alloc", "__rust_dealloc"];
    names.into_iter().filter(|name| object.windows(name.len()).any(|bytes| bytes == name.as_bytes())).collect()
}

#[test]
fn nothing_in_it_can_panic_or_allocate() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let crate_itself = format!("#[path = {:?}] mod quiesce;\npub use quiesce::*;", root.join("lib.rs"));
    let kernel = object(&format!("#![no_std]\n{crate_itself}\n{USER}"));
    assert_eq!(mentions(&kernel), Vec::<&str>::new());
    for name in ["qc", "close", "hold", "pop"] {
        let section = format!(".text.{name}\0");
        assert!(kernel.windows(section.len()).any(|bytes| bytes == section.as_bytes()), "{name} is not in it");
    }
    // What the test would see if there were anything.
    let careless = "#![no_std]\n#[unsafe(no_mangle)] pub extern \"C\" fn third(all: &[u8]) -> u8 { all[2] }";
    assert_eq!(mentions(&object(careless)), ["panic"]);
}
