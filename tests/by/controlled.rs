//! Counting by keys is controlled as recordings are: it is listed, says how it goes, and takes another gate.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use afterimage_testkit::{Need, has, workload};
use serde_json::Value;

use crate::common::{afterimage, run, stderr, stdout, word};
use crate::helper::{number, readout, rows, turn};

const NEEDS: [Need; 2] = [Need::Root, Need::Bpf];

#[test]
fn a_gate_and_keys() {
    if !has("a_gate_and_keys", &[&NEEDS[..], &[Need::Cc]].concat()) {
        return;
    }
    let _turn = turn();
    let faults = workload::build().faults;
    let script = format!("{} 400; {} 300", word(&faults), word(&faults));
    let words = ["-e", "page-faults", "-c", "1", "--where", "comm == \"faults\" && user", "--", "sh", "-c", &script];
    let seen = readout("comm,ip", &words);
    let event = &seen["events"][0];
    let touched = rows(event).iter().filter(|row| row["ip"]["sym"] == "touch_pages");
    assert_eq!(touched.map(|row| number(&row["samples"])).sum::<u64>(), 700);
    assert!(rows(event).iter().all(|row| row["comm"] == "faults"), "{event}");
    assert!(number(&event["tally"]["filtered"]) > 0, "{event}");
}

struct Counting {
    child: Option<Child>,
    pid: String,
}

impl Counting {
    fn handler(&self, words: &[&str], code: i32) -> String {
        let all: Vec<&str> = words.iter().map(|word| if *word == "PID" { self.pid.as_str() } else { word }).collect();
        let output = run(&[&["handler"][..], &all].concat());
        assert_eq!(output.status.code(), Some(code), "{words:?}: {}", stderr(&output));
        stdout(&output) + &stderr(&output)
    }

    fn stats(&self) -> Value {
        serde_json::from_str(&self.handler(&["stats", "PID", "--json"], 0)).unwrap()
    }

    fn until(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            let stats = self.stats();
            if holds(&stats) {
                return stats;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "{what}: {stats}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[test]
fn it_is_listed_and_takes_another_gate() {
    if !has("it_is_listed_and_takes_another_gate", &NEEDS) {
        return;
    }
    let _turn = turn();
    let mut command = afterimage();
    command.args(["record", "--by", "cpu,comm", "-a", "-e", "cpu-clock", "-F", "997", "--json"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut counting = Counting { pid: child.id().to_string(), child: Some(child) };
    let socket = Path::new("/run/afterimage").join(format!("{}.sock", counting.pid));
    let begun = Instant::now();
    while !socket.exists() {
        assert!(begun.elapsed() < Duration::from_secs(60), "no socket");
        std::thread::sleep(Duration::from_millis(20));
    }
    let tally = |stats: &Value, key: &str| number(&stats["events"][0]["tally"][key]);
    let stats = counting.until("samples", |stats| tally(stats, "counted") > 100);
    assert_eq!((&stats["handler"], &stats["generation"]), (&"by cpu,comm".into(), &2.into()));
    let list = counting.handler(&["list"], 0);
    assert!(list.lines().any(|line| line.contains(&counting.pid) && line.contains("by cpu,comm")), "{list}");
    for words in [&["swap", "PID", "count"][..], &["swap", "PID", "none"], &["clear", "PID"]] {
        let said = counting.handler(words, 1);
        assert!(said.contains("samples are counted by keys here"), "{said}");
    }
    let said = counting.handler(&["where", "PID", "cpu == 0"], 0);
    assert!(said.contains("where cpu == 0, generation 3"), "{said}");
    counting.until("samples that are turned away", |stats| tally(stats, "filtered") > 50);
    counting.handler(&["where", "PID", "--all"], 0);
    let counted = tally(&counting.stats(), "counted");
    let stats = counting.until("more", |stats| tally(stats, "counted") > counted + 50);
    assert_eq!((&stats["gate"], &stats["changes"]), (&Value::Null, &2.into()));

    let child = counting.child.take().unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let last: Value = serde_json::from_str(stdout(&output).lines().last().unwrap()).unwrap();
    let event = &last["events"][0];
    println!("{}", event["tally"]);
    let stored = number(&event["tally"]["map"]["stored"]);
    // Looking takes nothing away: all that was counted is in the readout.
    assert_eq!(rows(event).iter().map(|row| number(&row["samples"])).sum::<u64>(), stored);
    assert_eq!(number(&event["tally"]["handled"]), stored + number(&event["tally"]["filtered"]));
    assert!(!stderr(&output).contains("do not add up"), "{}", stderr(&output));
}
