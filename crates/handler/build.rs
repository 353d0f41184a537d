//! Compiles the programs under src/bpf with clang and generates their skeletons.

use std::error::Error;
use std::path::PathBuf;

use libbpf_cargo::SkeletonBuilder;

const OBJECTS: [&str; 6] = ["common", "stub", "stub_plain", "builtins", "by", "off_cpu"];

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    let source = PathBuf::from("src/bpf");
    println!("cargo::rerun-if-changed=src/bpf");
    println!("cargo::rerun-if-env-changed=CLANG");
    let clang = std::env::var_os("CLANG").unwrap_or_else(|| "clang".into());
    for name in OBJECTS {
        SkeletonBuilder::new()
            .source(source.join(format!("{name}.bpf.c")))
            .obj(out.join(format!("{name}.bpf.o")))
            .clang(&clang)
            // v3: atomics that return the old value, 32-bit jumps; kernels have had it since 5.12.
            .clang_args(["-mcpu=v3", "-Wall", "-Werror"])
            .reference_obj(true)
            .build_and_generate(out.join(format!("{name}.skel.rs")))
            .map_err(|e| format!("{name}.bpf.c: {e:?}"))?;
    }
    // What tests see samples with.
    println!("cargo::rerun-if-changed=tests/native/witness.bpf.c");
    SkeletonBuilder::new()
        .source("tests/native/witness.bpf.c")
        .obj(out.join("witness.bpf.o"))
        .clang(&clang)
        .clang_args(["-mcpu=v3", "-Wall", "-Werror"])
        .build()
        .map_err(|e| format!("witness.bpf.c: {e:?}"))?;
    Ok(())
}
