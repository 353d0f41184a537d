//! The expressions of a `print fmt`: enough of C for what the kernel's tracepoints use.

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expr {
    Number(i64),
    Text(String),
    /// `REC->name`
    Field(String),
    Index(Box<Expr>, Box<Expr>),
    /// A cast to an integer of so many bytes.
    Cast {
        size: usize,
        signed: bool,
        of: Box<Expr>,
    },
    Unary(char, Box<Expr>),
    Binary(&'static str, Box<Expr>, Box<Expr>),
    Choice(Box<Expr>, Box<Expr>, Box<Expr>),
    /// A helper of the kernel's: `__print_flags(…)`, `__get_str(…)`.
    Call(String, Vec<Expr>),
    /// `{ value, "text" }` in a list of flags or symbols.
    Pair(Box<Expr>, Box<Expr>),
    /// A name without a value, such as an enum's.
    Name(String),
}

/// Reads `"format", argument, …`. `None` where something in it is not understood.
pub(super) fn parse_arguments(text: &str) -> Option<(String, Vec<Expr>)> {
    let mut parser = Parser { tokens: tokens(text)?, at: 0, depth: 0 };
    let format = parser.strings()?;
    let mut arguments = Vec::new();
    while parser.at < parser.tokens.len() {
        parser.eat(",")?;
        arguments.push(parser.choice()?);
    }
    Some((format, arguments))
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Number(i64),
    Text(String),
    Name(String),
    Sign(&'static str),
}

/// Longer signs first.
const SIGNS: [&str; 32] = [
    "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "->", "+", "-", "*", "/", "%", "&", "|", "^", "~", "!", "<", ">",
    "?", ":", "(", ")", "[", "]", "{", "}", ",", ".", ";",
];

/// An expression deeper than this is none that a kernel prints.
const DEEPEST: usize = 200;

fn tokens(text: &str) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = text.trim();
    while let Some(first) = rest.chars().next() {
        let taken;
        if first == '"' {
            let (string, len) = string_literal(rest)?;
            tokens.push(Token::Text(string));
            taken = len;
        } else if first == '\'' {
            let inner = rest.get(1..)?;
            let close = inner.find('\'')?;
            tokens.push(Token::Number(i64::from(inner.as_bytes()[0])));
            taken = close + 2;
        } else if first.is_ascii_digit() {
            taken = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
            tokens.push(Token::Number(number(&rest[..taken])?));
        } else if first.is_ascii_alphabetic() || first == '_' {
            taken = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len());
            tokens.push(Token::Name(rest[..taken].to_owned()));
        } else {
            let sign = SIGNS.iter().find(|sign| rest.starts_with(**sign))?;
            tokens.push(Token::Sign(sign));
            taken = sign.len();
        }
        rest = rest.get(taken..)?.trim_start();
    }
    Some(tokens)
}

/// The string, and how many bytes of the text it took.
fn string_literal(text: &str) -> Option<(String, usize)> {
    let mut out = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((out, at + 1)),
            '\\' => out.push(match chars.next()?.1 {
                'n' => '\n',
                't' => '\t',
                other => other,
            }),
            c => out.push(c),
        }
    }
    None
}

fn number(word: &str) -> Option<i64> {
    let digits = word.trim_end_matches(['u', 'U', 'l', 'L']);
    let (digits, radix) = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => (hex, 16),
        None if digits.len() > 1 && digits.starts_with('0') => (digits, 8),
        None => (digits, 10),
    };
    // Bits count here, not the sign.
    u64::from_str_radix(digits, radix).ok().map(|n| n as i64)
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
}

const LEVELS: [&[&str]; 10] = [
    &["||"],
    &["&&"],
    &["|"],
    &["^"],
    &["&"],
    &["==", "!="],
    &["<", ">", "<=", ">="],
    &["<<", ">>"],
    &["+", "-"],
    &["*", "/", "%"],
];

impl Parser {
    fn peek(&self, sign: &str) -> bool {
        matches!(self.tokens.get(self.at), Some(Token::Sign(s)) if *s == sign)
    }

    fn eat(&mut self, sign: &str) -> Option<()> {
        self.peek(sign).then(|| self.at += 1)
    }

    /// Adjacent strings are one.
    fn strings(&mut self) -> Option<String> {
        let mut out = None;
        while let Some(Token::Text(text)) = self.tokens.get(self.at) {
            out.get_or_insert_with(String::new).push_str(text);
            self.at += 1;
        }
        out
    }

    fn choice(&mut self) -> Option<Expr> {
        self.depth += 1;
        (self.depth <= DEEPEST).then_some(())?;
        let condition = self.binary(0)?;
        let expr = if self.eat("?").is_some() {
            let yes = self.choice()?;
            self.eat(":")?;
            Expr::Choice(condition.into(), yes.into(), self.choice()?.into())
        } else {
            condition
        };
        self.depth -= 1;
        Some(expr)
    }

    fn binary(&mut self, level: usize) -> Option<Expr> {
        let Some(signs) = LEVELS.get(level) else { return self.unary() };
        let mut left = self.binary(level + 1)?;
        while let Some(Token::Sign(sign)) = self.tokens.get(self.at) {
            let Some(sign) = signs.iter().find(|s| *s == sign) else { break };
            self.at += 1;
            left = Expr::Binary(sign, left.into(), self.binary(level + 1)?.into());
        }
        Some(left)
    }

    fn unary(&mut self) -> Option<Expr> {
        self.depth += 1;
        (self.depth <= DEEPEST).then_some(())?;
        let expr = self.unary_inner();
        self.depth -= 1;
        expr
    }

    fn unary_inner(&mut self) -> Option<Expr> {
        for sign in ['-', '!', '~'] {
            if self.eat(sign.encode_utf8(&mut [0; 4])).is_some() {
                return Some(Expr::Unary(sign, self.unary()?.into()));
            }
        }
        if self.peek("(") {
            let before = self.at;
            self.at += 1;
            if let Some((size, signed)) = self.cast_type() {
                return Some(Expr::Cast { size, signed, of: self.unary()?.into() });
            }
            self.at = before + 1;
            let inner = self.choice()?;
            self.eat(")")?;
            return self.postfix(inner);
        }
        let primary = self.primary()?;
        self.postfix(primary)
    }

    fn postfix(&mut self, mut expr: Expr) -> Option<Expr> {
        while self.eat("[").is_some() {
            let index = self.choice()?;
            self.eat("]")?;
            expr = Expr::Index(expr.into(), index.into());
        }
        Some(expr)
    }

    /// A type and the closing parenthesis: nothing but names and stars, and the last name no field's.
    fn cast_type(&mut self) -> Option<(usize, bool)> {
        let from = self.at;
        let mut words = Vec::new();
        let mut pointer = false;
        loop {
            match self.tokens.get(self.at)? {
                Token::Name(name) if !pointer => words.push(name.as_str()),
                Token::Sign("*") if !words.is_empty() => pointer = true,
                Token::Sign(")") if self.at > from => break,
                _ => return None,
            }
            self.at += 1;
        }
        let of = if pointer { Some((8, false)) } else { size_of_type(&words) };
        if of.is_some() {
            self.at += 1;
        }
        of
    }

    fn primary(&mut self) -> Option<Expr> {
        if let Some(text) = self.strings() {
            return Some(Expr::Text(text));
        }
        if self.eat("{").is_some() {
            let value = self.choice()?;
            self.eat(",")?;
            let text = self.choice()?;
            self.eat("}")?;
            return Some(Expr::Pair(value.into(), text.into()));
        }
        let token = self.tokens.get(self.at)?.clone();
        self.at += 1;
        match token {
            Token::Number(number) => Some(Expr::Number(number)),
            Token::Name(name) if name == "REC" => {
                self.eat("->")?;
                let Some(Token::Name(field)) = self.tokens.get(self.at).cloned() else { return None };
                self.at += 1;
                Some(Expr::Field(field))
            }
            Token::Name(name) if self.eat("(").is_some() => {
                let mut arguments = Vec::new();
                while self.eat(")").is_none() {
                    if !arguments.is_empty() {
                        self.eat(",")?;
                    }
                    arguments.push(self.choice()?);
                }
                Some(Expr::Call(name, arguments))
            }
            Token::Name(name) => Some(Expr::Name(name)),
            _ => None,
        }
    }
}

/// Size in bytes and sign of an integer type by its words.
fn size_of_type(words: &[&str]) -> Option<(usize, bool)> {
    let unsigned = words.contains(&"unsigned");
    let words: Vec<&str> = words.iter().copied().filter(|w| !matches!(*w, "const" | "volatile" | "__force")).collect();
    let last = *words.last()?;
    let sized = |name: &str| match name.trim_start_matches("__") {
        "u8" | "uint8_t" => Some((1, false)),
        "s8" | "int8_t" => Some((1, true)),
        "u16" | "uint16_t" | "be16" | "le16" => Some((2, false)),
        "s16" | "int16_t" => Some((2, true)),
        "u32" | "uint32_t" | "be32" | "le32" | "gfp_t" | "dev_t" => Some((4, false)),
        "s32" | "int32_t" | "pid_t" => Some((4, true)),
        "u64" | "uint64_t" | "be64" | "le64" | "size_t" | "sector_t" | "ino_t" | "phys_addr_t" | "uintptr_t" => {
            Some((8, false))
        }
        "s64" | "int64_t" | "loff_t" | "ssize_t" => Some((8, true)),
        // Of another type it is not known how wide it is.
        name if name.ends_with("_t") => Some((8, false)),
        _ => None,
    };
    match last {
        "char" => Some((1, !unsigned)),
        "short" => Some((2, !unsigned)),
        "bool" => Some((1, false)),
        "long" => Some((8, !unsigned)),
        "int" if words.contains(&"long") => Some((8, !unsigned)),
        "int" if words.contains(&"short") => Some((2, !unsigned)),
        "int" => Some((4, !unsigned)),
        "unsigned" => Some((4, false)),
        "signed" => Some((4, true)),
        other => sized(other),
    }
}
