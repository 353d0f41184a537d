//! `-F`: which fields a line holds, per kind of event.

use afterimage_perf_data::attr::Attr;

use super::fields::{Field, Fields, KNOWN, named};
use crate::exit::{Problem, not_yet};

/// The kinds of events that perf gives fields of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Hardware,
    Software,
    Tracepoint,
    Raw,
    Breakpoint,
    Other,
}

impl Class {
    const ALL: [Class; 6] =
        [Class::Hardware, Class::Software, Class::Tracepoint, Class::Raw, Class::Breakpoint, Class::Other];

    /// The class of an event by `perf_event_attr.type`.
    pub(crate) fn of(attr: &Attr) -> Self {
        match attr.kind {
            0 | 3 => Class::Hardware,
            1 => Class::Software,
            2 => Class::Tracepoint,
            4 => Class::Raw,
            5 => Class::Breakpoint,
            _ => Class::Other,
        }
    }

    /// What is printed when `-F` says nothing.
    fn default(self) -> Fields {
        use Field::*;
        const HEAD: Fields = Fields::of(&[Comm, Tid, Cpu, Time, Event, Label, Value]);
        const CODE: Fields = Fields::of(&[Ip, Sym, SymOff, Dso]);
        const PERIOD: Fields = Fields::of(&[Period]);
        const MEMORY: Fields = Fields::of(&[Addr, DataSrc, Weight, InsLat, PhysAddr, DataPageSize, CodePageSize]);
        match self {
            Class::Tracepoint => HEAD.plus(Fields::of(&[Trace])),
            Class::Software => HEAD.plus(CODE).plus(PERIOD).plus(Fields::of(&[BpfOutput])),
            Class::Raw => HEAD.plus(CODE).plus(PERIOD).plus(MEMORY),
            Class::Hardware | Class::Breakpoint | Class::Other => HEAD.plus(CODE).plus(PERIOD),
        }
    }

    /// What makes no sense for the class and is left out without a word.
    fn excluded(self) -> Fields {
        match self {
            Class::Tracepoint => Fields::of(&[Field::BpfOutput]),
            Class::Software => Fields::of(&[Field::Trace]),
            _ => Fields::of(&[Field::Trace, Field::BpfOutput]),
        }
    }
}

/// What `-F` asked for, per class.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    fields: [Fields; 6],
    /// Given on the command line, so that a field without data is an error and not left out.
    asked: [bool; 6],
}

impl Choice {
    /// The fields of `-F LIST`, or the usual ones.
    ///
    /// `LIST` is `[hw:|sw:|trace:|raw:|bp:]FIELD,…`; each field may be added to the usual ones by `+` or taken out
    /// by `-`.
    pub(crate) fn parse(lists: &[String]) -> anyhow::Result<Self> {
        let mut choice = Choice { fields: Class::ALL.map(Class::default), asked: [false; 6] };
        for list in lists {
            choice.apply(list)?;
        }
        Ok(choice)
    }

    fn apply(&mut self, list: &str) -> anyhow::Result<()> {
        let (classes, names) = split_class(list)?;
        let words: Vec<&str> = names.split(',').map(str::trim).filter(|w| !w.is_empty()).collect();
        if words.is_empty() {
            return Err(Problem::usage(format!("-F {list}: no field"))
                .hint("for example -F comm,tid,time,event,ip,sym")
                .into());
        }
        let relative = words.iter().filter(|w| w.starts_with(['+', '-'])).count();
        if relative != 0 && relative != words.len() {
            return Err(Problem::usage(format!("-F {list}: fields with and without + or - cannot be mixed")).into());
        }
        for class in classes {
            let i = *class as usize;
            if relative == 0 {
                self.fields[i] = Fields::default();
                self.asked[i] = true;
            }
            for word in &words {
                let field = Fields::of(&[named(word.trim_start_matches(['+', '-']))?]).minus(class.excluded());
                self.fields[i] =
                    if word.starts_with('-') { self.fields[i].minus(field) } else { self.fields[i].plus(field) };
            }
        }
        Ok(())
    }

    /// The fields of all events of a class, given the first of them and whether any event has call chains.
    ///
    /// What the event does not carry is left out, or refused when it was asked for by name.
    pub(crate) fn for_class(&self, class: Class, first: &Attr, name: &str, chains: bool) -> anyhow::Result<Fields> {
        let mut fields = self.fields[class as usize];
        let asked = self.asked[class as usize];
        if class == Class::Tracepoint && !asked && chains {
            fields = fields.plus(Fields::of(&[Field::Ip, Field::Sym, Field::SymOff, Field::Dso]));
        }
        for known in &KNOWN {
            let lacking = !known.needs.is_empty() && !first.sample_type.intersects(known.needs);
            if !fields.has(known.field) || !lacking {
                continue;
            }
            if asked && known.refused {
                let word = known.name;
                let what = format!("the samples of '{name}' carry no {word}: cannot print it");
                return Err(Problem::failed(what).hint(format!("leave {word} out of -F")).into());
            }
            fields = fields.minus(Fields::of(&[known.field]));
        }
        Ok(fields)
    }
}

fn split_class(list: &str) -> anyhow::Result<(&'static [Class], &str)> {
    let Some((word, rest)) = list.split_once(':') else { return Ok((&Class::ALL, list)) };
    let classes: &'static [Class] = match word {
        "hw" => &[Class::Hardware],
        "sw" => &[Class::Software],
        "trace" => &[Class::Tracepoint],
        "raw" => &[Class::Raw],
        "bp" => &[Class::Breakpoint],
        "synth" => return Err(not_yet("-F synth:")),
        _ => return Err(Problem::usage(format!("-F {list}: no kind of event is called {word}")).into()),
    };
    Ok((classes, rest))
}

#[cfg(test)]
mod tests {
    use afterimage_perf_data::SampleType;

    use super::*;

    fn attr(kind: u32, sample_type: SampleType) -> Attr {
        Attr { kind, sample_type, ..Attr::default() }
    }

    fn fields(lists: &[&str], attr: &Attr, chains: bool) -> anyhow::Result<Fields> {
        let lists: Vec<String> = lists.iter().map(|l| (*l).to_owned()).collect();
        Choice::parse(&lists)?.for_class(Class::of(attr), attr, "cpu-clock", chains)
    }

    const USUAL: SampleType = SampleType::IP.union(SampleType::TID).union(SampleType::TIME).union(SampleType::PERIOD);

    #[test]
    fn without_a_list_a_line_holds_what_the_event_carries() {
        use Field::*;
        let got = fields(&[], &attr(1, USUAL), false).unwrap();
        assert_eq!(got, Fields::of(&[Comm, Tid, Time, Event, Ip, Sym, SymOff, Dso, Period, Label, Value]));
        let with_cpu = fields(&[], &attr(1, USUAL.union(SampleType::CPU)), false).unwrap();
        assert!(with_cpu.has(Cpu));
    }

    #[test]
    fn tracepoints_show_code_only_with_chains() {
        let point = attr(2, USUAL.union(SampleType::RAW));
        assert!(!fields(&[], &point, false).unwrap().has(Field::Ip));
        assert!(fields(&[], &point, true).unwrap().has(Field::Ip));
        assert!(!fields(&["comm,event"], &point, true).unwrap().has(Field::Ip));
    }

    #[test]
    fn a_list_replaces_and_signs_change() {
        use Field::*;
        let clock = attr(1, USUAL);
        assert_eq!(fields(&["comm,ip"], &clock, false).unwrap(), Fields::of(&[Comm, Ip]));
        let less = fields(&["-period,-symoff"], &clock, false).unwrap();
        assert_eq!(less, Fields::of(&[Comm, Tid, Time, Event, Ip, Sym, Dso, Label, Value]));
        assert!(fields(&["+addr"], &attr(1, USUAL.union(SampleType::ADDR)), false).unwrap().has(Addr));
        assert!(!fields(&["sw:comm"], &clock, false).unwrap().has(Ip));
        assert!(fields(&["hw:comm"], &clock, false).unwrap().has(Ip));
    }

    #[test]
    fn what_cannot_be_printed_is_refused_by_name() {
        let clock = attr(1, USUAL);
        let error = fields(&["comm,cpu"], &clock, false).unwrap_err();
        assert_eq!(error.to_string(), "the samples of 'cpu-clock' carry no cpu: cannot print it");
        for (list, says) in [
            ("comm,srccode", "-F srccode: not supported yet"),
            ("comm,nonsense", "-F nonsense: no such field"),
            ("", "-F : no field"),
            ("comm,-ip", "-F comm,-ip: fields with and without + or - cannot be mixed"),
            ("tp:comm", "-F tp:comm: no kind of event is called tp"),
        ] {
            assert_eq!(fields(&[list], &clock, false).unwrap_err().to_string(), says);
        }
    }
}
