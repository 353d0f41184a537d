//! Names as people read them.

mod cpp;

use std::borrow::Cow;
use std::fmt::{self, Write};

/// Longest demangled name. Mangled names can refer back to themselves, so that a short one stands for gigabytes.
const MAX_NAME: usize = 64 * 1024;

/// The readable form of a C++ or Rust symbol name, without parameters and without hashes, as perf prints it.
///
/// What is not mangled, or cannot be demangled within reasonable size, comes back as it is. Kernel names are never
/// mangled and should not be passed through here.
pub fn demangle(name: &str) -> Cow<'_, str> {
    // A linkage table's mark or a symbol version is no part of the mangled name: `_Znwm@plt`, `_Znwm@@GLIBCXX_3.4`.
    match name.find('@').map(|at| name.split_at(at)) {
        Some((bare, mark)) => match readable(bare) {
            Cow::Owned(text) => Cow::Owned(text + mark),
            Cow::Borrowed(_) => Cow::Borrowed(name),
        },
        None => readable(name),
    }
}

fn readable(name: &str) -> Cow<'_, str> {
    let text = match rust_hashed(name).or_else(|| rust_v0(name)) {
        Some(bare) => rust(bare),
        None if name.starts_with("_Z") || name.starts_with("_GLOBAL_") => cpp::demangle(name),
        None => None,
    };
    text.map_or(Cow::Borrowed(name), Cow::Owned)
}

/// The older Rust scheme wears the C++ prefix and ends in a path component `h` + 16 hexadecimal digits. What LLVM
/// appends behind it is left off.
fn rust_hashed(name: &str) -> Option<&str> {
    let path = name.strip_prefix("_ZN")?;
    let hash = path.rfind("17h").map(|at| at + "_ZN".len() + "17h".len())?;
    let digits = name.get(hash..hash + 16)?;
    let bare = name.get(..hash + 17)?;
    let end = name.get(hash + 17..)?;
    let right = digits.bytes().all(|b| b.is_ascii_hexdigit()) && bare.ends_with('E');
    (right && (end.is_empty() || end.starts_with('.'))).then_some(bare)
}

fn rust_v0(name: &str) -> Option<&str> {
    let bare = name.split('.').next()?;
    name.strip_prefix("_R")?.starts_with(|c: char| c.is_ascii_uppercase()).then_some(bare)
}

fn rust(name: &str) -> Option<String> {
    let parsed = rustc_demangle::try_demangle(name).ok()?;
    let mut out = Bounded::default();
    write!(out, "{parsed:#}").ok()?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn as_perf_prints_them() {
        let cases = [
            ("main", "main"),
            ("_", "_"),
            ("_Zmain", "_Zmain"),
            ("_ZN2ns1SIiE1fEii", "ns::S<int>::f"),
            ("_ZNSt6vectorIiSaIiEE9push_backEOi", "std::vector<int, std::allocator<int> >::push_back"),
            ("_ZN12_GLOBAL__N_13fooEv", "(anonymous namespace)::foo"),
            ("_ZZ4mainENKUlvE_clEv", "main::{lambda()#1}::operator()"),
            ("_ZNK3lamMUliE_clEi", "lam::{lambda(int)#1}::operator()"),
            ("_Z3foov.part.0.constprop.1", "foo"),
            ("_ZN3fooB5cxx11Ev", "foo[abi:cxx11]"),
            ("_ZTv0_n32_N2ns1W2goEv", "virtual thunk to ns::W::go()"),
            ("_ZThn16_N2ns1W2goEv", "non-virtual thunk to ns::W::go()"),
            ("_ZGTtNSt11range_errorD1Ev", "transaction clone for std::range_error::~range_error()"),
            ("_ZNSi3getEv", "std::istream::get"),
            ("_ZNSiC1Ev", "std::basic_istream<char, std::char_traits<char> >::basic_istream"),
            ("_ZNSsD1Ev", "std::basic_string<char, std::char_traits<char>, std::allocator<char> >::~basic_string"),
            ("_ZNSoD1Ev", "std::basic_ostream<char, std::char_traits<char> >::~basic_ostream"),
            (
                "_ZTv0_n24_NSoD1Ev",
                "virtual thunk to std::basic_ostream<char, std::char_traits<char> >::~basic_ostream()",
            ),
            (
                "_ZNSsC1IPKcEET_S2_RKSaIcE",
                "std::basic_string<char, std::char_traits<char>, std::allocator<char> >::basic_string<char const*>",
            ),
            ("_ZNSs6appendEPKc", "std::string::append"),
            ("_ZN1AILin5ELb1ELc65ELj3ELm4EE1fEv", "A<-5, true, (char)65, 3u, 4ul>::f"),
            ("_ZN1AILl1ELx2ELy3EE1fEv", "A<1l, 2ll, 3ull>::f"),
            ("_ZNO3foo3strEv", "foo::str"),
            ("_ZN3foo1gIDnEEvT_", "foo::g<decltype(nullptr)>"),
            ("_Znwm@plt", "operator new@plt"),
            ("_Znwm@@GLIBCXX_3.4", "operator new@@GLIBCXX_3.4"),
            ("memcpy@plt", "memcpy@plt"),
            ("_ZN1a10A$LT$X$GT$3dbg17h0123456789abcdefE", "a::A<X>::dbg"),
            ("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE.llvm.123", "core::fmt::Write::write_fmt"),
            ("_ZN4core3fmt5Write9write_fmt17h0123456789abcdefE.2321", "core::fmt::Write::write_fmt"),
            ("_RNvC6_123foo3bar", "123foo::bar"),
            ("_RNvCs7fGw3jSJxDe_1a4main.llvm.77", "a::main"),
        ];
        for (mangled, expected) in cases {
            assert_eq!(demangle(mangled), expected, "{mangled}");
        }
    }

    #[test]
    fn a_name_that_would_be_gigabytes_stays_as_it_is() {
        // Each pair refers back to the one before it twice: 2^40 of them.
        let mut bomb = String::from("_Z1fI1aE");
        for level in 0..40 {
            bomb.push_str(&format!("S{}_1bIS{}_S{}_E", base36(level), base36(level), base36(level)));
        }
        let text = demangle(&bomb);
        assert!(text.len() <= MAX_NAME, "{}", text.len());
    }

    fn base36(n: u32) -> String {
        n.checked_sub(1)
            .and_then(|n| char::from_digit(n % 36, 36))
            .map_or(String::new(), |c| c.to_ascii_uppercase().into())
    }

    proptest! {
        #[test]
        fn any_name_is_safe(name in "(_Z|_R|_ZN|_ZT)?[A-Z0-9_a-z$.@<>(]{0,60}") {
            prop_assert!(demangle(&name).len() <= MAX_NAME + name.len());
        }

        #[test]
        fn any_utf8_is_safe(name in "_[ZR]\\PC{0,40}") {
            prop_assert!(demangle(&name).len() <= MAX_NAME + name.len());
        }
    }
}
