//! One report over several recordings.

use afterimage_perf_data::{HandlerDesc, Private};
use afterimage_testkit::{Need, has};

use crate::common::{file, folder, perf, perf_record, run, stderr, text, word};
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
fn heads_and_counts_stand_under_the_name_of_each_file() {
    let folder = folder();
    let (one, other) = (file(&folder, "one"), file(&folder, "other"));
    recording(&one, [1, 1], false);
    recording(&other, [2, 3], true);
    let both = |option: &str| text(&["report", option, "-i", word(&one), "-i", word(&other)]);
    let each = |option: &str, between: &str| {
        let of = |path| format!("# File: {}\n{}", word(path), text(&["report", option, "-i", word(path)]));
        [of(&one), of(&other)].join(between)
    };
    assert_eq!(both("--stats"), each("--stats", "\n"));
    assert_eq!(both("--header-only"), each("--header-only", ""));
    assert!(both("--stats").contains("SAMPLE events:          6"), "{}", both("--stats"));
    let missing = run(&["report", "-i", word(&one), "-i", "/nonexistent/data"]);
    assert_eq!(missing.status.code(), Some(1));
    // Others read the last of them.
    let last = text(&["script", "-G", "-i", "/nonexistent/data", "-i", word(&one)]);
    assert_eq!(body(&last).len(), 2);
}

/// A recording of samples in the kernel where `lines` name it, taken under a gate.
fn of_kernel(path: &std::path::Path, lines: &str, addresses: &[u64], gate: Option<&str>) {
    let mut made = Made::at(path, vec![event("cpu-clock", 11, false)]);
    made.comm(41, b"a");
    addresses.iter().for_each(|address| made.kernel_sample(0, 41, 1000, *address));
    let handler =
        HandlerDesc { name: "none".into(), chain: true, gate: gate.map(str::to_owned), ..HandlerDesc::default() };
    made.finish(Some(&Private { kernel_symbols: lines.into(), handlers: vec![handler], ..Private::default() }));
}

const MODULES: u64 = 0xffff_ffff_c000_0000;

#[test]
fn symbols_of_one_name_are_told_apart_by_object_and_place() {
    let folder = folder();
    let (one, other) = (file(&folder, "one"), file(&folder, "other"));
    // Two functions of one name in the one module, a third in the other.
    let mine = "ffffffffc0000000 t same\t[mine]\nffffffffc0000100 t same\t[mine]\n";
    let theirs = "ffffffffc0000200 t same\t[theirs]\nffffffffc0000300 t end\t[theirs]\n";
    let (at, lines) = (MODULES + 4, format!("{mine}{theirs}"));
    of_kernel(&one, &lines, &[at, at, at, at, at + 0x100, at + 0x100, at + 0x200], Some("pid == 41"));
    of_kernel(&other, &lines, &[at + 0x200, at + 0x100, at + 0x100, at + 0x100], None);
    let shown = |files: &[&std::path::Path]| {
        let files: Vec<&str> = files.iter().flat_map(|file| ["-i", word(file)]).collect();
        let report = text(&[&["report", "-n", "--sort", "sym"], &files[..]].concat());
        let counts: Vec<String> =
            rows(&report).iter().map(|row| row.split_whitespace().nth(1).unwrap().into()).collect();
        (counts, report)
    };
    assert_eq!(shown(&[&one]).0, ["4", "2", "1"]);
    let (counts, report) = shown(&[&one, &other]);
    assert_eq!(counts, ["5", "4", "2"], "{report}");
    // Which samples there are to see is told of each file.
    let line = |file: &std::path::Path| report.lines().position(|line| line.contains(word(file))).unwrap();
    let lines: Vec<&str> = report.lines().collect();
    assert_eq!(lines[line(&one) + 1], "#     Where: pid == 41");
    assert_eq!(lines[line(&other) + 1], "#");
}

/// Two programs with a function of one name each.
fn two_programs(folder: &std::path::Path) -> [std::path::PathBuf; 2] {
    ["one", "two"].map(|name| {
        let (source, program) = (folder.join(format!("{name}.c")), folder.join(name));
        let text = "volatile long sum;
            static __attribute__((noinline)) void hot(long n) { for (long i = 0; i < n; i++) sum += i; }
            int main(void) { for (int i = 0; i < 60; i++) hot(1000000); return 0; }";
        std::fs::write(&source, text).unwrap();
        let status = std::process::Command::new("cc").args(["-O1", "-o"]).arg(&program).arg(&source).status();
        assert!(status.unwrap().success());
        program
    })
}

#[test]
fn symbols_of_one_name_in_two_objects_are_two_as_in_perf() {
    if !has("symbols_of_one_name_in_two_objects_are_two_as_in_perf", &[Need::Root, Need::Perf, Need::Cc]) {
        return;
    }
    let folder = folder();
    let [one, two] = two_programs(folder.path());
    let options = ["--no-bpf-event", "-e", "cpu-clock:u", "-F", "499"];
    let both = file(&folder, "both");
    perf_record(&both, &options, &["sh", "-c", &format!("{};{}", word(&one), word(&two))]);
    let hot = |report: &str| rows(report).iter().filter(|row| row.ends_with("[.] hot")).count();
    let sorted = ["-g", "none", "--sort", "sym"];
    let theirs =
        perf(&[&["report", "--stdio", "--no-children", "--no-inline", "-i", word(&both)], &sorted[..]].concat());
    assert_eq!(hot(&theirs), 2, "{theirs}");
    assert_eq!(hot(&text(&[&["report", "-i", word(&both)], &sorted[..]].concat())), 2);
    // The same in two files, and in one of them twice.
    let (first, second) = (file(&folder, "first"), file(&folder, "second"));
    perf_record(&first, &options, &[word(&one)]);
    perf_record(&second, &options, &[word(&two)]);
    let several = |files: &[&std::path::Path]| {
        let files: Vec<&str> = files.iter().flat_map(|file| ["-i", word(file)]).collect();
        hot(&text(&[&["report"], &files[..], &sorted].concat()))
    };
    assert_eq!(several(&[&first, &second]), 2);
    assert_eq!(several(&[&first, &first]), 1);
    assert_eq!(several(&[&both, &second]), 2);
}

#[test]
fn fields_may_be_in_some_of_the_files() {
    if !has("fields_may_be_in_some_of_the_files", &[Need::Root, Need::Perf, Need::Tracefs]) {
        return;
    }
    let folder = folder();
    let (made, traced) = (file(&folder, "made"), file(&folder, "traced"));
    recording(&made, [4, 2], false);
    perf_record(&traced, &["--no-bpf-event", "-e", "sched:sched_switch"], &["sh", "-c", "true; sleep 0.01"]);
    let one = ["report", "-g", "none", "-q", "-i", word(&traced), "--sort", "next_pid,comm"];
    let wanted = rows(&text(&one));
    assert!(!wanted.is_empty());
    for order in [[&made, &traced], [&traced, &made]] {
        let both =
            ["report", "-g", "none", "-q", "-i", word(order[0]), "-i", word(order[1]), "--sort", "next_pid,comm"];
        let of = |event: &str| rows(&text(&[&both[..], &["--event", event]].concat()));
        assert_eq!(of("sched:sched_switch"), wanted);
        assert_eq!(of("cpu-clock"), ["66.67%  a", "33.33%  b"]);
    }
    let none = run(&["report", "-i", word(&made), "-i", word(&traced), "--sort", "no_such_field"]);
    assert_eq!(none.status.code(), Some(2));
    assert!(stderr(&none).starts_with("afterimage: --sort no_such_field: no such key\n"), "{}", stderr(&none));
}
