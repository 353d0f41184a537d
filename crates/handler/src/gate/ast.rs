//! What was written, before anybody asks what it means.

use super::error::Span;

/// A part of an expression.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) kind: NodeKind,
    pub(crate) span: Span,
    /// Levels of nodes from here down.
    pub(crate) depth: usize,
}

#[derive(Clone, Debug)]
pub(crate) enum NodeKind {
    Number(u64),
    Text(Vec<u8>),
    Name(String),
    /// `symbol("x")`.
    Call(String, Vec<u8>),
    /// `1/10`.
    Lot(u64, u64),
    Not(Box<Node>),
    All(Vec<Node>),
    Any(Vec<Node>),
    Compare(Relation, Box<Node>, Box<Node>),
    /// `a in b`; the flag says `not in`.
    In(Box<Node>, Vec<Item>, bool),
    Arithmetic(Op, Box<Node>, Box<Node>),
}

/// What stands in a set.
#[derive(Clone, Debug)]
pub(crate) enum Item {
    One(Node),
    /// From the first to the last, both of them in.
    Range(Node, Node),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Relation {
    Equal,
    Unequal,
    Less,
    AtMost,
    Greater,
    AtLeast,
    Like,
    Unlike,
}

impl Relation {
    pub(crate) fn of(sign: &str) -> Option<Relation> {
        Some(match sign {
            "==" => Relation::Equal,
            "!=" => Relation::Unequal,
            "<" => Relation::Less,
            "<=" => Relation::AtMost,
            ">" => Relation::Greater,
            ">=" => Relation::AtLeast,
            "~" => Relation::Like,
            "!~" => Relation::Unlike,
            _ => return None,
        })
    }

    /// What holds when this does not.
    pub(crate) fn inverse(self) -> Relation {
        match self {
            Relation::Equal => Relation::Unequal,
            Relation::Unequal => Relation::Equal,
            Relation::Less => Relation::AtLeast,
            Relation::AtMost => Relation::Greater,
            Relation::Greater => Relation::AtMost,
            Relation::AtLeast => Relation::Less,
            Relation::Like => Relation::Unlike,
            Relation::Unlike => Relation::Like,
        }
    }

    /// The same with its two sides exchanged.
    pub(crate) fn mirrored(self) -> Relation {
        match self {
            Relation::Less => Relation::Greater,
            Relation::AtMost => Relation::AtLeast,
            Relation::Greater => Relation::Less,
            Relation::AtLeast => Relation::AtMost,
            same => same,
        }
    }

    /// Whether it holds between two numbers. Patterns are not for numbers.
    pub(crate) fn holds(self, a: u64, b: u64) -> bool {
        match self {
            Relation::Equal | Relation::Like => a == b,
            Relation::Unequal | Relation::Unlike => a != b,
            Relation::Less => a < b,
            Relation::AtMost => a <= b,
            Relation::Greater => a > b,
            Relation::AtLeast => a >= b,
        }
    }
}

/// Arithmetic on unsigned numbers of 64 bits, which wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Add,
    Subtract,
    Multiply,
    Remainder,
    And,
}

impl Op {
    /// The result, as the kernel's programs have it: a remainder by 0 is the number itself.
    pub(crate) fn apply(self, a: u64, b: u64) -> u64 {
        match self {
            Op::Add => a.wrapping_add(b),
            Op::Subtract => a.wrapping_sub(b),
            Op::Multiply => a.wrapping_mul(b),
            Op::Remainder => a.checked_rem(b).unwrap_or(a),
            Op::And => a & b,
        }
    }
}
