//! Gates: expressions over a sample that say whether it is kept, compiled to instructions of the kernel's programs.
//!
//! ```text
//! text ─ lexer ─ parser ─ check (types, names) ─┬─ fold ─ emit ─ load: a program that stands before the handler
//!                                               └─ interpreter: the same verdicts, one sample at a time
//! ```
//! The language is in `docs/where.md`. A gate is a pure function of the sample. What it refuses is counted as filtered by
//! the stub; what it lets through goes on to the handler behind it.
//!
//! [`Expression::parse`] tells what is wrong with a text before anything is opened, and which fields the events have to
//! carry. [`Gate::compile`] needs to know the events, and [`Gate::load`] the maps that programs share.

mod asm;
mod ast;
mod check;
mod emit;
mod emit_comm;
mod error;
mod fields;
mod fold;
mod glob;
mod kernel;
mod lexer;
mod load;
mod parser;
mod ranges;
mod resolve;
#[cfg(test)]
mod tests;
mod tree;

use std::os::fd::{AsRawFd, OwnedFd};

use afterimage_perf_data::SampleType;

pub use error::{GateError, GateErrorKind, Span};
pub use glob::like;
pub use resolve::{Cgroup, NoNames, Place, Resolver};
pub use tree::Sample;

use crate::{Error, ErrorKind, Mechanism, Result, Shared};
use ast::Node;
use emit::{Surroundings, uses};
use error::Wrong;
use fields::Field;
use fold::{Cond, fold};
use kernel::Layout;
use tree::Tree;

/// An expression that is well formed. Its names are not looked up yet.
#[derive(Clone, Debug)]
pub struct Expression {
    text: String,
    node: Node,
    needs: SampleType,
}

impl Expression {
    /// Reads an expression and checks its types.
    ///
    /// # Errors
    /// With the place of what is wrong.
    pub fn parse(text: &str) -> Result<Expression, GateError> {
        let node = parser::parse(text).map_err(|wrong| wrong.within(text))?;
        let checked = check::check(&node, &resolve::AnyName).map_err(|wrong| wrong.within(text))?;
        let cond = fold(&checked.tree, false);
        let needs = if uses(&cond, Field::Addr) { SampleType::ADDR } else { SampleType::empty() };
        Ok(Expression { text: text.to_owned(), node, needs })
    }

    /// The expression as given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Fields that events have to be opened with for it, beyond those that all of ours have.
    pub fn needs(&self) -> SampleType {
        self.needs
    }

    /// Looks up names and compiles.
    ///
    /// # Errors
    /// For names that are not there, and for what these events, this kernel or this place do not have.
    pub fn compile(&self, resolver: &dyn Resolver, context: &Context) -> Result<Gate, GateError> {
        let within = |wrong: Wrong| wrong.within(&self.text);
        let checked = check::check(&self.node, resolver).map_err(within)?;
        let cond = fold(&checked.tree, false);
        context.check(&cond).map_err(|what| self.about(GateErrorKind::Unsupported, what))?;
        // The size does not depend on where things are.
        let layout = Layout::anywhere();
        let around = Surroundings { layout: &layout, mechanism: context.mechanism, cpus: 0, slots: 0 };
        emit::program(&cond, around).map_err(|e| self.about(GateErrorKind::TooLarge, e.cause().to_owned()))?;
        let mut notes = checked.notes;
        if let Cond::Const(always) = cond {
            let what = if always { "holds for every sample: there is no gate" } else { "holds for no sample" };
            notes.push(format!("{}: {what}", self.text));
        }
        Ok(Gate { text: self.text.clone(), tree: checked.tree, cond, notes, mechanism: context.mechanism })
    }

    /// An error about the whole of it.
    fn about(&self, kind: GateErrorKind, what: String) -> GateError {
        Wrong::new(kind, Span { start: 0, end: self.text.len() }, what).within(&self.text)
    }
}

/// Where a gate will run.
#[derive(Clone, Copy, Debug)]
pub struct Context {
    /// How its program gets at the sample.
    pub mechanism: Mechanism,
    /// The fields that all events with a stub carry.
    pub sample_type: SampleType,
    /// Whether process ids here are those of the kernel itself: helpers know no others.
    pub first_pid_namespace: bool,
}

impl Context {
    /// Of this process.
    pub fn here(mechanism: Mechanism, sample_type: SampleType) -> Context {
        Context { mechanism, sample_type, first_pid_namespace: resolve::in_first_pid_namespace() }
    }

    fn check(&self, cond: &Cond) -> Result<(), String> {
        if uses(cond, Field::Addr) && !self.sample_type.contains(SampleType::ADDR) {
            return Err("addr: the events carry no addresses, which is settled as they are opened".to_owned());
        }
        if self.first_pid_namespace {
            return Ok(());
        }
        let plain = self.mechanism == Mechanism::Plain;
        let foreign = |field: &Field| uses(cond, *field) && (plain || *field == Field::Ppid);
        match [Field::Pid, Field::Tid, Field::Ppid].into_iter().find(foreign) {
            Some(field) => Err(format!("{}: known here only in the kernel's own pid namespace", field.name())),
            None => Ok(()),
        }
    }
}

/// A compiled gate.
#[derive(Clone, Debug)]
pub struct Gate {
    text: String,
    tree: Tree,
    cond: Cond,
    notes: Vec<String>,
    mechanism: Mechanism,
}

impl Gate {
    /// Reads, checks and compiles an expression.
    ///
    /// # Errors
    /// As [`Expression::parse`] and [`Expression::compile`].
    pub fn compile(text: &str, resolver: &dyn Resolver, context: &Context) -> Result<Gate, GateError> {
        Expression::parse(text)?.compile(resolver, context)
    }

    /// The expression as given.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What is worth saying about it, a line each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The verdict on every sample, where it is always the same.
    pub fn always(&self) -> Option<bool> {
        match self.cond {
            Cond::Const(verdict) => Some(verdict),
            _ => None,
        }
    }

    /// Loads the program for [`crate::Handlers::set_gate`]; `None` when every sample passes, which takes no program.
    ///
    /// # Errors
    /// Without CAP_BPF and CAP_PERFMON, and when the kernel lacks what the expression reads.
    pub fn load(&self, shared: &Shared) -> Result<Option<OwnedFd>> {
        if self.always() == Some(true) {
            return Ok(None);
        }
        let map = |name: &str| {
            let missing = || Error::new(ErrorKind::System, "loading the gate", format!("no map {name}"));
            shared.map(name).map(|fd| fd.as_raw_fd()).ok_or_else(missing)
        };
        let layout = Layout::running()?;
        let (cpus, slots) = (map("ai_cpus")?, map("ai_slots")?);
        let around = Surroundings { layout, mechanism: shared.mechanism, cpus, slots };
        load::load(&emit::program(&self.cond, around)?).map(Some)
    }

    /// The verdict on one sample, by the plain meaning of the expression.
    pub fn passes(&self, sample: &Sample) -> bool {
        self.tree.holds(sample)
    }

    /// Instructions of its program.
    pub fn size(&self) -> usize {
        let layout = Layout::anywhere();
        let around = Surroundings { layout: &layout, mechanism: self.mechanism, cpus: 0, slots: 0 };
        emit::program(&self.cond, around).map_or(0, |insns| insns.len())
    }
}

/// For fuzzing: compiles a text for both mechanisms, and asks of both forms of it for a verdict.
#[doc(hidden)]
pub fn fuzz(text: &str) {
    for mechanism in [Mechanism::Kfuncs, Mechanism::Plain] {
        let context = Context { mechanism, sample_type: SampleType::all(), first_pid_namespace: true };
        match Gate::compile(text, &resolve::AnyName, &context) {
            Ok(gate) => {
                let verdict = gate.passes(&Sample::default());
                assert!(gate.always().is_none_or(|always| always == verdict), "{text}");
                assert!(gate.always() == Some(true) || gate.size() > 0, "{text}");
            }
            Err(error) => assert!(!error.picture().is_empty() && !error.to_string().is_empty()),
        }
    }
}
