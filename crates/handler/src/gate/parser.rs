//! From words to a tree. `docs/where.md` has the grammar.

use super::ast::{Item, Node, NodeKind, Op, Relation};
use super::error::{Span, Wrong, syntax, too_large};
use super::lexer::{Token, tokens};

/// Bytes of an expression.
pub(crate) const TEXT_MAX: usize = 4096;
/// Levels of an expression.
const DEPTH_MAX: usize = 32;

/// Reads a whole expression.
pub(crate) fn parse(text: &str) -> Result<Node, Wrong> {
    if text.len() > TEXT_MAX {
        let span = Span { start: 0, end: text.len() };
        return Err(too_large(span, format!("an expression has at most {TEXT_MAX} bytes")));
    }
    let tokens = tokens(text)?;
    if tokens.len() == 1 {
        return Err(syntax(Span::default(), "an expression that is empty").hint("for example: pid == 1234 && user"));
    }
    let mut parser = Parser { tokens, at: 0, open: 0 };
    let node = parser.any()?;
    match parser.peek() {
        (Token::End, _) => Ok(node),
        (token, span) => Err(joined(token, *span)),
    }
}

/// Something stands where the expression should have ended.
fn joined(token: &Token, span: Span) -> Wrong {
    let wrong = syntax(span, format!("{} stands where an operator is expected", token.describe()));
    match token {
        Token::Word(word) if word == "and" => wrong.hint("and is &&"),
        Token::Word(word) if word == "or" => wrong.hint("or is ||"),
        Token::Sign(")") => syntax(span, "a bracket that was not opened"),
        Token::Sign("/") => wrong.hint("there is no division; one sample of N is 1/N"),
        Token::Sign(sign) if Relation::of(sign).is_some() => {
            syntax(span, "comparisons do not chain").hint("a < b && b < c")
        }
        _ => wrong,
    }
}

struct Parser {
    tokens: Vec<(Token, Span)>,
    at: usize,
    /// Levels that are being read.
    open: usize,
}

impl Parser {
    fn peek(&self) -> &(Token, Span) {
        // The last token is the end, which nothing takes.
        &self.tokens[self.at.min(self.tokens.len() - 1)]
    }

    fn take(&mut self) -> (Token, Span) {
        let taken = self.peek().clone();
        self.at += usize::from(taken.0 != Token::End);
        taken
    }

    /// Takes one of these signs.
    fn sign(&mut self, wanted: &[&str]) -> Option<(&'static str, Span)> {
        let &(Token::Sign(sign), span) = self.peek() else { return None };
        wanted.contains(&sign).then(|| {
            self.at += 1;
            (sign, span)
        })
    }

    fn word(&mut self, wanted: &str) -> bool {
        let found = matches!(self.peek(), (Token::Word(word), _) if word == wanted);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, sign: &'static str, after: &str) -> Result<Span, Wrong> {
        if let Some((_, span)) = self.sign(&[sign]) {
            return Ok(span);
        }
        let (token, span) = self.peek();
        Err(syntax(*span, format!("`{sign}` is expected after {after}, not {}", token.describe())))
    }

    fn any(&mut self) -> Result<Node, Wrong> {
        self.joined(&["||"], Parser::all, NodeKind::Any)
    }

    fn all(&mut self) -> Result<Node, Wrong> {
        self.joined(&["&&"], Parser::not, NodeKind::All)
    }

    fn joined(
        &mut self,
        sign: &[&str],
        part: fn(&mut Parser) -> Result<Node, Wrong>,
        kind: fn(Vec<Node>) -> NodeKind,
    ) -> Result<Node, Wrong> {
        let first = part(self)?;
        if !matches!(self.peek(), (Token::Sign(next), _) if sign.contains(next)) {
            return Ok(first);
        }
        let mut parts = vec![first];
        while self.sign(sign).is_some() {
            parts.push(part(self)?);
        }
        let span = parts[0].span.to(parts[parts.len() - 1].span);
        let depth = parts.iter().map(|part| part.depth).max().unwrap_or(0);
        node(kind(parts), span, depth)
    }

    fn not(&mut self) -> Result<Node, Wrong> {
        let Some((_, span)) = self.sign(&["!"]) else { return self.comparison() };
        self.deeper(span)?;
        let inner = self.not()?;
        self.open -= 1;
        let (span, depth) = (span.to(inner.span), inner.depth);
        node(NodeKind::Not(Box::new(inner)), span, depth)
    }

    fn comparison(&mut self) -> Result<Node, Wrong> {
        let left = self.binary(0)?;
        if let Some((sign, _)) = self.sign(&["==", "!=", "<", "<=", ">", ">=", "~", "!~"]) {
            let right = self.binary(0)?;
            let (span, depth) = (left.span.to(right.span), left.depth.max(right.depth));
            let relation = Relation::of(sign).unwrap_or(Relation::Equal);
            return node(NodeKind::Compare(relation, Box::new(left), Box::new(right)), span, depth);
        }
        let not =
            matches!(self.tokens.get(self.at + 1), Some((Token::Word(word), _)) if word == "in") && self.word("not");
        if !self.word("in") {
            return Ok(left);
        }
        let (items, end) = self.set()?;
        let (span, depth) = (left.span.to(end), left.depth);
        node(NodeKind::In(Box::new(left), items, not), span, depth)
    }

    /// What stands behind `in`: one item, or several in brackets.
    fn set(&mut self) -> Result<(Vec<Item>, Span), Wrong> {
        if self.sign(&["("]).is_none() {
            let item = self.item()?;
            let end = match &item {
                Item::One(node) | Item::Range(_, node) => node.span,
            };
            return Ok((vec![item], end));
        }
        let mut items = Vec::new();
        loop {
            items.push(self.item()?);
            if self.sign(&[","]).is_none() {
                return Ok((items, self.expect(")", "a set")?));
            }
        }
    }

    fn item(&mut self) -> Result<Item, Wrong> {
        let first = self.binary(0)?;
        if self.sign(&[".."]).is_none() {
            return Ok(Item::One(first));
        }
        Ok(Item::Range(first, self.binary(0)?))
    }

    /// Arithmetic, the weakest operators first.
    fn binary(&mut self, level: usize) -> Result<Node, Wrong> {
        const LEVELS: [&[&str]; 3] = [&["&"], &["+", "-"], &["*", "%"]];
        let Some(signs) = LEVELS.get(level) else { return self.primary() };
        let mut left = self.binary(level + 1)?;
        while let Some((sign, _)) = self.sign(signs) {
            let op = match sign {
                "+" => Op::Add,
                "-" => Op::Subtract,
                "*" => Op::Multiply,
                "%" => Op::Remainder,
                _ => Op::And,
            };
            let right = self.binary(level + 1)?;
            let (span, depth) = (left.span.to(right.span), left.depth.max(right.depth));
            left = node(NodeKind::Arithmetic(op, Box::new(left), Box::new(right)), span, depth)?;
        }
        Ok(left)
    }

    fn primary(&mut self) -> Result<Node, Wrong> {
        let (token, span) = self.take();
        match token {
            Token::Number(first) => match self.sign(&["/"]) {
                None => node(NodeKind::Number(first), span, 0),
                Some((_, slash)) => match self.take() {
                    (Token::Number(of), end) => node(NodeKind::Lot(first, of), span.to(end), 0),
                    (token, _) => Err(syntax(
                        span.to(slash),
                        format!("samples out of how many? A number is expected, not {}", token.describe()),
                    )),
                },
            },
            Token::Text(text) => node(NodeKind::Text(text), span, 0),
            Token::Word(name) if self.sign(&["("]).is_some() => self.call(name, span),
            Token::Word(name) => node(NodeKind::Name(name), span, 0),
            Token::Sign("(") => {
                self.deeper(span)?;
                let inner = self.any()?;
                self.open -= 1;
                let end = self.expect(")", "what is in brackets")?;
                Ok(Node { span: span.to(end), ..inner })
            }
            Token::Sign("-") => Err(syntax(span, "numbers are not negative")),
            token => Err(syntax(span, format!("a field, a number or a text is expected, not {}", token.describe()))),
        }
    }

    fn call(&mut self, name: String, start: Span) -> Result<Node, Wrong> {
        let (token, span) = self.take();
        let Token::Text(text) = token else {
            return Err(syntax(span, format!("{name}() takes a text in quotes, not {}", token.describe())));
        };
        let end = self.expect(")", "the text")?;
        node(NodeKind::Call(name, text), start.to(end), 0)
    }

    fn deeper(&mut self, span: Span) -> Result<(), Wrong> {
        self.open += 1;
        if self.open > DEPTH_MAX { Err(too_deep(span)) } else { Ok(()) }
    }
}

fn node(kind: NodeKind, span: Span, below: usize) -> Result<Node, Wrong> {
    let depth = below + 1;
    if depth > DEPTH_MAX { Err(too_deep(span)) } else { Ok(Node { kind, span, depth }) }
}

fn too_deep(span: Span) -> Wrong {
    too_large(span, format!("an expression has at most {DEPTH_MAX} levels"))
}
