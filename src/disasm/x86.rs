//! x86 instructions, written as objdump writes them: mnemonic, tab, operands; a branch as its target and the target's
//! name; what is addressed relative to the instruction with a remark that says what that is.

use iced_x86::{
    Decoder, DecoderOptions, Formatter, GasFormatter, Instruction, IntelFormatter, MemorySizeOptions, OpKind,
};

use super::{Line, Style};

/// The longest run of one byte that fills space between instructions and is shown in one line.
const FILL: usize = 4;

pub(super) fn decode(
    bits: u32,
    style: Style,
    code: &[u8],
    start: u64,
    name: &mut dyn FnMut(u64) -> String,
) -> Vec<Line> {
    let mut printer = Printer::new(style);
    let mut decoder = Decoder::with_ip(bits, code, start, DecoderOptions::NONE);
    let mut lines = Vec::new();
    let mut instruction = Instruction::default();
    while decoder.can_decode() {
        let offset = decoder.position();
        if let Some(len) = filled(code.get(offset..).unwrap_or_default()) {
            lines.push(Line { offset: offset as u64, len, text: format!("int3\t# {len} times"), target: None });
            let next = offset + len;
            if decoder.set_position(next).is_err() {
                break;
            }
            decoder.set_ip(start.wrapping_add(next as u64));
            continue;
        }
        decoder.decode_out(&mut instruction);
        let len = decoder.position().saturating_sub(offset).max(1);
        let (text, target) = if instruction.is_invalid() {
            ("(bad)".to_owned(), None)
        } else {
            (printer.text(&instruction, name), branch(&instruction))
        };
        lines.push(Line { offset: offset as u64, len, text, target });
    }
    lines
}

/// How many bytes of `0xcc`, which the kernel fills freed code with, stand in front; none for less than [`FILL`].
fn filled(code: &[u8]) -> Option<usize> {
    let len = code.iter().take_while(|byte| **byte == 0xcc).count();
    (len >= FILL).then_some(len)
}

/// Where a jump or call goes whose target stands in the instruction.
fn branch(instruction: &Instruction) -> Option<u64> {
    let near = matches!(instruction.op0_kind(), OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64);
    near.then(|| instruction.near_branch_target())
}

struct Printer {
    formatter: Box<dyn Formatter>,
    text: String,
}

impl Printer {
    fn new(style: Style) -> Printer {
        let mut formatter: Box<dyn Formatter> = match style {
            Style::Att => Box::new(GasFormatter::new()),
            Style::Intel => Box::new(IntelFormatter::new()),
        };
        let options = formatter.options_mut();
        options.set_hex_prefix("0x");
        options.set_hex_suffix("");
        options.set_uppercase_hex(false);
        options.set_small_hex_numbers_in_decimal(false);
        options.set_branch_leading_zeros(false);
        options.set_leading_zeros(false);
        options.set_signed_immediate_operands(false);
        options.set_rip_relative_addresses(true);
        options.set_space_after_operand_separator(false);
        // As the GNU tools do it in Intel's style: QWORD PTR.
        options.set_memory_size_options(MemorySizeOptions::Always);
        options.set_uppercase_keywords(true);
        options.set_tab_size(0);
        options.set_first_operand_char_index(0);
        Printer { formatter, text: String::new() }
    }

    fn text(&mut self, instruction: &Instruction, name: &mut dyn FnMut(u64) -> String) -> String {
        let mut out = String::new();
        self.text.clear();
        self.formatter.format_mnemonic(instruction, &mut self.text);
        out.push_str(self.text.trim_end());
        if let Some(target) = branch(instruction) {
            out.push('\t');
            out.push_str(&name(target));
            return out;
        }
        self.text.clear();
        self.formatter.format_all_operands(instruction, &mut self.text);
        if !self.text.is_empty() {
            out.push('\t');
            out.push_str(&self.text);
        }
        if instruction.is_ip_rel_memory_operand() {
            out.push_str("\t# ");
            out.push_str(&name(instruction.ip_rel_memory_address()));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(style: Style, code: &[u8]) -> Vec<String> {
        let mut name = |target: u64| format!("{target:x}");
        decode(64, style, code, 0x1000, &mut name).into_iter().map(|line| line.text).collect()
    }

    /// push %rbp; mov %rsp,%rbp; jne back; call far; mov 16(%rip),%eax; movabs; ret
    const CODE: &[u8] = &[
        0x55, 0x48, 0x89, 0xe5, 0x75, 0xfa, 0xe8, 0x10, 0, 0, 0, 0x8b, 0x05, 0x10, 0, 0, 0, 0x48, 0xb8, 8, 7, 6, 5, 4,
        3, 2, 1, 0x48, 0x8b, 0x44, 0xcb, 0xf8, 0xc3,
    ];

    #[test]
    fn as_the_tools_of_gnu_write_it() {
        let expected = [
            "push\t%rbp",
            "mov\t%rsp,%rbp",
            "jne\t1000",
            "call\t101b",
            "mov\t0x10(%rip),%eax\t# 1021",
            "movabs\t$0x102030405060708,%rax",
            "mov\t-0x8(%rbx,%rcx,8),%rax",
            "ret",
        ];
        assert_eq!(texts(Style::Att, CODE), expected);
    }

    #[test]
    fn as_intel_writes_it() {
        let all = texts(Style::Intel, CODE);
        assert_eq!((all[1].as_str(), all[3].as_str()), ("mov\trbp,rsp", "call\t101b"));
        assert_eq!(all[6], "mov\trax,QWORD PTR [rbx+rcx*8-0x8]");
    }

    #[test]
    fn all_bytes_are_covered() {
        for code in [&[0xcc; 9][..], &[0x90, 0xcc, 0xcc, 0x90], &[0x48], &[0x06, 0x0f, 0xff, 0xff], &[]] {
            let lines = decode(64, Style::Att, code, u64::MAX - 2, &mut |t| t.to_string());
            let mut at = 0;
            for line in &lines {
                assert_eq!(line.offset, at, "{code:x?}");
                at += line.len as u64;
            }
            assert_eq!(at, code.len() as u64, "{code:x?}");
        }
        assert_eq!(texts(Style::Att, &[0xcc; 9]), ["int3\t# 9 times"]);
        assert_eq!(texts(Style::Att, &[0x06]), ["(bad)"]);
    }
}
