//! The shortest form that means the same: negations at the leaves, constants gone, tests of one value put together.

use super::ast::{Op, Relation};
use super::check::constant;
use super::glob::Glob;
use super::ranges::Ranges;
use super::tree::{Tree, Value};

/// A condition to compile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cond {
    Const(bool),
    All(Vec<Cond>),
    Any(Vec<Cond>),
    /// Neither empty nor everything that the value can be.
    In(Value, Ranges),
    Compare(Relation, Value, Value),
    /// The flag is what a match means.
    Comm(Glob, bool),
}

/// Folds a condition, or the opposite of it.
pub(crate) fn fold(tree: &Tree, negate: bool) -> Cond {
    match tree {
        Tree::Const(value) => Cond::Const(*value != negate),
        Tree::Not(inner) => fold(inner, !negate),
        Tree::All(parts) => join(parts, negate, !negate),
        Tree::Any(parts) => join(parts, negate, negate),
        Tree::Compare(relation, a, b) => {
            let relation = if negate { relation.inverse() } else { *relation };
            compare(relation, value(a), value(b))
        }
        Tree::In(of, ranges) => {
            let of = value(of);
            let ranges = if negate { ranges.complement(max(&of)) } else { ranges.clone() };
            within(of, &ranges)
        }
        Tree::Comm(glob) if glob.is_open() => Cond::Const(!negate),
        Tree::Comm(glob) => Cond::Comm(glob.clone(), !negate),
    }
}

fn join(parts: &[Tree], negate: bool, all: bool) -> Cond {
    let mut joined: Vec<Cond> = Vec::new();
    for part in parts {
        match (fold(part, negate), all) {
            (Cond::Const(value), all) if value == all => {}
            (Cond::Const(value), _) => return Cond::Const(value),
            (Cond::All(more), true) | (Cond::Any(more), false) => {
                more.into_iter().for_each(|c| add(&mut joined, c, all))
            }
            (cond, all) => add(&mut joined, cond, all),
        }
    }
    // Tests of one value may have become none, or all.
    if joined.contains(&Cond::Const(!all)) {
        return Cond::Const(!all);
    }
    joined.retain(|cond| *cond != Cond::Const(all));
    match joined.len() {
        0 => Cond::Const(all),
        1 => joined.remove(0),
        _ if all => Cond::All(joined),
        _ => Cond::Any(joined),
    }
}

/// Adds a part to those that all have to hold, or one of which has to.
fn add(parts: &mut Vec<Cond>, cond: Cond, all: bool) {
    if let Cond::In(value, ranges) = &cond {
        let same = |part: &&mut Cond| matches!(part, Cond::In(of, _) if of == value);
        let found = parts.iter_mut().find(same);
        if let Some((part, Cond::In(_, have))) = found.map(|part| (part.clone(), part)).map(|(old, part)| (part, old)) {
            let joined = if all { have.intersect(ranges) } else { have.union(ranges) };
            *part = within(value.clone(), &joined);
            return;
        }
    }
    if !parts.contains(&cond) {
        parts.push(cond);
    }
}

fn compare(relation: Relation, a: Value, b: Value) -> Cond {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => Cond::Const(relation.holds(a, b)),
        (Value::Number(a), b) => within(b, &those(relation.mirrored(), a)),
        (a, Value::Number(b)) => within(a, &those(relation, b)),
        (a, b) if a == b => Cond::Const(relation.holds(0, 0)),
        (a, b) => Cond::Compare(relation, a, b),
    }
}

/// The numbers that are in this relation to a number.
fn those(relation: Relation, number: u64) -> Ranges {
    let below = || number.checked_sub(1).map(|last| (0, last));
    let above = || number.checked_add(1).map(|first| (first, u64::MAX));
    Ranges::new(match relation {
        Relation::Equal | Relation::Like => vec![(number, number)],
        Relation::Unequal | Relation::Unlike => below().into_iter().chain(above()).collect(),
        Relation::Less => below().into_iter().collect(),
        Relation::AtMost => vec![(0, number)],
        Relation::Greater => above().into_iter().collect(),
        Relation::AtLeast => vec![(number, u64::MAX)],
    })
}

fn within(of: Value, ranges: &Ranges) -> Cond {
    let all = Ranges::up_to(max(&of));
    let ranges = ranges.intersect(&all);
    if let Some(number) = constant(&of) {
        return Cond::Const(ranges.contains(number));
    }
    if ranges.is_empty() {
        return Cond::Const(false);
    }
    if ranges == all { Cond::Const(true) } else { Cond::In(of, ranges) }
}

/// The highest that a value can be.
pub(crate) fn max(of: &Value) -> u64 {
    match of {
        Value::Number(number) => *number,
        Value::Field(field) => field.max(),
        Value::Ancestor(_) => u64::MAX,
        Value::Lot(of) => u64::from(*of).saturating_sub(1),
        Value::Arithmetic(Op::And, a, b) => max(a).min(max(b)),
        Value::Arithmetic(Op::Remainder, a, b) => match **b {
            Value::Number(by @ 1..) => max(a).min(by - 1),
            _ => max(a),
        },
        Value::Arithmetic(Op::Add, a, b) => max(a).saturating_add(max(b)),
        Value::Arithmetic(Op::Multiply, a, b) => max(a).saturating_mul(max(b)),
        Value::Arithmetic(Op::Subtract, ..) => u64::MAX,
    }
}

fn value(of: &Value) -> Value {
    match of {
        Value::Arithmetic(op, a, b) => match (value(a), value(b)) {
            (Value::Number(a), Value::Number(b)) => Value::Number(op.apply(a, b)),
            (a, b) => Value::Arithmetic(*op, Box::new(a), Box::new(b)),
        },
        other => other.clone(),
    }
}
