//! Names for the entries of the procedure linkage table: `memcpy@plt`.
//!
//! An entry has no symbol. Its code jumps through a slot of the GOT, and the relocation of that slot has the symbol.

use object::elf;
use object::endian::Endianness;
use object::read::ReadRef;
use object::read::elf::{FileHeader, Rela, SectionHeader, Sym};
use rustc_hash::FxHashMap;

use super::choose::{Binding, Raw};
use super::object::{Builder, Object, Table};
use crate::error::{Error, damaged};
use crate::names::Span;

/// An entry of a PLT: where it starts, how long it is (0 to the next), and what it goes through.
#[derive(Debug, PartialEq, Eq)]
struct Entry {
    at: u64,
    size: u64,
    through: Through,
}

#[derive(Debug, PartialEq, Eq)]
enum Through {
    /// The address of a GOT slot.
    Slot(u64),
    /// A position in `.rela.plt`.
    Relocation(u32),
}

/// Adds the entries of all PLT sections, where the machine's code is known here.
pub(super) fn add<'d, E, R>(object: &Object<'d, E, R>, builder: &mut Builder) -> Result<(), Error>
where
    E: FileHeader<Endian = Endianness>,
    R: ReadRef<'d>,
{
    let decode: fn(u64, usize, &[u8]) -> Vec<Entry> = match object.header.e_machine(object.endian) {
        elf::EM_X86_64 => x86_64,
        elf::EM_AARCH64 => aarch64,
        _ => return Ok(()),
    };
    let Some(symbols) = object.table(elf::SHT_DYNSYM)? else { return Ok(()) };
    let lazy = relocations(object, b".rela.plt")?;
    // `.rela.dyn` can be most of a library, so it is read only where an entry goes through it.
    let eager = object.section(b".plt.got").map(|_| relocations(object, b".rela.dyn")).transpose()?;
    let all = lazy.iter().chain(eager.iter().flatten());
    let slots: FxHashMap<u64, u32> = all.copied().filter(|&(_, symbol)| symbol != 0).collect();
    builder.grow_budget(symbols.strings.len());
    for name in [&b".plt"[..], b".plt.sec", b".plt.got"] {
        let Some(section) = object.section(name) else { continue };
        let base: u64 = section.sh_addr(object.endian).into();
        let step = usize::try_from(section.sh_entsize(object.endian).into()).unwrap_or(0);
        let code = object.bytes(section, "procedure linkage table")?;
        for entry in decode(base, step, code) {
            let symbol = match entry.through {
                Through::Slot(slot) => slots.get(&slot).copied(),
                Through::Relocation(at) => lazy.get(at as usize).map(|&(_, symbol)| symbol),
            };
            let Some(name) = symbol.and_then(|at| name_of(&symbols, at, object.endian)) else { continue };
            let limit = base.saturating_add(code.len() as u64);
            let (start, size) = (entry.at, entry.size);
            let raw = Raw { start, size, limit, binding: Binding::Global, function: true, name: Span::default() };
            builder.push(raw, name, "@plt")?;
        }
    }
    Ok(())
}

fn name_of<'d, S: Sym>(symbols: &Table<'d, S>, at: u32, endian: S::Endian) -> Option<&'d [u8]> {
    symbols.name(symbols.symbols.get(at as usize)?.st_name(endian))
}

/// The slot and the symbol of each relocation that fills a slot of the GOT with an address.
fn relocations<'d, E, R>(object: &Object<'d, E, R>, name: &[u8]) -> Result<Vec<(u64, u32)>, Error>
where
    E: FileHeader<Endian = Endianness>,
    R: ReadRef<'d>,
{
    let Some(section) = object.section(name) else { return Ok(Vec::new()) };
    let what = "relocations";
    let Some((all, _)) = section.rela(object.endian, object.data).map_err(damaged(what))? else {
        return Ok(Vec::new());
    };
    let endian = object.endian;
    let fills_slot = |kind: u32| match object.header.e_machine(endian) {
        elf::EM_X86_64 => {
            matches!(kind, elf::R_X86_64_JUMP_SLOT | elf::R_X86_64_GLOB_DAT | elf::R_X86_64_IRELATIVE)
        }
        _ => matches!(kind, elf::R_AARCH64_JUMP_SLOT | elf::R_AARCH64_GLOB_DAT | elf::R_AARCH64_IRELATIVE),
    };
    Ok(all
        .iter()
        .filter(|r| fills_slot(r.r_type(endian, false)))
        .map(|r| (r.r_offset(endian).into(), r.r_sym(endian, false)))
        .collect())
}

/// x86-64 entries: `jmp *slot(%rip)`, behind an optional `endbr64` and `bnd`; or, in the lazy table of a binary with
/// `.plt.sec`, `push $relocation`.
fn x86_64(base: u64, step: usize, code: &[u8]) -> Vec<Entry> {
    const ENDBR64: &[u8] = &[0xf3, 0x0f, 0x1e, 0xfa];
    let step = if matches!(step, 8 | 16) { step } else { 16 };
    let decode = |(at, bytes): (u64, &[u8])| {
        let marked = bytes.strip_prefix(ENDBR64);
        let bare = marked.unwrap_or(bytes);
        let bare = bare.strip_prefix(&[0xf2]).unwrap_or(bare);
        let through = match *bare {
            [0xff, 0x25, a, b, c, d, ..] => {
                let next = at + (bytes.len() - bare.len()) as u64 + 6;
                let distance = i64::from(i32::from_le_bytes([a, b, c, d]));
                Through::Slot(next.wrapping_add_signed(distance))
            }
            [0x68, a, b, c, d, ..] if marked.is_some() => Through::Relocation(u32::from_le_bytes([a, b, c, d])),
            _ => return None,
        };
        Some(Entry { at, size: step as u64, through })
    };
    let starts = (0u64..).map(|i| base.wrapping_add(i * step as u64));
    starts.zip(code.chunks_exact(step)).filter_map(decode).collect()
}

/// AArch64 entries: `adrp x16, slot; ldr x17, [x16, slot]`, behind an optional `bti c`.
fn aarch64(base: u64, _step: usize, code: &[u8]) -> Vec<Entry> {
    const BTI_C: u32 = 0xd503_245f;
    let words: Vec<u32> = code.chunks_exact(4).filter_map(|w| w.try_into().ok()).map(u32::from_le_bytes).collect();
    let mut entries = Vec::new();
    for (index, pair) in (0u64..).zip(words.windows(2)) {
        let &[adrp, ldr] = pair else { continue };
        if adrp & 0x9f00_001f != 0x9000_0010 || ldr & 0xffc0_03ff != 0xf940_0211 {
            continue;
        }
        let at = base.wrapping_add(index * 4);
        let pages = u64::from(adrp >> 5 & 0x7_ffff) << 2 | u64::from(adrp >> 29 & 3);
        let pages = ((pages << 43) as i64) >> 43; // 21 bits with a sign
        let page = (at & !0xfff).wrapping_add_signed(pages << 12);
        let slot = page.wrapping_add(u64::from(ldr >> 10 & 0xfff) * 8);
        let marked = index.checked_sub(1).and_then(|i| words.get(i as usize)) == Some(&BTI_C);
        let at = if marked { at - 4 } else { at };
        entries.push(Entry { at, size: 0, through: Through::Slot(slot) });
    }
    // The first pair is the head of the table, which goes to the resolver through a slot without a symbol.
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x86_64_forms() {
        let plain = [0xff, 0x25, 0x10, 0, 0, 0, 0x68, 0, 0, 0, 0, 0xe9, 0, 0, 0, 0];
        let head = [0xff, 0x35, 1, 2, 3, 4, 0xff, 0x25, 1, 2, 3, 4, 0x0f, 0x1f, 0x40, 0];
        let marked = [0xf3, 0x0f, 0x1e, 0xfa, 0xf2, 0xff, 0x25, 0xf5, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0];
        let lazy = [0xf3, 0x0f, 0x1e, 0xfa, 0x68, 7, 0, 0, 0, 0xf2, 0xe9, 0, 0, 0, 0, 0x90];
        let code = [head, plain, marked, lazy].concat();
        let expected = [
            Entry { at: 0x1010, size: 16, through: Through::Slot(0x1026) },
            Entry { at: 0x1020, size: 16, through: Through::Slot(0x1020) },
            Entry { at: 0x1030, size: 16, through: Through::Relocation(7) },
        ];
        assert_eq!(x86_64(0x1000, 16, &code), expected);
    }

    #[test]
    fn aarch64_forms() {
        // adrp x16, +0x1f000; ldr x17, [x16, #0xf98]; add; br x17, at 0x590 and, behind bti c, at 0x5a0.
        let entry = [0xf00000f0u32, 0xf947ce11, 0x913e6210, 0xd61f0220];
        let marked = [0xd503245f, 0xf00000f0, 0xf947ce11, 0xd61f0220];
        let code: Vec<u8> = entry.into_iter().chain(marked).flat_map(u32::to_le_bytes).collect();
        let expected = [
            Entry { at: 0x590, size: 0, through: Through::Slot(0x1ff98) },
            Entry { at: 0x5a0, size: 0, through: Through::Slot(0x1ff98) },
        ];
        assert_eq!(aarch64(0x590, 16, &code), expected);
    }
}
