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
    use std::process::Command;

    use afterimage_testkit::{Need, has};

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

    /// Instructions by the bits that make them what they are; the others are registers, numbers and distances.
    const SHAPES: [(&str, u32, u32); 24] = [
        ("b", 0x1400_0000, 0x03ff_ffff),
        ("bl", 0x9400_0000, 0x03ff_ffff),
        ("b.cond", 0x5400_0000, 0x00ff_ffe0 | 0xd),
        ("cbz", 0x3400_0000, 0x80ff_ffff),
        ("cbnz", 0x3500_0000, 0x80ff_ffff),
        ("tbz", 0x3600_0000, 0x80ff_ffff),
        ("tbnz", 0x3700_0000, 0x80ff_ffff),
        ("adr", 0x1000_0000, 0x60ff_ffff),
        ("adrp", 0x9000_0000, 0x60ff_ffff),
        ("add, by a number", 0x1100_0000, 0x803f_ffff),
        ("subs, by a number", 0x7100_0000, 0x803f_ffff),
        ("add, of registers", 0x8b00_0000, 0x001f_03ff),
        ("and", 0x8a00_0000, 0x001f_ffff),
        ("orr", 0xaa00_0000, 0x001f_03ff),
        ("eor", 0xca00_0000, 0x001f_ffff),
        ("madd", 0x9b00_0000, 0x001f_7fff),
        ("udiv", 0x9ac0_0800, 0x001f_03ff),
        ("csel", 0x9a80_0000, 0x001f_d3ff),
        ("ldr", 0xf940_0000, 0x003f_ffff),
        ("str", 0xb900_0000, 0x003f_ffff),
        ("ldrb", 0x3940_0000, 0x003f_ffff),
        // What loads one register twice, or changes the one that it stores, is not defined.
        ("stp, written back", 0xa980_03e0, 0x003f_8c00),
        ("ldp", 0xa940_0400, 0x003f_83e0),
        ("blr", 0xd63f_0000, 0x0000_03e0),
    ];

    /// Numbers as decimals without the sign that they are numbers, one space between words; no remarks.
    fn plain(text: &str) -> String {
        let text = text.split("//").next().unwrap().split('<').next().unwrap().replace('#', "");
        let split = text.replace([',', '\t'], " ").replace('[', "[ ").replace(']', " ]");
        let word = |word: &str| {
            let (sign, digits) = word.strip_prefix('-').map_or(("", word), |digits| ("-", digits));
            let number = digits.strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok());
            number.map_or_else(|| word.to_owned(), |number| format!("{sign}{number}"))
        };
        split.split_whitespace().map(word).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn instructions_read_as_objdump_prints_them() {
        if !has("instructions_read_as_objdump_prints_them", &[Need::ObjdumpArm]) {
            return;
        }
        // Numbers that look like none in particular, the same each time.
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as u32
        };
        let words: Vec<(&str, u32)> = SHAPES
            .iter()
            .flat_map(|(name, fixed, free)| std::iter::repeat_n((*name, *fixed, *free), 100))
            .map(|(name, fixed, free)| (name, fixed | random() & free))
            .collect();
        let code: Vec<u8> = words.iter().flat_map(|(_, word)| word.to_le_bytes()).collect();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("code");
        std::fs::write(&path, &code).unwrap();
        let start = 0xffff_8000_0800_0000u64;
        let mut objdump = Command::new("aarch64-linux-gnu-objdump");
        objdump.args(["-D", "-z", "-b", "binary", "-m", "aarch64", &format!("--adjust-vma={start:#x}")]).arg(&path);
        let output = objdump.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let listing = String::from_utf8(output.stdout).unwrap();
        // `ADDRESS:<tab>WORD <tab>MNEMONIC<tab>OPERANDS`
        let theirs: Vec<String> = listing
            .lines()
            .filter_map(|line| line.split_once(":\t")?.1.split_once(" \t"))
            .map(|(_, text)| plain(text))
            .collect();
        let ours = decode(&code, start, &mut |target| format!("{target:#x}"));
        assert_eq!((theirs.len(), ours.len()), (words.len(), words.len()));
        let differ: Vec<String> = words
            .iter()
            .zip(ours.iter().zip(&theirs))
            .filter(|(_, (ours, theirs))| plain(&ours.text) != **theirs)
            .map(|((name, word), (ours, theirs))| format!("{name} {word:08x}: {:?}, not {theirs:?}", ours.text))
            .collect();
        println!("{} of {} instructions alike", words.len() - differ.len(), words.len());
        assert!(differ.is_empty(), "{}", differ.join("\n"));
        let branches = words.iter().zip(&ours).filter(|((name, _), _)| name.starts_with(['b', 'c', 't']));
        let targets = branches.filter(|(_, line)| line.target.is_some()).count();
        assert_eq!(targets, 700, "b, bl, b.cond, cbz, cbnz, tbz and tbnz have a target");
    }
}
