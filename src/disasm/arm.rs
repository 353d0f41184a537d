//! 64-bit ARM instructions, by capstone. Instructions have four bytes each, so that one that is none costs no other.

use capstone::prelude::*;

use super::{Line, words};

pub(super) fn decode(code: &[u8], start: u64, name: &mut dyn FnMut(u64) -> String) -> Vec<Line> {
    let Ok(decoder) = Capstone::new().arm64().mode(arch::arm64::ArchMode::Arm).build() else {
        return words::decode(code);
    };
    let mut lines = words::decode(code);
    for line in &mut lines {
        let at = usize::try_from(line.offset).unwrap_or(usize::MAX);
        let bytes = code.get(at..at.saturating_add(line.len)).unwrap_or_default();
        let address = start.wrapping_add(line.offset);
        let Ok(word) = <[u8; 4]>::try_from(bytes) else { continue };
        let Ok(found) = decoder.disasm_count(bytes, address, 1) else { continue };
        let Some(instruction) = found.iter().next() else { continue };
        let (mnemonic, operands) =
            (instruction.mnemonic().unwrap_or_default(), instruction.op_str().unwrap_or_default());
        line.target = branch(u32::from_le_bytes(word), address);
        line.text = match line.target {
            // The target is the last operand.
            Some(target) => {
                let before = operands.rsplit_once(", ").map(|(before, _)| format!("{before}, ")).unwrap_or_default();
                format!("{mnemonic}\t{before}{}", name(target))
            }
            None if operands.is_empty() => mnemonic.to_owned(),
            None => format!("{mnemonic}\t{operands}"),
        };
    }
    lines
}

/// Where a branch goes whose distance stands in it (Arm Architecture Reference Manual, C4.1.66): the distance counts
/// instructions.
fn branch(word: u32, address: u64) -> Option<u64> {
    let signed = |bits: u32, from: u32| {
        let field = i64::from(word >> from) & ((1 << bits) - 1);
        (field << (64 - bits)) >> (64 - bits)
    };
    let distance = match word {
        // b, bl
        _ if word & 0x7c00_0000 == 0x1400_0000 => signed(26, 0),
        // b.cond, bc.cond
        _ if word & 0xff00_0000 == 0x5400_0000 => signed(19, 5),
        // cbz, cbnz
        _ if word & 0x7e00_0000 == 0x3400_0000 => signed(19, 5),
        // tbz, tbnz
        _ if word & 0x7e00_0000 == 0x3600_0000 => signed(14, 5),
        _ => return None,
    };
    Some(address.wrapping_add_signed(distance.wrapping_mul(4)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_with_their_branches() {
        // stp; mov; mul; subs; b.ne back; cbz; tbnz; bl; adrp; ret; none; half a word
        let words: [u32; 11] = [
            0xa9bf_7bfd,
            0x9100_03fd,
            0x9b01_7c00,
            0xf100_0442,
            0x54ff_ffa1,
            0xb400_0040,
            0x37f8_0041,
            0x97ff_fff9,
            0x9000_0000,
            0xd65f_03c0,
            0xffff_ffff,
        ];
        let mut code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        code.extend([1, 2]);
        let lines = decode(&code, 0x1000, &mut |target| format!("<{target:x}>"));
        let texts: Vec<&str> = lines.iter().map(|line| line.text.as_str()).collect();
        let expected = [
            "stp\tx29, x30, [sp, #-0x10]!",
            "mov\tx29, sp",
            "mul\tx0, x0, x1",
            "subs\tx2, x2, #1",
            "b.ne\t<1004>",
            "cbz\tx0, <101c>",
            "tbnz\tw1, #0x1f, <1020>",
            "bl\t<1000>",
            "adrp\tx0, #0x1000",
            "ret",
            ".inst\t0xffffffff",
            ".byte\t0x01, 0x02",
        ];
        assert_eq!(texts, expected);
        assert_eq!(lines[4].target, Some(0x1004));
        assert_eq!(lines.iter().map(|line| line.len).sum::<usize>(), code.len());
    }
}
