//! The listings as one JSON object, `afterimage/annotate/1`. Keys are only ever added.

use std::io::{self, Write};

use afterimage_profile::{Resolver, Things, Weight};
use serde_json::{Map, Value, json};

use super::Plan;
use super::listing::{Listing, Row, symbol_at};

/// Writes all of them.
pub(super) fn write(
    out: &mut dyn Write,
    found: &Things,
    resolver: &mut Resolver,
    listings: &[Listing<'_>],
    plan: &Plan,
) -> io::Result<()> {
    let mut object = Map::new();
    object.insert("schema".into(), "afterimage/annotate/1".into());
    object.insert("complete".into(), json!(found.stats.finished));
    object.insert("error".into(), json!(found.stats.error.as_ref().map(ToString::to_string)));
    object.insert("percent_type".into(), plan.share.key().into());
    let symbols: Vec<Value> = listings.iter().map(|listing| one(found, resolver, listing, plan)).collect();
    object.insert("symbols".into(), symbols.into());
    serde_json::to_writer(&mut *out, &Value::Object(object))?;
    writeln!(out)
}

fn one(found: &Things, resolver: &mut Resolver, listing: &Listing<'_>, plan: &Plan) -> Value {
    let (thing, about) = (listing.thing, &listing.about);
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| object.insert(key.into(), value);
    put("name", json!(&*thing.name));
    put("kind", about.kind.into());
    put("dso", json!(thing.dso.short));
    put("dso_path", json!(thing.dso.long));
    put("build_id", json!(thing.dso.build_id.as_ref().map(ToString::to_string)));
    put("id", json!(about.id));
    put("tag", json!(about.tag));
    put("function", json!(about.function));
    put("address", json!(format!("{:#x}", thing.start)));
    put("length_bytes", json!(listing.code.as_ref().map_or(thing.len, |code| Some(code.bytes.len() as u64))));
    put("born_ns", json!(about.born));
    put("gone_ns", json!(about.gone));
    put("uncertain", json!(about.uncertain));
    put("loader", json!(about.loader.as_ref().map(|(pid, comm)| json!({"pid": pid, "comm": comm}))));
    match &listing.code {
        Ok(code) => {
            let file = code.file.as_ref().map(|file| file.display().to_string());
            put("code", json!({"way": code.way, "proven": code.proven, "at_ns": code.at_ns, "file": file}));
            put("reason", Value::Null);
        }
        Err(tried) => {
            let why: Vec<String> = tried.iter().map(|tried| format!("{}: {}", tried.way, tried.why)).collect();
            put("code", Value::Null);
            put("reason", why.join("; ").into());
            put("tried", tried.iter().map(|tried| json!({"way": tried.way, "reason": tried.why})).collect());
        }
    }
    put("events", events(found, listing).into());
    let end = thing.start.wrapping_add(listing.code.as_ref().map_or(0, |code| code.bytes.len() as u64));
    let rows: Vec<Value> = listing.rows.iter().map(|row| line(found, resolver, listing, row, plan, end)).collect();
    put("lines", rows.into());
    if plan.how.insns {
        let insns: Vec<Value> =
            listing.insns.iter().map(|(number, text)| json!({"insn": number, "text": text})).collect();
        put("insns", insns.into());
        if let Some(why) = listing.no_insns {
            put("insns_reason", why.into());
        }
    }
    Value::Object(object)
}

fn events(found: &Things, listing: &Listing<'_>) -> Vec<Value> {
    let shown = found.events.iter().filter(|event| listing.thing.hits.contains_key(&event.event));
    let one = |event: &afterimage_profile::EventProfile| {
        let own = listing.thing.weight(Some(event.event));
        let percent = super::Share::GlobalPeriod.percent(own, own, event.total);
        json!({"name": &*event.name, "samples": own.samples, "period": own.period, "percent": percent})
    };
    shown.map(one).collect()
}

fn line(found: &Things, resolver: &mut Resolver, listing: &Listing<'_>, row: &Row, plan: &Plan, end: u64) -> Value {
    let thing = listing.thing;
    let target = row.target.map(|target| {
        let symbol = symbol_at(found, resolver, thing, end, plan.how.at, target);
        let (name, offset) = symbol.map_or((None, None), |(name, offset)| (Some(name.to_string()), Some(offset)));
        json!({"address": format!("{target:#x}"), "symbol": name, "offset": offset})
    });
    let source: Vec<Value> = row
        .origins
        .iter()
        .map(|o| {
            let number = |n: u32| (n != 0).then_some(n);
            json!({"function": o.function, "file": o.file, "line": number(o.line), "column": number(o.column),
                   "text": o.text.as_deref()})
        })
        .collect();
    let bytes: String = row.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let weights: Vec<Value> = found
        .events
        .iter()
        .filter(|event| thing.hits.contains_key(&event.event))
        .map(|event| {
            let weight = row.weights.get(&event.event).copied().unwrap_or_default();
            share(plan, weight, thing.weight(Some(event.event)), event.total)
        })
        .collect();
    let mut object = Map::new();
    let mut put = |key: &str, value: Value| object.insert(key.into(), value);
    put("offset", json!(row.offset));
    put("address", json!(format!("{:#x}", thing.start.wrapping_add(row.offset))));
    put("bytes", json!((!bytes.is_empty()).then_some(bytes)));
    put("text", json!(row.text.as_deref().map(|text| text.replace('\t', " "))));
    put("target", target.unwrap_or(Value::Null));
    put("source", source.into());
    put("events", weights.into());
    if let Some((first, count)) = row.insns {
        let numbers: Vec<u32> = listing.insns.iter().skip(first).take(count).map(|(number, _)| *number).collect();
        put("insns", json!(numbers));
    }
    Value::Object(object)
}

fn share(plan: &Plan, weight: Weight, own: Weight, total: Weight) -> Value {
    let percent = plan.share.percent(weight, own, total);
    json!({"samples": weight.samples, "period": weight.period, "percent": percent})
}
