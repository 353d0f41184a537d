//! Labels of samples as something that tells rows apart, and what was said altogether.

use std::collections::BTreeMap;
use std::sync::Arc;

use afterimage_perf_data::Private;
use rustc_hash::FxHashMap;

use crate::said::{Said, SaidTypes};

/// The value of a label.
#[derive(Clone, Debug, PartialEq)]
pub struct Label {
    /// As text; a string without quotes, what cannot be read as hex digits with the reason.
    pub text: String,
    /// As JSON; what cannot be read as `{"bytes", "reason"}`.
    pub json: serde_json::Value,
}

impl Label {
    /// What a handler said, read by its types.
    pub fn of(types: &SaidTypes<'_>, said: &Said<'_>) -> Label {
        match types.read(said) {
            Ok(value) => Label { text: value.bare(), json: value.to_json() },
            Err(reason) => {
                let bytes: String = said.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                let text = format!("{}{bytes} ({reason})", if bytes.is_empty() { "" } else { "0x" });
                let json = serde_json::json!({"bytes": bytes, "reason": reason.to_string()});
                Label { text, json }
            }
        }
    }
}

/// Values of one type, or labels of one name, that handlers wrote of an event's samples.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SaidSum {
    /// Which event, as an index into the recording's events.
    pub event: usize,
    /// The handler's name, where it is known.
    pub handler: Option<String>,
    /// The label's name; `None` for values.
    pub label: Option<String>,
    /// The type as C writes it, where it is known.
    pub type_name: Option<String>,
    /// How many there are.
    pub records: u64,
    /// Those of them that cannot be read.
    pub unreadable: u64,
}

/// Number of a combination of label values; 0 is that of none at all.
pub(crate) type LabelsId = u32;

/// The labels that rows are told apart by.
#[derive(Debug, Default)]
pub(crate) struct Labels<'f> {
    wanted: Vec<String>,
    types: SaidTypes<'f>,
    /// Numbers of values (from 1 on) by what was said: by handler and type, then by the bytes.
    known: FxHashMap<(u16, Option<u32>), Numbers>,
    /// The same by the text: two types may show the same.
    by_text: FxHashMap<String, u32>,
    values: Vec<Arc<Label>>,
    combinations: FxHashMap<Box<[u32]>, LabelsId>,
    /// By number less one.
    list: Vec<Box<[u32]>>,
    /// By event, handler and type.
    sums: BTreeMap<(usize, u16, Option<u32>), Sums>,
}

/// Numbers of values of one type.
type Numbers = FxHashMap<Box<[u8]>, u32>;

/// How many were said, and how many of them cannot be read.
type Sum = (u64, u64);

#[derive(Debug, Default)]
struct Sums {
    values: Option<Sum>,
    /// By name.
    labels: BTreeMap<Box<[u8]>, Sum>,
}

impl Sums {
    fn add(&mut self, key: Option<&[u8]>, fits: bool) {
        let count = |sum: &mut Sum| {
            sum.0 += 1;
            sum.1 += u64::from(!fits);
        };
        match key {
            None => count(self.values.get_or_insert_default()),
            // A name is copied only when it comes for the first time.
            Some(key) => match self.labels.get_mut(key) {
                Some(sum) => count(sum),
                None => count(self.labels.entry(key.into()).or_default()),
            },
        }
    }
}

impl<'f> Labels<'f> {
    pub(crate) fn new(wanted: &[String], private: Option<&'f Private>) -> Labels<'f> {
        Labels { wanted: wanted.to_vec(), types: SaidTypes::new(private), ..Labels::default() }
    }

    /// Counts what was said of a sample of an event, and gives the combination of its labels that are asked for.
    pub(crate) fn take(&mut self, event: usize, said: &[Said<'_>]) -> LabelsId {
        let mut combination = vec![0; self.wanted.len()];
        for one in said {
            let fits = self.types.fits(one);
            self.sums.entry((event, one.handler, one.type_id)).or_default().add(one.key, fits);
            let place = one.key.and_then(|key| self.wanted.iter().position(|wanted| wanted.as_bytes() == key));
            if let Some(place) = place {
                // Of two labels of one name the last one holds.
                combination[place] = self.number(one);
            }
        }
        if combination.iter().all(|value| *value == 0) {
            return 0;
        }
        if let Some(id) = self.combinations.get(&*combination) {
            return *id;
        }
        let combination: Box<[u32]> = combination.into();
        self.list.push(combination.clone());
        let id = LabelsId::try_from(self.list.len()).unwrap_or(LabelsId::MAX);
        self.combinations.insert(combination, id);
        id
    }

    fn number(&mut self, said: &Said<'_>) -> u32 {
        let key = (said.handler, said.type_id);
        if let Some(number) = self.known.get(&key).and_then(|values| values.get(said.bytes)) {
            return *number;
        }
        let label = Label::of(&self.types, said);
        let next = u32::try_from(self.values.len() + 1).unwrap_or(u32::MAX);
        let number = *self.by_text.entry(label.text.clone()).or_insert(next);
        if number == next {
            self.values.push(Arc::new(label));
        }
        self.known.entry(key).or_default().insert(said.bytes.into(), number);
        number
    }

    /// What is left of it when all samples were seen.
    pub(crate) fn finish(self) -> (KnownLabels, Vec<SaidSum>) {
        let text = |text: std::borrow::Cow<'_, str>| text.into_owned();
        let sum_of = |event: usize, key: Option<&[u8]>, handler: u16, type_id: Option<u32>, sum: Sum| {
            let said = Said { handler, generation: 0, key, type_id, bytes: &[] };
            SaidSum {
                event,
                handler: self.types.handler(handler).map(str::to_owned),
                label: said.name().map(text),
                type_name: self.types.type_name(&said).map(text),
                records: sum.0,
                unreadable: sum.1,
            }
        };
        let mut sums = Vec::new();
        for ((event, handler, type_id), of) in &self.sums {
            let values = of.values.map(|sum| (None, sum));
            let labels = of.labels.iter().map(|(key, sum)| (Some(&**key), *sum));
            sums.extend(values.into_iter().chain(labels).map(|(key, sum)| (*event, key, *handler, *type_id, sum)));
        }
        // Values first, then labels by name.
        sums.sort();
        let sums =
            sums.into_iter().map(|(event, key, handler, type_id, sum)| sum_of(event, key, handler, type_id, sum));
        let sums = sums.collect();
        (KnownLabels { values: self.values, list: self.list }, sums)
    }
}

/// Values of labels by number.
#[derive(Debug, Default)]
pub(crate) struct KnownLabels {
    values: Vec<Arc<Label>>,
    list: Vec<Box<[u32]>>,
}

impl KnownLabels {
    /// The value of the label that was asked for in place `nth`.
    pub(crate) fn get(&self, id: LabelsId, nth: usize) -> Option<&Arc<Label>> {
        let combination = self.list.get((id as usize).checked_sub(1)?)?;
        self.values.get((*combination.get(nth)? as usize).checked_sub(1)?)
    }
}
