//! BTF made by hand.

pub const SIGNED: u32 = 1;
pub const CHAR: u32 = 2;
pub const BOOL: u32 = 4;
pub const TYPEDEF: u32 = 8;
pub const VOLATILE: u32 = 9;
pub const CONST: u32 = 10;

/// A member: name, type, first bit, bits of a bit-field or 0.
pub type Member<'a> = (&'a str, u32, u32, u32);

/// Types in the making. Each method gives the id of the type that it adds.
pub struct Builder {
    big: bool,
    types: Vec<u8>,
    strings: Vec<u8>,
    count: u32,
}

impl Builder {
    pub fn new(big: bool) -> Self {
        Self { big, types: Vec::new(), strings: vec![0], count: 0 }
    }

    fn word(&mut self, word: u32) {
        self.types.extend(if self.big { word.to_be_bytes() } else { word.to_le_bytes() });
    }

    fn string(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        let at = self.strings.len() as u32;
        self.strings.extend(text.as_bytes());
        self.strings.push(0);
        at
    }

    /// Any type: what stands behind `struct btf_type` as words.
    pub fn add(&mut self, name: &str, kind: u32, count: usize, flag: bool, size_or_type: u32, more: &[u32]) -> u32 {
        let name = self.string(name);
        self.word(name);
        self.word(u32::from(flag) << 31 | kind << 24 | count as u32);
        self.word(size_or_type);
        more.iter().for_each(|word| self.word(*word));
        self.count += 1;
        self.count
    }

    pub fn int(&mut self, name: &str, size: u32, encoding: u32) -> u32 {
        self.add(name, 1, 0, false, size, &[(encoding << 24) | (size * 8)])
    }

    pub fn pointer(&mut self, to: u32) -> u32 {
        self.add("", 2, 0, false, to, &[])
    }

    pub fn array(&mut self, of: u32, count: u32) -> u32 {
        self.add("", 3, 0, false, 0, &[of, of, count])
    }

    /// A typedef or a qualifier.
    pub fn alias(&mut self, kind: u32, name: &str, of: u32) -> u32 {
        self.add(name, kind, 0, false, of, &[])
    }

    pub fn float(&mut self, name: &str, size: u32) -> u32 {
        self.add(name, 16, 0, false, size, &[])
    }

    pub fn structure(&mut self, name: &str, size: u32, members: &[Member<'_>]) -> u32 {
        self.members(4, name, size, members)
    }

    pub fn union(&mut self, name: &str, size: u32, members: &[Member<'_>]) -> u32 {
        self.members(5, name, size, members)
    }

    fn members(&mut self, kind: u32, name: &str, size: u32, members: &[Member<'_>]) -> u32 {
        let fields = members.iter().any(|(.., bits)| *bits != 0);
        let mut words = Vec::new();
        for (name, id, at, bits) in members {
            words.extend([self.string(name), *id, bits << 24 | at]);
        }
        self.add(name, kind, members.len(), fields, size, &words)
    }

    /// Enumerators of 32 bits or, where `size` is 8, of 64.
    pub fn enumeration(&mut self, name: &str, size: u32, signed: bool, all: &[(&str, i64)]) -> u32 {
        let mut words = Vec::new();
        for (name, value) in all {
            words.extend([self.string(name), *value as u32]);
            if size == 8 {
                words.push((*value >> 32) as u32);
            }
        }
        self.add(name, if size == 8 { 19 } else { 6 }, all.len(), signed, size, &words)
    }

    pub fn finish(&self) -> Vec<u8> {
        let word = |w: u32| if self.big { w.to_be_bytes() } else { w.to_le_bytes() };
        let magic = if self.big { 0xeb9f_u16.to_be_bytes() } else { 0xeb9f_u16.to_le_bytes() };
        let types = self.types.len() as u32;
        let header = [24, 0, types, types, self.strings.len() as u32].map(word).concat();
        [&magic[..], &[1, 0], &header, &self.types, &self.strings].concat()
    }
}

/// A struct with something of everything, and the bytes of one.
pub fn sample(big: bool) -> (Vec<u8>, u32, Vec<u8>) {
    let mut b = Builder::new(big);
    let (int, long, chr) = (b.int("int", 4, SIGNED), b.int("unsigned long", 8, 0), b.int("char", 1, SIGNED));
    let (truth, double) = (b.int("_Bool", 1, BOOL), b.float("double", 8));
    let state = b.enumeration("state", 4, true, &[("DEAD", -1), ("RUNNING", 1)]);
    let flags = b.enumeration("flags", 8, false, &[("HIGH", 1 << 40)]);
    let (text, ints) = (b.array(chr, 8), b.array(int, 2));
    let pointer = b.pointer(0);
    let inner = b.union("", 8, &[("word", int, 0, 0), ("long_word", long, 0, 0)]);
    let hidden = b.alias(CONST, "", inner);
    let u64_ = b.alias(TYPEDEF, "u64", long);
    let members = [
        ("pid", int, 0, 0),
        ("state", state, 32, 0),
        ("lat_ns", u64_, 64, 0),
        ("path", text, 128, 0),
        ("ids", ints, 192, 0),
        ("where", pointer, 256, 0),
        ("", hidden, 320, 0),
        ("ratio", double, 384, 0),
        ("flags", flags, 448, 0),
        ("ok", truth, 512, 0),
        ("low", int, 520, 3),
        ("high", int, 523, 5),
    ];
    let id = b.structure("hit", 72, &members);
    let mut value = Vec::new();
    let mut put = |number: u64, size: usize| {
        let (le, be) = (number.to_le_bytes(), number.to_be_bytes());
        value.extend_from_slice(if big { &be[8 - size..] } else { &le[..size] });
    };
    for (number, size) in [(12, 4), (1, 4), (345, 8)] {
        put(number, size);
    }
    put(0, 8);
    for (number, size) in [(7, 4), (0xffff_fff7, 4), (0xffff_8880, 8), (5, 8), (1.5_f64.to_bits(), 8), (1 << 40, 8)] {
        put(number, size);
    }
    put(1, 1);
    // 3 bits of -1 and 5 bits of 9.
    put(if big { 0b1110_1001 } else { 0b0100_1111 }, 1);
    value.resize(72, 0);
    // A text is the same in both byte orders.
    value[16..24].copy_from_slice(b"/x\0yyyyy");
    (b.finish(), id, value)
}
