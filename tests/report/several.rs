//! One report over several recordings.

use crate::common::{file, folder, run, stderr, text, word};
use crate::made::{CODE, Made, event};
use crate::{body, rows, two_events};

/// A recording of so many samples of threads `a` and `b`, with stacks; `both`: and of a second event.
fn recording(path: &std::path::Path, counts: [u64; 2], both: bool) {
    let mut events = vec![event("cpu-clock", 11, true)];
    if both {
        events.push(event("page-faults", 12, false));
    }
    let mut made = Made::at(path, events);
    for (pid, name, count) in [(41, "a", counts[0]), (42, "b", counts[1])] {
        made.comm(pid, name.as_bytes());
        made.map(pid, b"/nonexistent/program");
        for nth in 0..count {
            made.sample(0, pid, 1000, &[CODE, CODE + 0x101 + 0x100 * (nth % 2)]);
        }
    }
    if both {
        made.sample(1, 41, 1, &[CODE + 8]);
    }
    made.finish(None);
}

#[test]
fn rows_and_chains_of_all_files_are_one() {
    let folder = folder();
    let (one, other) = (file(&folder, "one"), file(&folder, "other"));
    recording(&one, [4, 2], true);
    recording(&other, [0, 4], false);
    let both = ["report", "-i", word(&one), "-i", word(&other)];
    let shown = text(&[&both[..], &["--sort", "comm", "--event", "cpu-clock"]].concat());
    let expected = format!(
        "\
# Files: 2
#   {}: 7 samples: 7 kept
#   {}: 4 samples: 4 kept
#
# Samples: 10  of event 'cpu-clock'
# Event count (approx.): 10000
#
# Overhead  Command
# ........  .......
#
    60.00%  b
            |
            ---0x0000000000000000
               |          
               |--30.00%--0x0000000000000100
               |          
                --30.00%--0x0000000000000200

    40.00%  a
            |
            ---0x0000000000000000
               |          
               |--20.00%--0x0000000000000100
               |          
                --20.00%--0x0000000000000200

",
        one.display(),
        other.display()
    );
    assert_eq!(shown.split("\n#\n# Samples at addresses").next().unwrap(), expected);
    let all = text(&both);
    let events: Vec<&str> =
        all.lines().filter_map(|line| line.split_once(" of event ").map(|(_, name)| name)).collect();
    assert_eq!(events, ["'cpu-clock'", "'page-faults'"]);
    // A file twice weighs double, and nothing else changes.
    let options = ["-q", "-g", "none", "--sort", "comm,sym", "-n", "--event", "cpu-clock"];
    let twice = text(&[&["report", "-i", word(&one), "-i", word(&one)], &options[..]].concat());
    let once = text(&[&["report", "-i", word(&one)], &options[..]].concat());
    let without_count = |row: &String| -> Vec<String> {
        let words = row.split_whitespace().enumerate().filter(|(nth, _)| *nth != 1);
        words.map(|(_, word)| word.to_owned()).collect()
    };
    let rows_of = |report: &str| rows(report).iter().map(without_count).collect::<Vec<_>>();
    assert_eq!(rows_of(&twice), rows_of(&once));
    assert!(rows(&twice)[0].starts_with("66.67%             8  a "), "{twice}");
}

#[test]
fn json_has_each_files_tally() {
    let folder = folder();
    let (one, other) = (file(&folder, "one"), file(&folder, "other"));
    two_events(&one);
    recording(&other, [1, 3], false);
    let words = ["report", "--json", "-i", word(&one), "-i", word(&other), "--sort", "comm", "--comms", "worker,a"];
    let json: serde_json::Value = serde_json::from_str(&text(&words)).unwrap();
    assert_eq!((&json["schema"], &json["tally"]), (&"afterimage/report/1".into(), &serde_json::Value::Null));
    let told = |file: &serde_json::Value| (file["tally"]["chained"].as_u64(), file["tally_source"].to_string());
    let files: Vec<_> = json["files"].as_array().unwrap().iter().map(told).collect();
    assert_eq!(files, [(Some(13), "\"recording\"".to_owned()), (Some(4), "\"records\"".to_owned())]);
    let clock = &json["events"][0];
    assert_eq!((&clock["samples"], &clock["percent_of"]["samples"]), (&11.into(), &14.into()));
    assert_eq!(clock["left_out"], serde_json::json!([{"filter": "comms", "samples": 3, "period": 3000}]));
    let counted: Vec<_> = clock["files"].as_array().unwrap().iter().map(|file| file["samples"].as_u64()).collect();
    assert_eq!(counted, [Some(10), Some(1)]);
    let rows = clock["rows"].as_array().unwrap();
    assert_eq!(rows.iter().map(|row| row["samples"].as_u64().unwrap()).collect::<Vec<_>>(), [10, 1]);
}

#[test]
fn what_is_of_one_file_is_refused_for_several() {
    let folder = folder();
    let one = file(&folder, "one");
    recording(&one, [1, 1], false);
    let output = run(&["report", "--stats", "-i", word(&one), "-i", word(&one)]);
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(stderr(&output), "afterimage: --stats is of one recording\n  hint: give one -i\n");
    let missing = run(&["report", "-i", word(&one), "-i", "/nonexistent/data"]);
    assert_eq!(missing.status.code(), Some(1));
    // Others read the last of them.
    let last = text(&["script", "-G", "-i", "/nonexistent/data", "-i", word(&one)]);
    assert_eq!(body(&last).len(), 2);
}
