//! Kernel memory, read through a BPF program: it works where /proc/kcore does not exist, and under lockdown for integrity.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use libbpf_rs::{Object, RingBuffer};

use super::error::{CaptureError, CaptureErrorKind, ReadError};
use super::object;

/// The most bytes of one run (AI_PIECE).
const PIECE: usize = 4096;
/// Bytes of a symbol's name with its NUL (AI_SYMBOL).
const SYMBOL: usize = 64;

/// Reads kernel memory. A read is one run of a program for each 4096 bytes, a few microseconds; it never faults.
pub struct Reader {
    object: Object,
    ring: RingBuffer<'static>,
    /// What the last run has brought.
    bytes: Arc<Mutex<Vec<u8>>>,
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").finish_non_exhaustive()
    }
}

impl Reader {
    /// Loads the program.
    ///
    /// # Errors
    /// Where programs that read kernel memory may not be loaded: without CAP_BPF and CAP_PERFMON, under lockdown for
    /// confidentiality, before Linux 5.15.
    pub fn load() -> Result<Reader, CaptureError> {
        const WHAT: &str = "loading the program that reads kernel memory";
        let open = object::open(WHAT, include_bytes!(concat!(env!("OUT_DIR"), "/reader.bpf.o")))?;
        let object = object::load(WHAT, open)?;
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&bytes);
        let (ring, _) = object::ring(&object, "ai_bytes", move |piece| {
            let mut sink = sink.lock().unwrap_or_else(PoisonError::into_inner);
            sink.clear();
            sink.extend_from_slice(piece);
        })?;
        Ok(Reader { object, ring, bytes })
    }

    /// Fills `into` with what stands at `addr`.
    ///
    /// # Errors
    /// When any of it cannot be read; `into` is then filled in part.
    pub fn read(&self, addr: u64, into: &mut [u8]) -> Result<(), ReadError> {
        let mut at = addr;
        for piece in into.chunks_mut(PIECE) {
            self.piece(at, piece)?;
            at = at.wrapping_add(piece.len() as u64);
        }
        Ok(())
    }

    fn piece(&self, addr: u64, into: &mut [u8]) -> Result<(), ReadError> {
        // struct ai_read
        let mut request = [0; 16];
        request[..8].copy_from_slice(&addr.to_ne_bytes());
        request[8..12].copy_from_slice(&(into.len() as u32).to_ne_bytes());
        object::run(&self.object, "ai_read_memory", &mut request).map_err(ReadError::Failed)?;
        match i32::from_ne_bytes(request[12..].try_into().unwrap_or_default()) {
            0 => (),
            error if error == -libc::EFAULT => return Err(ReadError::NotMapped(addr)),
            error => return Err(ReadError::Failed(-error)),
        }
        self.ring.consume_raw();
        let bytes = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        into.copy_from_slice(bytes.get(..into.len()).ok_or(ReadError::Failed(libc::ENODATA))?);
        Ok(())
    }

    /// The address of a kernel symbol.
    ///
    /// # Errors
    /// `Unsupported` when the kernel has no symbol of the name, `NotPermitted` when it hides addresses from us
    /// (kernel.kptr_restrict, CAP_SYSLOG).
    pub fn symbol(&self, name: &str) -> Result<u64, CaptureError> {
        // struct ai_find
        let mut request = [0; 16 + SYMBOL];
        let fail = |kind, cause: &str| Err(CaptureError::new(kind, format!("the kernel's symbol {name}"), cause));
        if name.len() >= SYMBOL {
            return fail(CaptureErrorKind::Unsupported, "longer than is looked for");
        }
        request[16..16 + name.len()].copy_from_slice(name.as_bytes());
        if object::run(&self.object, "ai_find_symbol", &mut request).is_err() {
            return fail(CaptureErrorKind::System, "the looking program did not run");
        }
        let word = |at: usize| request[at..at + 8].try_into().map_or(0, u64::from_ne_bytes);
        match (word(0), word(8) as i64) {
            (address, 0) if address != 0 => Ok(address),
            (_, error) if error == -i64::from(libc::EPERM) => {
                fail(CaptureErrorKind::NotPermitted, "the kernel hides its addresses")
            }
            _ => fail(CaptureErrorKind::Unsupported, "there is none"),
        }
    }
}
