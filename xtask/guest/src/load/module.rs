//! A kernel module that is loaded and removed. Its source is in xtask/guest/module.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::path::Path;

use rustix::system::{delete_module, finit_module};

use crate::load::cli::Common;
use crate::load::error::{Error, Result};
use crate::load::log::{Function, Log, Object};
use crate::load::pace::{Life, now};

const KIND: &str = "module";
/// What kernels without modules answer.
const NO_MODULES: [i32; 1] = [libc::ENOSYS];
/// Its function that a write to its parameter runs.
const HOT: &str = "afterimage_load_spin";

/// Loads the module, lets its function run, removes it.
pub(crate) fn run(common: &Common, path: &Path, spin: u32, init_spin: u32, log: &mut Log) -> Result<()> {
    if common.life == Life::Hot {
        return Err(Error::failed(
            "load a module",
            io::Error::other("--spin makes it hot, --life says how long it stays"),
        ));
    }
    let name = name_of(path)?;
    let (c_name, options) = (c_string(&name)?, c_string(&format!("init_spin={init_spin}"))?);
    for n in common.pace() {
        let file = File::open(path).map_err(|e| Error::failed(format!("open {}", path.display()), e))?;
        let mut object = Object::new(KIND, n, now());
        finit_module(&file, &options, 0)
            .map_err(|e| Error::unavailable_if(&NO_MODULES, format!("load {}", path.display()), e.into()))?;
        let known = describe(&mut object, &name);
        let spun = if spin > 0 { set_spin(&name, spin) } else { Ok(()) };
        common.life.pass();
        // Removed in any case, and only then what went wrong is told.
        delete_module(&c_name, 0).map_err(|e| Error::failed(format!("remove module {name}"), e.into()))?;
        object.gone_ns = now();
        known.and(spun)?;
        log.object(&object.with("spin_ms", spin).with("init_spin_ms", init_spin))?;
    }
    Ok(())
}

/// The kernel names a module after its file, with `_` for `-`.
fn name_of(path: &Path) -> Result<String> {
    let stem = path.file_stem().and_then(|stem| stem.to_str());
    let stem =
        stem.ok_or_else(|| Error::failed(format!("name of {}", path.display()), io::ErrorKind::InvalidInput.into()))?;
    Ok(stem.replace('-', "_"))
}

fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|e| Error::failed("name of a module", e.into()))
}

/// Name and place of its text; the initialisation's text is freed soon after the module is loaded.
fn describe(object: &mut Object, name: &str) -> Result<()> {
    let section = |section: &str| {
        let path = format!("/sys/module/{name}/sections/{section}");
        let text = fs::read_to_string(&path).map_err(|e| Error::failed(format!("read {path}"), e))?;
        Ok(u64::from_str_radix(text.trim().trim_start_matches("0x"), 16).ok().filter(|address| *address != 0))
    };
    object.name = Some(name.to_owned());
    object.address = section(".text")?;
    let init = section(".init.text")?;
    object.functions = vec![Function { name: format!("{name} .init.text"), address: init, length: None }];
    Ok(())
}

fn set_spin(name: &str, milliseconds: u32) -> Result<()> {
    let path = format!("/sys/module/{name}/parameters/spin");
    fs::write(&path, milliseconds.to_string()).map_err(|e| Error::failed(format!("run {HOT} by {path}"), e))
}
