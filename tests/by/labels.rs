//! Labels as keys: what a handler of an object says of each sample decides where it is counted.

use afterimage_testkit::{Need, has, objects, workload};
use serde_json::{Value, json};

use crate::common::{run, stderr, stdout, word};
use crate::helper::{names, number, readout, rows, samples_where, turn};

const NEEDS: [Need; 4] = [Need::Root, Need::Bpf, Need::Cc, Need::Clang];
const PAGES: u64 = 1500;

fn keyed() -> String {
    word(&objects::build().join("keyed.bpf.o")).to_owned()
}

/// Words that count each fault of a program that touches pages which follow each other.
fn faults(more: &[&str]) -> Vec<String> {
    let (handler, faults, pages) = (keyed(), workload::build().faults, PAGES.to_string());
    let words =
        [&["-e", "page-faults", "-c", "1", "--handler", &handler], more, &["--", word(&faults), &pages]].concat();
    words.into_iter().map(str::to_owned).collect()
}

fn counted(keys: &str, more: &[&str]) -> Value {
    let words = faults(more);
    readout(keys, &words.iter().map(String::as_str).collect::<Vec<_>>())["events"][0].clone()
}

fn touching(row: &Value) -> bool {
    names(&row["ustack"]).first() == Some(&"touch_pages")
}

#[test]
fn an_enum_tells_samples_apart() {
    if !has("an_enum_tells_samples_apart", &NEEDS) {
        return;
    }
    let _turn = turn();
    let event = counted("label:parity,ustack", &[]);
    let of = |name: &str| samples_where(rows(&event), |row| touching(row) && row["label"]["value"] == name);
    assert_eq!((of("EVEN"), of("ODD")), (PAGES / 2, PAGES / 2));
    let all = rows(&event);
    assert!(all.iter().all(|row| !row["label"].is_null()), "{all:?}");
    assert_eq!(event["tally"]["emitted"], 0, "nothing is recorded");
}

/// What the handler drops is not counted, what the gate turns away does not get to it.
#[test]
fn the_handler_and_the_gate_decide_what_is_counted() {
    if !has("the_handler_and_the_gate_decide_what_is_counted", &NEEDS) {
        return;
    }
    let _turn = turn();
    for (more, cause) in [(["--set", "only_odd=true"], "dropped"), (["--where", "addr & 0x1000 != 0"], "filtered")] {
        let event = counted("comm,label:parity,ustack", &more);
        let all = rows(&event);
        assert_eq!(samples_where(all, |row| touching(row) && row["comm"] == "faults"), PAGES / 2, "{cause}");
        assert!(all.iter().all(|row| row["label"]["value"] == "ODD"), "{cause}: {all:?}");
        let tally = &event["tally"];
        assert!(number(&tally[cause]) >= PAGES / 2, "{tally}");
        assert_eq!(number(&tally["handled"]), number(&tally[cause]) + number(&tally["passed"]), "{tally}");
    }
}

/// Structs and texts stand by their types; a sample without the label, or with one that is too long, says so.
#[test]
fn labels_of_all_kinds() {
    if !has("labels_of_all_kinds", &NEEDS) {
        return;
    }
    let _turn = turn();
    let event = counted("label:where,ustack", &[]);
    let odd = json!({"value": {"parity": "ODD", "name": "faults"}});
    assert_eq!(samples_where(rows(&event), |row| touching(row) && row["label"] == odd), PAGES / 2);
    let event = counted("label:name,ustack", &[]);
    let of = |label: Value| samples_where(rows(&event), |row| touching(row) && row["label"] == label);
    assert_eq!((of(json!({"value": "faults"})), of(Value::Null)), (PAGES / 2, PAGES / 2));
    // What the kernel cannot read is no label.
    let event = counted("label:nowhere", &[]);
    assert_eq!(rows(&event).iter().map(|row| &row["label"]).collect::<Vec<_>>(), [&Value::Null]);
    let event = counted("label:longer", &[]);
    let long = json!({"value": null, "reason": "80 bytes, more than the 64 of a key"});
    assert_eq!(rows(&event).iter().map(|row| &row["label"]).collect::<Vec<_>>(), [&long]);

    // In a table, and as folded stacks.
    let words = faults(&[]);
    let with = |form: &[&str]| {
        let all: Vec<&str> = form.iter().copied().chain(words.iter().map(String::as_str)).collect();
        let output = run(&[&["record"][..], &all].concat());
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stdout(&output)
    };
    let table = with(&["--by", "label:name"]);
    assert!(table.contains("samples of event 'page-faults' by label:name"), "{table}");
    assert!(table.lines().any(|line| line.trim_end().ends_with("(none)")), "{table}");
    assert!(table.lines().any(|line| line.trim_end().ends_with("faults")), "{table}");
    let folded = with(&["--by", "label:parity,ustack", "--folded"]);
    assert!(folded.lines().any(|line| line.starts_with("ODD;") && line.contains("touch_pages")), "{folded}");
}

#[test]
fn a_label_that_nobody_gives() {
    if !has("a_label_that_nobody_gives", &NEEDS) {
        return;
    }
    let handler = keyed();
    let bare = format!("{}:all", word(&objects::build().join("bare.bpf.o")));
    for (words, says) in [
        (&["--by", "label:colour", "--handler", &handler][..], "keyed never gives it"),
        (&["--by", "label:colour", "--handler", &bare], "header"),
        (&["--by", "label:parity"], "a handler of your own has to give that label"),
        (&["--by", "label:parity", "--handler", "emit"], "a handler of your own has to give that label"),
        (&["--by", "label:parity,label:name", "--handler", &handler], "one label can be a key"),
        (&["--by", "comm", "--handler", &handler], "runs a handler only for a label"),
    ] {
        let output = run(&[&["record"][..], words, &["--", "true"]].concat());
        println!("{}", stderr(&output));
        assert!(output.status.code() == Some(2) && stderr(&output).contains(says), "{words:?}: {}", stderr(&output));
    }
}
