//! Names as people read them.

use std::borrow::Cow;
use std::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, ParseOptions};

/// Longest demangled name. Mangled names can refer back to themselves, so that a short one stands for gigabytes.
const MAX_NAME: usize = 64 * 1024;
/// How deep a C++ name may nest before it is left as it is; the parser and the printer recurse.
const MAX_DEPTH: u32 = 160;

/// The readable form of a C++ or Rust symbol name, without parameters and without hashes, as perf prints it.
///
/// What is not mangled, or cannot be demangled within reasonable size, comes back as it is. Kernel names are never
/// mangled and should not be passed through here.
pub fn demangle(name: &str) -> Cow<'_, str> {
    let readable = if is_rust_hashed(name) || is_rust_v0(name) {
        rust(name)
    } else if name.starts_with("_Z") || name.starts_with("___Z") || name.starts_with("_GLOBAL_") {
        cpp(name)
    } else {
        None
    };
    readable.map_or(Cow::Borrowed(name), Cow::Owned)
}

/// The older Rust scheme wears the C++ prefix and ends in a path component `h` + 16 hexadecimal digits.
fn is_rust_hashed(name: &str) -> bool {
    let bare = name.split_once(".llvm.").map_or(name, |(bare, _)| bare);
    let Some(path) = bare.strip_prefix("_ZN") else { return false };
    let Some((_, hash)) = path.rsplit_once("17h") else { return false };
    let Some((hash, end)) = hash.split_at_checked(16) else { return false };
    hash.bytes().all(|b| b.is_ascii_hexdigit()) && (end == "E" || end.starts_with("E."))
}

fn is_rust_v0(name: &str) -> bool {
    name.strip_prefix("_R").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
}

fn rust(name: &str) -> Option<String> {
    let parsed = rustc_demangle::try_demangle(name).ok()?;
    let mut out = Bounded::default();
    write!(out, "{parsed:#}").ok()?;
    out.done()
}

fn cpp(name: &str) -> Option<String> {
    let limits = ParseOptions::default().recursion_limit(MAX_DEPTH);
    let symbol = cpp_demangle::Symbol::new_with_options(name.as_bytes(), &limits).ok()?;
    let style = DemangleOptions::new().no_params().no_return_type().recursion_limit(MAX_DEPTH);
    let mut out = Bounded::default();
    symbol.structured_demangle(&mut out, &style).ok()?;
    out.done()
}

/// A string that refuses to grow past [`MAX_NAME`].
#[derive(Default)]
struct Bounded(String);

impl Bounded {
    fn done(self) -> Option<String> {
        (!self.0.is_empty()).then_some(self.0)
    }
}

impl Write for Bounded {
    fn write_str(&mut self, part: &str) -> fmt::Result {
        if self.0.len() + part.len() > MAX_NAME {
            return Err(fmt::Error);
        }
        self.0.push_str(part);
        Ok(())
    }
}
