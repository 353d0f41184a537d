//! Compiled programs of ours: opened, loaded, run.

use std::sync::Once;

use libbpf_rs::RingBufferBuilder;
use libbpf_rs::{Link, MapCore, MapHandle, Object, ObjectBuilder, OpenObject, PrintLevel, ProgramInput, RingBuffer};

use super::error::CaptureError;

/// Opens an object from its bytes.
pub(super) fn open(what: &'static str, bytes: &[u8]) -> Result<OpenObject, CaptureError> {
    quiet();
    // A copy, for libelf reads words where they lie.
    let bytes = bytes.to_vec();
    ObjectBuilder::default().open_memory(&bytes).map_err(|e| CaptureError::libbpf(what, &e))
}

/// libbpf prints by itself what an error then says too, unless somebody listens.
fn quiet() {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        // What libbpf-rs begins with prints down to this level; whoever else set something wants to hear it.
        if matches!(libbpf_rs::get_print(), Some((PrintLevel::Info, _))) {
            libbpf_rs::set_print(Some((PrintLevel::Warn, |_, _| {})));
        }
    });
}

/// Loads an object.
pub(super) fn load(what: &'static str, open: OpenObject) -> Result<Object, CaptureError> {
    open.load().map_err(|e| CaptureError::libbpf(what, &e))
}

/// Runs a program of type syscall once, with its context as request and answer. The error is that of the run.
pub(super) fn run(object: &Object, name: &str, context: &mut [u8]) -> Result<(), i32> {
    let program = object.progs_mut().find(|program| program.name() == name).ok_or(libc::ENOENT)?;
    let input = ProgramInput { context_in: Some(context), ..ProgramInput::default() };
    match program.test_run(input) {
        Ok(_) => Ok(()),
        Err(_) => Err(libc::EIO),
    }
}

/// Attaches a program as its section says.
pub(super) fn attach(object: &Object, name: &'static str) -> Result<Link, CaptureError> {
    let missing = || CaptureError::libbpf(name, &libbpf_rs::Error::from_raw_os_error(libc::ENOENT));
    let program = object.progs_mut().find(|program| program.name() == name).ok_or_else(missing)?;
    program.attach().map_err(|e| CaptureError::libbpf(name, &e))
}

/// The reader of a ring of the object, and the map, which is readable while something is in the ring.
pub(super) fn ring(
    object: &Object,
    name: &'static str,
    mut take: impl FnMut(&[u8]) + 'static,
) -> Result<(RingBuffer<'static>, MapHandle), CaptureError> {
    let error = |e: libbpf_rs::Error| CaptureError::libbpf(name, &e);
    let missing = || error(libbpf_rs::Error::from_raw_os_error(libc::ENOENT));
    let map = object.maps().find(|map| map.name() == name).ok_or_else(missing)?;
    let map = MapHandle::try_from(&map).map_err(error)?;
    let mut builder = RingBufferBuilder::new();
    builder
        .add(&map, move |bytes| {
            take(bytes);
            0
        })
        .map_err(error)?;
    let ring = builder.build().map_err(error)?;
    Ok((ring, map))
}
