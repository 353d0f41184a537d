//! With feature `capture`, compiles the programs under src/bpf with clang.

use std::error::Error;
use std::path::PathBuf;

#[cfg(feature = "capture")]
const OBJECTS: [&str; 3] = ["reader", "freed", "fentry"];

fn main() -> Result<(), Box<dyn Error>> {
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    println!("cargo::rerun-if-changed=src/bpf");
    println!("cargo::rerun-if-env-changed=CLANG");
    compile(&out)
}

#[cfg(feature = "capture")]
fn compile(out: &std::path::Path) -> Result<(), Box<dyn Error>> {
    use libbpf_cargo::SkeletonBuilder;
    let clang = std::env::var_os("CLANG").unwrap_or_else(|| "clang".into());
    for name in OBJECTS {
        SkeletonBuilder::new()
            .source(PathBuf::from("src/bpf").join(format!("{name}.bpf.c")))
            .obj(out.join(format!("{name}.bpf.o")))
            .clang(&clang)
            .clang_args(["-mcpu=v3", "-Wall", "-Werror"])
            .build()
            .map_err(|e| format!("{name}.bpf.c: {e:?}"))?;
    }
    Ok(())
}

#[cfg(not(feature = "capture"))]
fn compile(_: &std::path::Path) -> Result<(), Box<dyn Error>> {
    Ok(())
}
