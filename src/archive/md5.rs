//! MD5 (RFC 1321), by which DWARF 5 tells whether a source file is still the one that was compiled. It keeps nobody from making
//! a file of the same sum on purpose, and is not asked to.

/// What is added in each step: the integer part of 2^32 times the sine of the step's number.
fn sines() -> [u32; 64] {
    let mut all = [0; 64];
    for (place, nth) in all.iter_mut().zip(1..) {
        *place = (f64::from(nth).sin().abs() * 4_294_967_296.0) as u32;
    }
    all
}

/// How far each of four steps in a row rotates, in each round.
const ROTATIONS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

/// The sum of some bytes.
pub(super) fn of(bytes: &[u8]) -> [u8; 16] {
    let sines = sines();
    let mut state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    let blocks = bytes.chunks_exact(64);
    // A set bit, zeros, and the length in bits fill the last block or two.
    let mut rest = blocks.remainder().to_vec();
    rest.push(0x80);
    let room = rest.len().next_multiple_of(64);
    rest.resize(if room - rest.len() < 8 { room + 56 } else { room - 8 }, 0);
    rest.extend((bytes.len() as u64).wrapping_mul(8).to_le_bytes());
    blocks.chain(rest.chunks_exact(64)).for_each(|block| add(&mut state, block, &sines));
    let mut sum = [0; 16];
    for (to, word) in sum.chunks_exact_mut(4).zip(state) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    sum
}

fn add(state: &mut [u32; 4], block: &[u8], sines: &[u32; 64]) {
    let mut words = [0; 16];
    for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
        *word = bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
    }
    let [mut a, mut b, mut c, mut d] = *state;
    for (step, sine) in sines.iter().enumerate() {
        let (mix, word) = match step / 16 {
            0 => (b & c | !b & d, step),
            1 => (b & d | c & !d, 5 * step + 1),
            2 => (b ^ c ^ d, 3 * step + 5),
            _ => (c ^ (b | !d), 7 * step),
        };
        let sum = a.wrapping_add(mix).wrapping_add(words[word % 16]).wrapping_add(*sine);
        let next = b.wrapping_add(sum.rotate_left(ROTATIONS[step / 16][step % 4]));
        (a, b, c, d) = (d, next, b, c);
    }
    for (word, more) in state.iter_mut().zip([a, b, c, d]) {
        *word = word.wrapping_add(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(bytes: &[u8]) -> String {
        of(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn the_suite_of_the_rfc() {
        for (text, sum) in [
            ("", "d41d8cd98f00b204e9800998ecf8427e"),
            ("a", "0cc175b9c0f1b6a831c399e269772661"),
            ("abc", "900150983cd24fb0d6963f7d28e17f72"),
            ("message digest", "f96b697d7cb7938d525a2f31aaf161d0"),
            ("abcdefghijklmnopqrstuvwxyz", "c3fcd3d76192e4007dfb496cca67e13b"),
            ("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789", "d174ab98d277d9f5a5611c2c9f419d9f"),
        ] {
            assert_eq!(hex(text.as_bytes()), sum, "{text}");
        }
        let digits = "1234567890".repeat(8);
        assert_eq!(hex(digits.as_bytes()), "57edf4a22be3c955ac49da2e2107b67a");
    }

    #[test]
    fn every_length_around_a_block_is_padded() {
        // By md5sum: sums of the letter x repeated.
        for (len, sum) in [
            (55, "04364420e25c512fd958a70738aa8f72"),
            (56, "668a72d5ba17f08e62dabcafad6db14b"),
            (63, "7dc2ca208106a2f703567bdff99d8981"),
            (64, "c1bb4f81d892b2d57947682aeb252456"),
        ] {
            assert_eq!(hex(&vec![b'x'; len]), sum, "{len}");
        }
    }
}
