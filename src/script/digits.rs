//! Numbers as text, appended without an allocation: a script line is mostly numbers.

/// Appends a decimal number, right-aligned in `width`.
pub(crate) fn decimal(out: &mut Vec<u8>, number: u64, width: usize) {
    let mut digits = [b' '; 20];
    let from = fill(&mut digits, number);
    pad(out, b' ', width.saturating_sub(20 - from));
    out.extend_from_slice(&digits[from..]);
}

/// Appends a decimal number with leading zeros up to `width`.
pub(crate) fn zeros(out: &mut Vec<u8>, number: u64, width: usize) {
    let mut digits = [b'0'; 20];
    let from = fill(&mut digits, number);
    pad(out, b'0', width.saturating_sub(20 - from));
    out.extend_from_slice(&digits[from..]);
}

/// Appends a thread or process id as the signed number that C tools print, right-aligned in `width`.
pub(crate) fn id(out: &mut Vec<u8>, id: u32, width: usize) {
    match i32::try_from(id) {
        Ok(_) => decimal(out, u64::from(id), width),
        Err(_) => {
            let text = (id as i32).to_string();
            pad(out, b' ', width.saturating_sub(text.len()));
            out.extend_from_slice(text.as_bytes());
        }
    }
}

/// Appends a hexadecimal number without `0x`, right-aligned in `width`.
pub(crate) fn hex(out: &mut Vec<u8>, number: u64, width: usize) {
    let digits = (16 - number.leading_zeros() as usize / 4).max(1);
    pad(out, b' ', width.saturating_sub(digits));
    let mut all = [0; 16];
    for (place, digit) in all.iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(number >> (60 - 4 * place)) as usize & 15];
    }
    out.extend_from_slice(&all[16 - digits..]);
}

/// Appends text, right-aligned in `width` characters.
pub(crate) fn right(out: &mut Vec<u8>, text: &str, width: usize) {
    pad(out, b' ', width.saturating_sub(crate::terminal::width(text)));
    out.extend_from_slice(text.as_bytes());
}

/// Appends a byte `count` times.
pub(crate) fn pad(out: &mut Vec<u8>, byte: u8, count: usize) {
    out.resize(out.len() + count, byte);
}

/// Two digits of each number below a hundred.
const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut number = 0;
    while number < 100 {
        pairs[number] = [b'0' + number as u8 / 10, b'0' + number as u8 % 10];
        number += 1;
    }
    pairs
};

/// Fills digits from the end, at least one, and gives the place of the first.
#[inline]
fn fill(digits: &mut [u8; 20], mut number: u64) -> usize {
    let mut from = digits.len();
    while number >= 10 && from >= 2 {
        let [tens, ones] = PAIRS[(number % 100) as usize];
        (digits[from - 2], digits[from - 1]) = (tens, ones);
        from -= 2;
        number /= 100;
    }
    if (number > 0 || from == digits.len()) && from > 0 {
        from -= 1;
        digits[from] = b'0' + (number % 10) as u8;
    }
    from
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn numbers_agree_with_the_standard_formats() {
        for number in [0, 9, 10, 15, 16, 99, 100, 101, 110, 255, 999, 1000, 999_999, 1 << 32, u64::MAX - 1, u64::MAX] {
            assert_eq!(text(|o| decimal(o, number, 8)), format!("{number:>8}"));
            assert_eq!(text(|o| zeros(o, number, 6)), format!("{number:06}"));
            assert_eq!(text(|o| hex(o, number, 16)), format!("{number:>16x}"));
            assert_eq!(text(|o| hex(o, number, 0)), format!("{number:x}"));
        }
    }

    #[test]
    fn ids_are_signed() {
        assert_eq!(text(|o| id(o, 42, 5)), "   42");
        assert_eq!(text(|o| id(o, u32::MAX, 5)), "   -1");
        assert_eq!(text(|o| right(o, "naïve", 7)), "  naïve");
    }
}
