//! Events that are counted one by one: every one of them is in a row, under its keys.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use afterimage_testkit::{Need, has, workload};

use crate::common::{file, folder, word};
use crate::helper::{names, number, readout, readouts, rows, samples_where, turn};

const NEEDS: [Need; 3] = [Need::Root, Need::Bpf, Need::Cc];

#[test]
fn page_faults_by_name_and_stack() {
    if !has("page_faults_by_name_and_stack", &NEEDS) {
        return;
    }
    let _turn = turn();
    let faults = workload::build().faults;
    let seen = readout("comm,ustack", &["-e", "page-faults", "-c", "1", "--", word(&faults), "1500"]);
    let rows = rows(&seen["events"][0]);
    let touching = |row: &serde_json::Value| names(&row["ustack"]).first() == Some(&"touch_pages");
    assert_eq!(samples_where(rows, touching), 1500);
    assert!(rows.iter().filter(|row| touching(row)).all(|row| row["comm"] == "faults"));
    // No process lives any more: the names are those of the time.
    let whole = rows.iter().find(|row| touching(row)).map(|row| names(&row["ustack"])).unwrap();
    assert!(whole.contains(&"__libc_start_call_main") || whole.contains(&"main"), "{whole:?}");
}

#[test]
fn page_faults_by_instruction_and_address() {
    if !has("page_faults_by_instruction_and_address", &NEEDS) {
        return;
    }
    let _turn = turn();
    let faults = workload::build().faults;
    let command = ["-e", "page-faults", "-c", "1", "--", word(&faults), "600"];
    let of = |value: &str| {
        let seen = readout("ip", &[&["--value", value][..], &command].concat());
        let touching = rows(&seen["events"][0]).iter().filter(|row| row["ip"]["sym"] == "touch_pages");
        let all: Vec<serde_json::Value> = touching.cloned().collect();
        assert_eq!(all.iter().map(|row| number(&row["samples"])).sum::<u64>(), 600, "{value}");
        all
    };
    assert_eq!(of("count").iter().map(|row| number(&row["value"])).sum::<u64>(), 600);
    assert_eq!(of("sum(period)").iter().map(|row| number(&row["value"])).sum::<u64>(), 600);
    assert_eq!(of("max(period)").iter().map(|row| number(&row["value"])).max(), Some(1));
    let top = of("max(addr)").iter().map(|row| address_in(&row["value"])).max().unwrap();
    assert!(top % 4096 == 0 && top > 1 << 32, "{top:#x}");
    let buckets: Vec<serde_json::Value> =
        of("hist(addr)").iter().flat_map(|row| row["buckets"].as_array().unwrap().clone()).collect();
    assert_eq!(buckets.iter().map(|bucket| number(&bucket["samples"])).sum::<u64>(), 600);
    assert!(buckets.iter().all(|bucket| address_in(&bucket["from"]) <= top), "{buckets:?}");
}

#[test]
fn writes_of_a_variable_by_function() {
    if !has("writes_of_a_variable_by_function", &NEEDS) {
        return;
    }
    let _turn = turn();
    let (folder, writes) = (folder(), workload::build().writes);
    let fifo = file(&folder, "fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    // Opened for both, so that neither end waits for the other.
    let stdin = File::options().read(true).write(true).open(&fifo).unwrap();
    let mut child = Command::new(&writes).arg("1200").stdin(stdin).stdout(Stdio::piped()).spawn().unwrap();
    let mut address = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut address).unwrap();
    let (event, pid) = (format!("mem:{}:w", address.trim()), child.id().to_string());
    let give = format!("printf x > {}; exec sleep 60", word(&fifo));
    let words = ["-e", &event, "-c", "1", "-p", &pid, "--value", "max(addr)", "--", "sh", "-c", &give];
    let (seen, _) = readouts("comm,tid,ustack", &words);
    child.wait().unwrap();
    let rows: Vec<serde_json::Value> = seen.iter().flat_map(|readout| rows(&readout["events"][0]).to_vec()).collect();
    let of =
        |row: &serde_json::Value| names(&row["ustack"]).first() == Some(&"write_watched") && row["tid"] == child.id();
    assert_eq!(samples_where(&rows, of), 1200, "{rows:?}");
    assert!(rows.iter().filter(|row| of(row)).all(|row| row["value"] == address.trim()), "{rows:?}");
}

/// Addresses are lower-case strings, whole also where a number of JSON would not be.
fn address_in(value: &serde_json::Value) -> u64 {
    u64::from_str_radix(value.as_str().unwrap().strip_prefix("0x").unwrap(), 16).unwrap()
}

/// More keys than there is room for: what is shown is right, and what is not is told.
#[test]
fn a_full_table_is_told() {
    if !has("a_full_table_is_told", &NEEDS) {
        return;
    }
    let _turn = turn();
    let faults = workload::build().faults;
    // Its stacks while it starts are more than 64.
    let script = format!("for i in 1 2 3 4 5 6; do {} 100 >/dev/null; done", word(&faults));
    let words = ["-e", "page-faults", "-c", "1", "--by-entries", "64", "--", "sh", "-c", &script];
    let (seen, output) = readouts("ip,tid", &words);
    let lost = number(&seen[0]["tally"]["map"]["lost"]["full"]);
    let said = crate::common::stderr(&output);
    assert!(lost > 0 && said.contains("lost (table full)") && said.contains("--by-entries"), "{lost}: {said}");
}
