//! Handlers from object files, put in force while a recording runs.

use std::fs;
use std::path::{Path, PathBuf};

use afterimage_perf_data::FileReader;
use afterimage_testkit::{Need, has, objects};

use crate::common::{folder, word};
use crate::helper::{beside, tally};
use crate::session::{NEEDS, Session};

const SOURCE: &str = include_str!("late.bpf.c");

/// Compiles a variant of the source, as a user would; the object.
fn object(folder: &Path, name: &str, change: impl Fn(&str) -> String) -> PathBuf {
    fs::copy(objects::build().join("afterimage.bpf.h"), folder.join("afterimage.bpf.h")).unwrap();
    fs::write(folder.join(format!("{name}.bpf.c")), change(SOURCE)).unwrap();
    objects::compile_with(&folder.join(format!("{name}.bpf.c")), folder, &[]).unwrap();
    folder.join(format!("{name}.bpf.o"))
}

/// A map lives on in the next handler; what does not fit is refused and leaves the old handler at work.
#[test]
fn an_object_is_swapped_in_and_a_map_is_kept() {
    if !has("an_object_is_swapped_in_and_a_map_is_kept", &[&NEEDS[..], &[Need::Clang]].concat()) {
        return;
    }
    let _turn = beside();
    let folder = folder();
    let late = object(folder.path(), "late", str::to_owned);
    let wide = object(folder.path(), "wide", |text| text.replace("max_entries, 1)", "max_entries, 2)"));
    let (counting, wide) = (format!("{}:counting", word(&late)), format!("{}:late", word(&wide)));
    let late = format!("{}:late", word(&late));
    let session = Session::start(&folder, &["-a", "-e", "cpu-clock", "-F", "999"]);
    session.grows("chained", 100);
    let said = session.done(&["swap", "SESSION", &counting]);
    assert_eq!(said, format!("session {}: handler counting, generation 2\n", session.pid));
    session.grows("dropped", 400);
    for (words, says) in [
        (&["swap", "SESSION", &late, "--keep-map", "misses"][..], "has no map misses that could be kept; it has hits"),
        (&["swap", "SESSION", &wide, "--keep-map", "hits"], "has other keys, values or room"),
        (&["swap", "SESSION", &late, "--set", "most=1"], "most"),
        (&["swap", "SESSION", &format!("{late}r")], "later"),
        (&["swap", "SESSION", "none", "--keep-map", "hits"], "is built in and keeps no map"),
        (&["swap", "SESSION", "./no/such.bpf.o"], "No such file"),
    ] {
        let output = session.handler(words);
        let said = crate::common::stderr(&output);
        println!("{said}");
        assert!([Some(1), Some(2)].contains(&output.status.code()) && said.contains(says), "{words:?}: {said}");
    }
    assert_eq!(session.stats()["handler"], "counting", "what is refused changes nothing");
    // With the map of the one before, there are enough hits already; with a new map there are none.
    session.done(&["swap", "SESSION", &late, "--keep-map", "hits", "--set", "least=400"]);
    session.grows("chained", 200);
    session.done(&["swap", "SESSION", &late, "--set", "least=400"]);
    session.grows("dropped", 200);
    session.done(&["swap", "SESSION", "none"]);
    // The object is gone with its map.
    let said = session.refused(&["swap", "SESSION", &late, "--keep-map", "hits"], 1);
    assert!(said.contains("it has none"), "{said}");
    session.grows("chained", 100);
    let (path, said) = session.end();
    assert!(!said.contains("does not add up"), "{said}");
    let sum = tally(&path).total();
    println!("{}", sum.human());
    assert_eq!(sum.handled, Some(sum.chained + sum.dropped.unwrap()));

    let bytes = fs::read(&path).unwrap();
    let reader = FileReader::open(&bytes).unwrap();
    let private = reader.private().unwrap();
    let known: Vec<_> = private.handlers.iter().map(|desc| (desc.name.as_str(), desc.id, desc.generation)).collect();
    assert_eq!(known, [("none", 0, 1), ("counting", 16, 2), ("late", 17, 3), ("late", 18, 4)]);
    let desc = &private.handlers[2];
    assert!(desc.object.as_deref().unwrap().ends_with("late.bpf.o") && desc.tag.is_some());
    assert_eq!(desc.set.get("least").map(String::as_str), Some("400"));
    assert!((16..19).all(|id| private.types_of(id).is_some_and(|types| !types.is_empty())));
}

/// What a handler wants to write needs a ring, and what the verifier refuses is told with its last words.
#[test]
fn what_cannot_be_loaded_leaves_the_old_handler() {
    if !has("what_cannot_be_loaded_leaves_the_old_handler", &[&NEEDS[..], &[Need::Clang]].concat()) {
        return;
    }
    let _turn = beside();
    let folder = folder();
    let writes = |text: &str| text.replace("return AI_DROP;", "ai_emit(ctx, &zero, sizeof(zero));\n\treturn AI_DROP;");
    let writing = object(folder.path(), "writing", writes);
    let writing = format!("{}:counting", word(&writing));
    // A value of the map is written behind its end.
    let wild = |text: &str| text.replace("__sync_fetch_and_add(count, 1)", "__sync_fetch_and_add(count + 9, 1)");
    let wild = object(folder.path(), "wild", wild);
    let wild = format!("{}:counting", word(&wild));
    let session = Session::start(&folder, &["-a", "-e", "cpu-clock", "-F", "499"]);
    let said = session.refused(&["swap", "SESSION", &writing], 1);
    assert!(said.contains("this recording has no handler ring"), "{said}");
    let said = session.refused(&["swap", "SESSION", &wild], 1);
    println!("{said}");
    assert!(said.contains("invalid access to map value"), "{said}");
    assert!((2..=16).contains(&said.lines().count()), "the last lines alone: {said}");
    let stats = session.stats();
    assert_eq!((&stats["handler"], &stats["changes"]), (&"none".into(), &0.into()));
    tally(&session.end().0);
    // Where there are rings, it may write.
    let session = Session::start(&folder, &["-a", "-e", "cpu-clock", "-F", "499", "--handler", "emit"]);
    session.done(&["swap", "SESSION", &writing]);
    session.grows("emitted", 300);
    let sum = tally(&session.end().0).total();
    println!("{}", sum.human());
    assert!(sum.emitted >= 300 && sum.handler_ring.lost == 0);
}

/// Kills a command that swaps a handler in as soon as it has the lease; false where that came too late.
fn gives_up(session: &Session, handler: &str) -> bool {
    session.done(&["clear", "SESSION"]);
    let before = session.stats()["changes"].clone();
    let mut swap = crate::common::afterimage();
    let mut swap = swap.args(["handler", "swap", &session.pid, handler]).spawn().unwrap();
    let begun = |stats: &serde_json::Value| !stats["holder"].is_null() || stats["changes"] != before;
    crate::helper::until("the lease", || begun(&session.stats()));
    swap.kill().unwrap();
    swap.wait().unwrap();
    crate::helper::until("its end", || session.stats()["holder"].is_null());
    let stats = session.stats();
    println!("after {before} changes: {} with {}", stats["changes"], stats["handler"]);
    if stats["changes"] != before {
        return false;
    }
    assert_eq!(stats["handler"], "none");
    true
}

/// A program that takes the kernel's verifier its time: the recorder goes on meanwhile, hears others, and has one owner.
#[test]
fn a_slow_verifier_delays_nobody() {
    if !has("a_slow_verifier_delays_nobody", &[&NEEDS[..], &[Need::Clang]].concat()) {
        return;
    }
    let _turn = beside();
    let folder = folder();
    // Each round is gone through instruction by instruction.
    let long = "__u64 sum = 1;\n\tfor (__u32 i = 0; i < 70000; i++) {\n\t\tsum = sum * 3 + i;\n\t\t\
                asm volatile(\"\" : \"+r\"(sum));\n\t}\n\tif (!sum)\n\t\treturn AI_CHAIN;\n\treturn AI_DROP;";
    let slow = object(folder.path(), "slow", |text| text.replacen("return AI_DROP;", long, 1));
    let slow = format!("{}:counting", word(&slow));
    let session = Session::start(&folder, &["-a", "-e", "cpu-clock", "-F", "999"]);
    session.grows("chained", 100);
    let mut swap = crate::common::afterimage();
    swap.args(["handler", "swap", &session.pid, &slow]).stdout(std::process::Stdio::piped());
    let mut swap = swap.spawn().unwrap();
    let (mut meanwhile, mut refused) = (0, 0);
    while swap.try_wait().unwrap().is_none() {
        let stats = session.stats();
        if stats["holder"].is_null() || stats["changes"] != 0 {
            continue;
        }
        meanwhile += 1;
        // Should it come too late, when the lease is free again, it changes nothing that is looked at below.
        let output = session.handler(&["where", "SESSION", "--all"]);
        if output.status.code() == Some(1) {
            assert!(crate::common::stderr(&output).contains("busy: held by pid"));
            refused += 1;
        }
    }
    let output = swap.wait_with_output().unwrap();
    println!("{meanwhile} answers and {refused} refusals meanwhile; {}", crate::common::stdout(&output));
    assert!(output.status.success() && meanwhile > 0 && refused > 0);
    assert_eq!(session.stats()["handler"], "counting");
    session.grows("dropped", 100);
    // Whoever goes while it is loaded has changed nothing.
    let given_up = (0..5).any(|_| gives_up(&session, &slow));
    assert!(given_up, "each time it was loaded before the command was killed");
    session.done(&["swap", "SESSION", "count"]);
    session.grows("counted", 100);
    let sum = tally(&session.end().0).total();
    println!("{}", sum.human());
    assert_eq!(sum.handled, Some(sum.chained + sum.dropped.unwrap() + sum.counted));
}
