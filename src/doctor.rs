//! `afterimage doctor`: what this kernel, these privileges and these settings allow, what follows from it, and what to
//! do about a "no".

use std::io::{self, Write};

use afterimage_perf_event::probe::{Answer, Check};
use serde_json::{Value, json};

use crate::cli::DoctorArgs;
use crate::exit::Exit;
use crate::out;
use crate::terminal::clean;

/// Looks, and shows what was found. A "no" is an answer, not a failure.
pub(crate) fn run(args: &DoctorArgs) -> anyhow::Result<Exit> {
    let mut checks = afterimage_perf_event::probe::all();
    checks.extend(afterimage_handler::probe::all());
    checks.extend(afterimage_kernel_text::capture::probe::all());
    let kernel = kernel();
    let mut to = out::stdout()?;
    if args.json {
        serde_json::to_writer(&mut to, &object(&kernel, &checks)).map_err(io::Error::from)?;
        writeln!(to)?;
    } else {
        text(&mut to, &kernel, &checks)?;
    }
    out::flush(&mut to)?;
    Ok(Exit::Done)
}

/// The release and machine of the running kernel.
fn kernel() -> String {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
    let release = read("osrelease");
    format!("{} ({})", release.trim(), std::env::consts::ARCH)
}

fn object(kernel: &str, checks: &[Check]) -> Value {
    let checks: Vec<Value> = checks
        .iter()
        .map(|c| {
            json!({
                "name": c.name,
                "answer": c.answer.as_str(),
                "why": c.why,
                "consequence": c.consequence,
                "fix": c.fix,
            })
        })
        .collect();
    json!({"schema": "afterimage/doctor/1", "kernel": kernel, "checks": checks})
}

/// One line a check, then what follows from it, indented, and what to do where something can be done.
fn text(out: &mut dyn Write, kernel: &str, checks: &[Check]) -> io::Result<()> {
    writeln!(out, "kernel {}", clean(kernel))?;
    let width = checks.iter().map(|c| c.name.len()).max().unwrap_or(0);
    for check in checks {
        let (name, answer) = (check.name, check.answer.as_str());
        writeln!(out, "{name:<width$}  {answer:<7}  {}", clean(&check.why))?;
        let indent = width + 11;
        writeln!(out, "{:indent$}→ {}", "", clean(&check.consequence))?;
        if let (Some(fix), false) = (&check.fix, check.answer == Answer::Yes) {
            writeln!(out, "{:indent$}fix: {}", "", clean(fix))?;
        }
    }
    let count = |answer| checks.iter().filter(|c| c.answer == answer).count();
    let (yes, no, unknown) = (count(Answer::Yes), count(Answer::No), count(Answer::Unknown));
    writeln!(out, "{yes} yes, {no} no, {unknown} unknown")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checks() -> Vec<Check> {
        vec![
            Check::new("pmu", Answer::No, "no hardware PMU in sysfs", "cycles is replaced by cpu-clock")
                .fix("pass one through"),
            Check::new("bpf-perf-event", Answer::Yes, "a program loaded", "handlers run").fix("nothing"),
        ]
    }

    #[test]
    fn a_no_comes_with_what_to_do() {
        let mut out = Vec::new();
        text(&mut out, "6.18 (x86_64)", &checks()).unwrap();
        let expected = "\
kernel 6.18 (x86_64)
pmu             no       no hardware PMU in sysfs
                         → cycles is replaced by cpu-clock
                         fix: pass one through
bpf-perf-event  yes      a program loaded
                         → handlers run
1 yes, 1 no, 0 unknown
";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn the_object_has_the_agreed_keys() {
        let object = object("6.18", &checks()[1..]);
        let expected = json!({
            "schema": "afterimage/doctor/1",
            "kernel": "6.18",
            "checks": [{"name": "bpf-perf-event", "answer": "yes", "why": "a program loaded", "consequence": "handlers run", "fix": "nothing"}],
        });
        assert_eq!(object, expected);
    }
}
