//! Each readout as one JSON object on a line, `afterimage/by/1`. Keys are only ever added.

use std::io::{self, Write};

use afterimage_perf_data::RecordingTally;
use afterimage_recorder::by::{At, EventRows, Field, Key, Labelled, Readout, Row, Value as By, bucket_range};
use serde_json::{Map, Value, json};

use super::Show;

pub(super) fn write(
    out: &mut dyn Write,
    show: &Show,
    readout: &Readout,
    tally: Option<&RecordingTally>,
) -> io::Result<()> {
    let events = readout.events.iter().enumerate().map(|(index, event)| {
        let tally = tally.and_then(|tally| tally.events.get(index));
        json!({
            "name": event.name,
            "samples": samples(event),
            "tally": tally.map(|tally| &tally.sum),
            "tally_per_cpu": tally.map(|tally| {
                tally.per_cpu.iter().map(|(cpu, tally)| json!({"cpu": cpu, "tally": tally})).collect::<Vec<_>>()
            }),
            "rows": event.rows.iter().map(|row| one_row(show, row)).collect::<Vec<_>>(),
        })
    });
    let object = json!({
        "schema": "afterimage/by/1",
        "keys": show.names,
        "value": show.value.to_string(),
        "from_ns": readout.begun_ns.saturating_add(nanos(readout.from)),
        "to_ns": readout.begun_ns.saturating_add(nanos(readout.to)),
        "last": readout.last,
        "tally": tally.map(RecordingTally::total),
        "events": events.collect::<Vec<_>>(),
    });
    serde_json::to_writer(&mut *out, &object)?;
    writeln!(out)
}

fn nanos(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn samples(event: &EventRows) -> u64 {
    event.rows.iter().map(|row| row.samples).sum()
}

fn one_row(show: &Show, row: &Row) -> Value {
    let mut object = Map::new();
    object.insert("samples".into(), json!(row.samples));
    let value = if show.value == By::Count { row.samples } else { row.value };
    let of_addresses = matches!(show.value, By::Sum(Field::Addr) | By::Max(Field::Addr) | By::Hist(Field::Addr));
    let amount = |amount: u64| if of_addresses { json!(format!("{amount:#x}")) } else { json!(amount) };
    object.insert("value".into(), amount(value));
    if let By::Hist(_) = show.value {
        let buckets = row.buckets.iter().map(|(bucket, samples)| {
            let (first, last) = bucket_range(*bucket);
            json!({"from": amount(first), "to": amount(last), "samples": samples})
        });
        object.insert("buckets".into(), buckets.collect());
    }
    if let Some(pid) = row.pid {
        object.insert("pid".into(), json!(pid));
    }
    for key in &show.keys {
        let (name, value) = match key {
            Key::Comm => ("comm", json!(row.comm)),
            Key::Pid => ("pid", json!(row.pid)),
            Key::Tid => ("tid", json!(row.tid)),
            Key::Cpu => ("cpu", json!(row.cpu)),
            Key::Cgroup => ("cgroup", cgroup(row)),
            Key::Label => ("label", label(row)),
            Key::Ip => ("ip", row.ip.as_ref().map_or(Value::Null, frame)),
            Key::Kstack => ("kstack", row.kernel.iter().map(frame).collect()),
            Key::Ustack => ("ustack", row.user.iter().map(frame).collect()),
            Key::Stack => ("stack", row.kernel.iter().chain(&row.user).map(frame).collect()),
        };
        object.insert(name.into(), value);
    }
    Value::Object(object)
}

/// A label that there is, as the handler's types have it; null where there is none, or beside a reason.
fn label(row: &Row) -> Value {
    match &row.label {
        Some(Labelled::Value { json, .. }) => json!({"value": json}),
        Some(Labelled::Unreadable(reason)) => json!({"value": null, "reason": reason}),
        Some(Labelled::Not) | None => Value::Null,
    }
}

fn cgroup(row: &Row) -> Value {
    let Some((id, path)) = &row.cgroup else { return Value::Null };
    match path {
        Some(path) => json!({"id": id, "path": path}),
        None => json!({"id": id, "path": null, "reason": "gone"}),
    }
}

fn frame(at: &At) -> Value {
    let addr = format!("{:#x}", at.addr);
    let frame = &at.frame;
    match &frame.symbol {
        Ok(name) => json!({"addr": addr, "sym": &**name, "offset": frame.offset, "dso": frame.dso.short}),
        Err(reason) => json!({"addr": addr, "sym": null, "reason": reason.key(), "dso": frame.dso.short}),
    }
}
