//! The report as one JSON object, `afterimage/report/1`. Keys are only ever added.

use std::io::{self, Write};

use afterimage_perf_data::Private;
use afterimage_profile::{FilterKind, Key, Profile, Row, SaidSum, SortKey, TallySource, Weight};
use serde_json::{Map, Value, json};

use super::cell::transaction;
use super::columns::TraceColumns;
use super::graph::percent_of;
use super::keys::Shown;
use super::{Plan, order, stdio, unwound};
use crate::events::{off_cpu_of, tally_of, wakers_of};
use crate::texts::identity;

/// Writes the chosen events.
pub(super) fn write(
    out: &mut dyn Write,
    profile: &Profile,
    private: &Private,
    plan: &Plan,
    chosen: &[usize],
    not_used: Value,
) -> io::Result<()> {
    let mut object = Map::new();
    object.insert("schema".into(), "afterimage/report/1".into());
    object.insert("tally".into(), json!(profile.tally.total()));
    object.insert("gates".into(), json!(private.gates));
    object.insert("text_ways".into(), json!(private.ways));
    object.insert("tally_source".into(), source(profile.tally_source).into());
    object.insert("complete".into(), json!(profile.tally.complete && profile.stats.finished));
    object.insert("error".into(), json!(profile.stats.error.as_ref().map(ToString::to_string)));
    object.insert("unwound".into(), unwound::json(&profile.stats.stack_ends));
    object.insert("events".into(), chosen.iter().map(|event| one_event(profile, plan, *event)).collect());
    let unresolved =
        profile.unresolved.iter().map(|(reason, samples)| json!({"reason": reason.key(), "samples": samples}));
    object.insert("unresolved".into(), unresolved.collect());
    object.insert("not_used".into(), not_used);
    serde_json::to_writer(&mut *out, &Value::Object(object))?;
    writeln!(out)
}

/// Who counted: the recorder at the end or on its way, or we from the records, where nothing else is there.
pub(super) fn source(source: TallySource) -> &'static str {
    match source {
        TallySource::Recording => "recording",
        TallySource::Journal => "journal",
        TallySource::Records => "records",
    }
}

fn one_event(profile: &Profile, plan: &Plan, event: usize) -> Value {
    let shown = &profile.events[event];
    let total = plan.whole(shown).period;
    let tally = tally_of(profile, event);
    let mut rows = profile.rows(event);
    rows.retain(|row| plan.shows(row, total));
    let row = |nth: usize| (&rows[nth], &plan.columns);
    let order = order::order(plan, &rows, |_| &plan.columns, |a, b| order::by_texts(plan, row(a), row(b)));
    let rows: Vec<Value> = order.iter().map(|nth| one_row(&rows[*nth], plan, total, &plan.columns)).collect();
    let mut object = Map::new();
    object.insert("name".into(), json!(&*shown.name));
    object.insert("samples".into(), json!(shown.total.samples));
    object.insert("period".into(), json!(shown.total.period));
    object.insert("unit".into(), json!(shown.unit.symbol()));
    object.insert("left_out".into(), left_out(&shown.left_out));
    if plan.branches {
        object.insert("branches_of".into(), branches_of(stdio::branch_samples(shown)));
    }
    object.insert("percent_of".into(), json!({"samples": plan.whole(shown).samples, "period": total}));
    object.insert("tally".into(), json!(tally.map(|t| &t.sum)));
    if let Some(waits) = off_cpu_of(profile, event) {
        object.insert("waits".into(), json!(waits));
        object.insert("reason".into(), "waits are not sampled: see waits".into());
    } else if let Some(wakers) = wakers_of(profile, event) {
        object.insert("waits".into(), json!(wakers));
        object.insert("reason".into(), "waits are not sampled: see waits".into());
    } else if tally.is_none() {
        // What a handler wrote beside the samples is counted with them.
        let of = shown
            .name
            .rsplit_once('/')
            .map(|(of, _)| of)
            .filter(|of| profile.tally.events.iter().any(|t| t.name == *of));
        let reason = of.map_or("not carried".to_owned(), |of| format!("part of the tally of {of}"));
        object.insert("reason".into(), reason.into());
    }
    // Of the first seconds alone; an audit to the end stands in the tally.
    if let Some(audit) = tally.and_then(|tally| tally.audit) {
        object.insert("audit".into(), json!(audit));
    }
    let per_cpu =
        tally.map(|t| t.per_cpu.iter().map(|(cpu, tally)| json!({"cpu": cpu, "tally": tally})).collect::<Vec<_>>());
    object.insert("tally_per_cpu".into(), json!(per_cpu));
    object.insert("user_stacks".into(), json!({"all": shown.user_stacks, "ending_early": shown.short_user_stacks}));
    let said = |labels: bool| -> Value {
        let of_event = profile.said.iter().filter(|said| said.event == shown.event && said.label.is_some() == labels);
        of_event.map(one_said).collect()
    };
    object.insert("values".into(), said(false));
    object.insert("labels".into(), said(true));
    object.insert("rows".into(), rows.into());
    Value::Object(object)
}

/// The samples whose branches are looked at, those that have none, and those that filters left out before.
pub(super) fn branches_of([with, without, left_out]: [u64; 3]) -> Value {
    json!({"samples": with, "without": without, "left_out": left_out})
}

/// What filters left out of an event.
pub(super) fn left_out(left_out: &[(FilterKind, Weight)]) -> Value {
    let one = |(kind, left): &(FilterKind, Weight)| json!({"filter": kind.option(), "samples": left.samples, "period": left.period});
    left_out.iter().map(one).collect()
}

fn one_said(said: &SaidSum) -> Value {
    let mut object = Map::new();
    if let Some(label) = &said.label {
        object.insert("name".into(), json!(label));
    }
    object.insert("type".into(), json!(said.type_name));
    object.insert("handler".into(), json!(said.handler));
    object.insert("records".into(), json!(said.records));
    object.insert("unreadable".into(), json!(said.unreadable));
    Value::Object(object)
}

pub(super) fn one_row(row: &Row, plan: &Plan, total: u64, columns: &TraceColumns) -> Value {
    let mut object = Map::new();
    object.insert("percent".into(), json!(percent_of(row.own.period, total)));
    if plan.children {
        object.insert("children_percent".into(), json!(percent_of(row.children.period, total)));
        object.insert("children_samples".into(), json!(row.children.samples));
        object.insert("children_period".into(), json!(row.children.period));
    }
    for shown in &plan.keys.shown {
        if let Shown::Mode(mode) = shown {
            let name = format!("{}_percent", mode.title().replace(' ', "_"));
            object.insert(name, json!(percent_of(mode.of(row), total)));
        }
    }
    object.insert("samples".into(), json!(row.own.samples));
    object.insert("period".into(), json!(row.own.period));
    for key in &row.keys {
        match key {
            Key::Label(name, value) => {
                let value = value.as_ref().map_or(Value::Null, |value| value.json.clone());
                member(&mut object, "labels", name, value);
            }
            Key::Column(nth, value) => {
                let value = value.and_then(|value| columns.text(*nth, value));
                let word = plan.keys.fields.get(usize::from(*nth)).map_or("trace", |word| word);
                member(&mut object, "trace", word, json!(value));
            }
            key => one_key(&mut object, key),
        }
    }
    Value::Object(object)
}

/// Puts a member into an object within the row.
fn member(row: &mut Map<String, Value>, object: &str, name: &str, value: Value) {
    let inner = row.entry(object).or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(inner) = inner {
        inner.insert(name.to_owned(), value);
    }
}

fn one_key(object: &mut Map<String, Value>, key: &Key) {
    let mut put = |name: &str, value: Value| object.insert(name.into(), value);
    match key {
        Key::Comm(comm) => put("comm", json!(&**comm)),
        Key::Event(event) => put("event", json!(&**event)),
        Key::Cgroup(cgroup) => put("cgroup", json!(&**cgroup)),
        Key::Cpu(cpu) => put("cpu", json!(cpu)),
        Key::Pid(pid, comm) => {
            put("process", json!(&**comm));
            put("pid", json!(pid))
        }
        Key::Tid(tid, comm) => {
            put("thread", json!(&**comm));
            put("tid", json!(tid))
        }
        Key::Dso(dso) => {
            put("dso_path", json!(dso.long));
            put("build_id", json!(dso.build_id.as_ref().map(ToString::to_string)));
            put("dso", json!(dso.short))
        }
        Key::Srcline(line) => {
            put("source", json!(line.as_ref().and_then(|line| line.text.as_deref())));
            put("file", json!(line.as_ref().map(|line| &*line.file)));
            put("line", json!(line.as_ref().map(|line| line.line)));
            put("srcline", json!(line.as_ref().map(ToString::to_string)))
        }
        Key::Line(SortKey::Srcfile, line) => put("srcfile", json!(line.as_ref().map(|line| line.file_name()))),
        Key::Line(key, line) => put(key.name(), json!(line.as_ref().map(ToString::to_string))),
        Key::Label(..) | Key::Column(..) => None,
        Key::Text(text) => put("text", text.as_ref().map_or(Value::Null, |text| identity(text).into())),
        Key::Sym(frame) => {
            put("level", json!(frame.level().to_string()));
            match &frame.symbol {
                Ok(name) => put("sym", json!(&**name)),
                Err(reason) => {
                    put("address", json!(format!("{:#x}", frame.addr)));
                    put("reason", json!(reason.key()));
                    put("sym", Value::Null)
                }
            }
        }
        Key::Container(container) => put(
            "container",
            container.as_ref().map_or(
                Value::Null,
                |of| json!({"runtime": of.runtime.key(), "id": of.id, "pod": of.pod, "shown": of.to_string()}),
            ),
        ),
        Key::CgroupId(id) => {
            put("cgroup_inode", json!(id.map(|(_, ino)| ino)));
            put("cgroup_device", json!(id.map(|(dev, _)| dev)))
        }
        Key::Number(SortKey::Transaction, flags) => {
            let mut words = String::new();
            // Writing to a String does not fail.
            let _ = flags.map(|flags| transaction(&mut words, flags));
            put("transaction_words", json!(flags.map(|_| words.trim_end())));
            put("transaction", json!(flags))
        }
        Key::Number(key, number) => {
            let is_address = matches!(key, SortKey::Addr | SortKey::PhysDaddr);
            let value = if is_address { json!(number.map(|addr| format!("{addr:#x}"))) } else { json!(number) };
            let ns = if *key == SortKey::Time { "_ns" } else { "" };
            put(&format!("{key}{ns}"), value)
        }
        Key::Source(key, source) => {
            let text = source.map(|source| match key {
                SortKey::Mem => source.level().to_string(),
                SortKey::Snoop => source.snoop().to_string(),
                SortKey::Tlb => source.translation().to_string(),
                SortKey::Locked => source.locked().to_owned(),
                _ => source.blocked().trim_start().to_owned(),
            });
            put(key.name(), json!(text))
        }
        Key::Place(key @ SortKey::DsoDaddr, place) => {
            put(key.name(), json!(place.as_ref().map(|(frame, _)| frame.data_object())))
        }
        Key::Place(key @ (SortKey::DsoFrom | SortKey::DsoTo), place) => {
            put(key.name(), json!(place.as_ref().map(|(frame, _)| &frame.dso.short)))
        }
        Key::Place(key @ (SortKey::AddrFrom | SortKey::AddrTo), place) => {
            let addr = place.as_ref().and_then(|(_, addr)| *addr);
            put(key.name(), json!(addr.map(|addr| format!("{addr:#x}"))))
        }
        Key::Place(key, None) => {
            put(&format!("{key}_reason"), "the samples carry none".into());
            put(key.name(), Value::Null)
        }
        Key::Place(key, Some((frame, addr))) => {
            if let Some(addr) = addr {
                put(&format!("{key}_address"), json!(format!("{addr:#x}")));
            }
            match &frame.symbol {
                Ok(name) => put(key.name(), json!(&**name)),
                Err(reason) => {
                    if addr.is_none() {
                        put(&format!("{key}_address"), json!(format!("{:#x}", frame.addr)));
                    }
                    put(&format!("{key}_reason"), json!(reason.key()));
                    put(key.name(), Value::Null)
                }
            }
        }
        Key::Flag(key, holds) => put(key.name(), json!(holds)),
        Key::Parent(parent) => put("parent", json!(parent.as_ref().and_then(|frame| frame.symbol.as_deref().ok()))),
    };
}
