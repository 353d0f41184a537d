//! From what was written to what it means: types, names, limits.

use super::ast::{Item, Node, NodeKind, Op, Relation};
use super::error::{GateErrorKind, Span, Wrong, mismatch};
use super::fields::{Field, near};
use super::glob::{COMM_MAX, Glob};
use super::ranges::Ranges;
use super::resolve::{Place, Resolver};
use super::tree::{Tree, Value};

/// The meaning of an expression, and what is worth saying about it.
pub(crate) struct Checked {
    pub(crate) tree: Tree,
    pub(crate) notes: Vec<String>,
}

/// Checks a whole expression.
pub(crate) fn check(node: &Node, resolver: &dyn Resolver) -> Result<Checked, Wrong> {
    let mut checker = Checker { resolver, notes: Vec::new() };
    let tree = checker.condition(node)?;
    Ok(Checked { tree, notes: checker.notes })
}

struct Checker<'a> {
    resolver: &'a dyn Resolver,
    notes: Vec<String>,
}

/// What a part is, as a sentence has it.
fn describe(node: &Node) -> String {
    match &node.kind {
        NodeKind::Number(n) => format!("{n} is a number"),
        NodeKind::Text(_) => "this is a text".to_owned(),
        NodeKind::Name(name) => match name.as_str() {
            "comm" => "comm is a text".to_owned(),
            "user" | "kernel" | "true" | "false" => format!("{name} is a condition"),
            name => format!("{name} is a number"),
        },
        NodeKind::Call(name, _) => format!("{name}() is a place in code"),
        NodeKind::Arithmetic(..) => "this is a number".to_owned(),
        NodeKind::Lot(k, n) => format!("{k}/{n} is a condition: {k} of {n} samples"),
        _ => "this is a condition".to_owned(),
    }
}

fn is_name(node: &Node, wanted: &str) -> bool {
    matches!(&node.kind, NodeKind::Name(name) if name == wanted)
}

fn text_of(node: &Node) -> Option<&[u8]> {
    match &node.kind {
        NodeKind::Text(text) => Some(text),
        _ => None,
    }
}

fn unknown(name: &str, span: Span) -> Wrong {
    let wrong = Wrong::new(GateErrorKind::Name, span, format!("there is no field `{name}`"));
    match (name, near(name)) {
        ("and" | "AND", _) => wrong.hint("and is &&"),
        ("or" | "OR", _) => wrong.hint("or is ||"),
        ("not" | "NOT", _) => wrong.hint("not is !"),
        (_, Some(near)) => wrong.hint(format!("did you mean {near}?")),
        _ => wrong.hint("fields are comm pid tid cpu ip addr period cgroup user kernel time uid ppid nspid"),
    }
}

impl Checker<'_> {
    fn condition(&mut self, node: &Node) -> Result<Tree, Wrong> {
        match &node.kind {
            NodeKind::Not(inner) => Ok(Tree::Not(Box::new(self.condition(inner)?))),
            NodeKind::All(parts) => Ok(Tree::All(self.conditions(parts)?)),
            NodeKind::Any(parts) => Ok(Tree::Any(self.conditions(parts)?)),
            NodeKind::Compare(relation, a, b) => self.compare(node.span, *relation, a, b),
            NodeKind::In(value, items, not) => {
                let tree = self.within(value, items)?;
                Ok(if *not { Tree::Not(Box::new(tree)) } else { tree })
            }
            NodeKind::Lot(some, of) => lot(node.span, *some, *of),
            NodeKind::Name(name) => match name.as_str() {
                "user" => Ok(Tree::In(Value::Field(Field::User), Ranges::one(1))),
                "kernel" => Ok(Tree::In(Value::Field(Field::User), Ranges::one(0))),
                "true" => Ok(Tree::Const(true)),
                "false" => Ok(Tree::Const(false)),
                "comm" => Err(self.no_condition(node).hint("compare it: comm == \"name\"")),
                name if Field::named(name).is_some() => {
                    Err(self.no_condition(node).hint(format!("compare it: {name} == 1")))
                }
                name => Err(unknown(name, node.span)),
            },
            NodeKind::Call(name, _) => match name.as_str() {
                "symbol" | "dso" => Err(self.no_condition(node).hint(format!("ip in {name}(…)"))),
                name => Err(unknown(name, node.span)),
            },
            NodeKind::Number(_) => Err(self.no_condition(node).hint("one sample of 10 is 1/10")),
            NodeKind::Text(_) => Err(self.no_condition(node).hint("compare it: comm == \"name\"")),
            NodeKind::Arithmetic(..) => {
                // What is wrong inside comes first.
                self.value(node)?;
                Err(self.no_condition(node).hint("compare it: (…) == 0"))
            }
        }
    }

    fn conditions(&mut self, parts: &[Node]) -> Result<Vec<Tree>, Wrong> {
        parts.iter().map(|part| self.condition(part)).collect()
    }

    fn no_condition(&self, node: &Node) -> Wrong {
        mismatch(node.span, format!("{}, where a condition is expected", describe(node)))
    }

    fn compare(&mut self, span: Span, relation: Relation, a: &Node, b: &Node) -> Result<Tree, Wrong> {
        // A field or number first.
        if text_of(a).is_some() && text_of(b).is_none() && !matches!(relation, Relation::Like | Relation::Unlike) {
            return self.compare(span, relation.mirrored(), b, a);
        }
        let like = matches!(relation, Relation::Like | Relation::Unlike);
        let ordered = !like && !matches!(relation, Relation::Equal | Relation::Unequal);
        let negate = matches!(relation, Relation::Unequal | Relation::Unlike);
        let tree = if is_name(a, "comm") {
            let Some(text) = text_of(b) else {
                return Err(mismatch(b.span, format!("{}, and comm is a text", describe(b))).hint("comm == \"name\""));
            };
            if ordered {
                return Err(mismatch(span, "texts are equal or not, and match or not: == != ~ !~"));
            }
            Tree::Comm(self.comm(b.span, text, like)?)
        } else if like {
            return Err(mismatch(a.span, format!("{}: only comm matches patterns", describe(a))));
        } else if let (true, Some(path)) = (is_name(a, "cgroup"), text_of(b)) {
            if ordered {
                return Err(
                    mismatch(span, "a cgroup is equal or not").hint("cgroup in \"/path\" takes what is below it")
                );
            }
            let found = self.cgroup(b.span, path)?;
            Tree::In(Value::Field(Field::Cgroup), Ranges::one(found.id))
        } else {
            let (a, b) = (self.number(a)?, self.number(b)?);
            return Ok(Tree::Compare(relation, a, b));
        };
        Ok(if negate { Tree::Not(Box::new(tree)) } else { tree })
    }

    /// A value that is compared with a number.
    fn number(&mut self, node: &Node) -> Result<Value, Wrong> {
        match &node.kind {
            NodeKind::Name(name) if matches!(name.as_str(), "user" | "kernel" | "true" | "false") => {
                let hint = format!("{name} alone, or !{name}");
                Err(mismatch(node.span, format!("{name} is a condition and has no number")).hint(hint))
            }
            _ => self.value(node),
        }
    }

    fn value(&mut self, node: &Node) -> Result<Value, Wrong> {
        match &node.kind {
            NodeKind::Number(number) => Ok(Value::Number(*number)),
            NodeKind::Name(name) => match Field::named(name) {
                Some(field) if field != Field::User => Ok(Value::Field(field)),
                _ if matches!(name.as_str(), "user" | "kernel" | "comm" | "true" | "false") => self.no_number(node),
                _ => Err(unknown(name, node.span)),
            },
            NodeKind::Arithmetic(op, a, b) => {
                let (left, right) = (self.value(a)?, self.value(b)?);
                if *op == Op::Remainder && !matches!(constant(&right), Some(1..)) {
                    return Err(mismatch(b.span, "the right side of % is a number that is not 0"));
                }
                Ok(Value::Arithmetic(*op, Box::new(left), Box::new(right)))
            }
            NodeKind::Call(name, _) if !matches!(name.as_str(), "symbol" | "dso") => Err(unknown(name, node.span)),
            NodeKind::Call(name, _) => {
                let wrong = mismatch(node.span, format!("{}, where a number is expected", describe(node)));
                Err(wrong.hint(format!("ip in {name}(…)")))
            }
            _ => self.no_number(node),
        }
    }

    fn no_number<T>(&self, node: &Node) -> Result<T, Wrong> {
        Err(mismatch(node.span, format!("{}, where a number is expected", describe(node))))
    }

    /// A name to compare comm with.
    fn comm(&mut self, span: Span, text: &[u8], like: bool) -> Result<Glob, Wrong> {
        let glob = if like { Glob::parse(text) } else { Glob::exact(text) };
        if text.contains(&0) {
            return Err(mismatch(span, "a name has no NUL in it"));
        }
        if glob.shortest() > COMM_MAX {
            let wrong = mismatch(span, format!("the kernel keeps {COMM_MAX} bytes of a name: this never matches"));
            return Err(wrong.hint("cut it, or take a pattern: comm ~ \"name*\""));
        }
        if !like && text.iter().any(|byte| matches!(byte, b'*' | b'?')) {
            let shown = String::from_utf8_lossy(text);
            self.notes.push(format!("comm == \"{shown}\" takes that very name; a pattern is comm ~ \"{shown}\""));
        }
        Ok(glob)
    }

    fn cgroup(&mut self, span: Span, path: &[u8]) -> Result<super::resolve::Cgroup, Wrong> {
        let path = String::from_utf8_lossy(path);
        let missing = |why| Wrong::new(GateErrorKind::Name, span, format!("cgroup {path}: {why}"));
        self.resolver.cgroup(&path).map_err(missing)
    }

    fn within(&mut self, node: &Node, items: &[Item]) -> Result<Tree, Wrong> {
        if is_name(node, "comm") {
            let names = items.iter().map(|item| match item {
                Item::One(item) => match text_of(item) {
                    Some(text) => Ok(Tree::Comm(self.comm(item.span, text, false)?)),
                    None => Err(mismatch(item.span, format!("{}, and comm is a text", describe(item)))),
                },
                Item::Range(first, last) => Err(mismatch(first.span.to(last.span), "texts have no ranges")),
            });
            return Ok(Tree::Any(names.collect::<Result<_, _>>()?));
        }
        let value = self.number(node)?;
        let (mut ranges, mut parts) = (Vec::new(), Vec::new());
        for item in items {
            match item {
                Item::Range(first, last) => ranges.push(self.range(first, last)?),
                Item::One(item) => match &item.kind {
                    NodeKind::Text(path) if is_name(node, "cgroup") => parts.push(self.below(item.span, path)?),
                    NodeKind::Call(name, text) if is_name(node, "ip") => {
                        let places = self.places(item.span, name, text)?;
                        ranges.extend(places.iter().filter(|place| place.process.is_none()).filter_map(range_of));
                        parts.extend(of_processes(&places));
                    }
                    NodeKind::Call(name, _) if matches!(name.as_str(), "symbol" | "dso") => {
                        return Err(mismatch(item.span, format!("{name}() is a place in code: only ip can be in it")));
                    }
                    _ => {
                        let number = self.constant(item)?;
                        ranges.push((number, number));
                    }
                },
            }
        }
        if !ranges.is_empty() || parts.is_empty() {
            parts.insert(0, Tree::In(value, Ranges::new(ranges)));
        }
        Ok(Tree::Any(parts))
    }

    fn range(&mut self, first: &Node, last: &Node) -> Result<(u64, u64), Wrong> {
        let (low, high) = (self.constant(first)?, self.constant(last)?);
        if low > high {
            let span = first.span.to(last.span);
            return Err(mismatch(span, "a range from high to low holds nothing").hint("ranges hold both their ends"));
        }
        Ok((low, high))
    }

    fn constant(&mut self, node: &Node) -> Result<u64, Wrong> {
        let value = self.value(node)?;
        constant(&value).ok_or_else(|| mismatch(node.span, "a set holds numbers alone, no fields"))
    }

    /// The cgroup and everything below it.
    fn below(&mut self, span: Span, path: &[u8]) -> Result<Tree, Wrong> {
        let found = self.cgroup(span, path)?;
        let Some(level) = found.level else {
            let what = "what is below a cgroup is known in the first cgroup namespace alone";
            return Err(Wrong::new(GateErrorKind::Unsupported, span, what).hint("cgroup == \"/path\" takes it alone"));
        };
        Ok(Tree::In(Value::Ancestor(level), Ranges::one(found.id)))
    }

    fn places(&mut self, span: Span, name: &str, text: &[u8]) -> Result<Vec<Place>, Wrong> {
        let text = String::from_utf8_lossy(text);
        let found = match name {
            "symbol" => self.resolver.symbol(&text),
            "dso" => self.resolver.dso(&text),
            _ => return Err(unknown(name, span)),
        };
        found.map_err(|why| Wrong::new(GateErrorKind::Name, span, format!("{name} {text}: {why}")))
    }
}

fn lot(span: Span, some: u64, of: u64) -> Result<Tree, Wrong> {
    let of = u32::try_from(of).ok().filter(|&of| of > 0 && some <= u64::from(of));
    let of = of.ok_or_else(|| mismatch(span, "some of N samples are 0 to N, and N is 1 to 4294967295"))?;
    let drawn = some.checked_sub(1).map(|last| (0, last));
    Ok(Tree::In(Value::Lot(of), Ranges::new(drawn.into_iter().collect())))
}

/// The number that a value always is.
pub(crate) fn constant(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => Some(*number),
        Value::Arithmetic(op, a, b) => Some(op.apply(constant(a)?, constant(b)?)),
        Value::Field(_) | Value::Ancestor(_) | Value::Lot(_) => None,
    }
}

fn range_of(place: &Place) -> Option<(u64, u64)> {
    (place.start < place.end).then(|| (place.start, place.end - 1))
}

/// A condition for each process that has some of the places.
fn of_processes(places: &[Place]) -> Vec<Tree> {
    let mut pids: Vec<u32> = places.iter().filter_map(|place| place.process).collect();
    pids.sort_unstable();
    pids.dedup();
    let of = |pid: u32| {
        let ranges = places.iter().filter(|place| place.process == Some(pid)).filter_map(range_of).collect();
        Tree::All(vec![
            Tree::In(Value::Field(Field::Pid), Ranges::one(pid.into())),
            Tree::In(Value::Field(Field::Ip), Ranges::new(ranges)),
        ])
    };
    pids.into_iter().map(of).collect()
}
