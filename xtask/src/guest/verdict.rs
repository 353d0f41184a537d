//! What a run in a guest came to: each way to fail is a kind of its own, with its own sentence.

use super::log::Trouble;
use super::machine::{DONE, End};
use guest::wire::How;
use std::fmt;
use std::time::Duration;

/// One executable in one guest.
#[derive(Clone, Debug)]
pub(crate) struct Ran {
    pub(crate) name: String,
    pub(crate) limit: Duration,
    /// Whether it was started.
    pub(crate) started: bool,
    /// How it ended; none when the guest ended first.
    pub(crate) how: Option<How>,
    /// What its tests came to, as they said.
    pub(crate) counts: Counts,
    pub(crate) wall: Duration,
}

/// Numbers of tests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
    pub(crate) ignored: usize,
}

impl Counts {
    /// Adds what one line of output says, if it is the line with which an executable ends.
    pub(crate) fn add_line(&mut self, line: &str) {
        let Some((_, numbers)) = line.strip_prefix("test result: ").and_then(|rest| rest.split_once(". ")) else {
            return;
        };
        for part in numbers.split("; ") {
            match part.split_once(' ').and_then(|(number, what)| Some((number.parse::<usize>().ok()?, what))) {
                Some((number, "passed")) => self.passed += number,
                Some((number, "failed")) => self.failed += number,
                Some((number, "ignored")) => self.ignored += number,
                _ => {}
            }
        }
    }

    pub(crate) fn add(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.ignored += other.ignored;
    }
}

/// The test whose end a line of output tells, if it does. What a test printed past the harness may stand before its verdict.
pub(crate) fn ended_test(line: &str) -> Option<&str> {
    let (name, verdict) = line.strip_prefix("test ")?.split_once(" ... ")?;
    (verdict.ends_with("ok") || verdict.ends_with("FAILED") || verdict.starts_with("ignored")).then_some(name)
}

/// Something that went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Tests failed: how many, and the exit code.
    TestsFailed(String, usize, u8),
    /// An executable was ended by a signal.
    Died(String, u8),
    /// An executable did not end in its time.
    Hang(String, Duration),
    /// The plan names a file that is not in the guest.
    Missing(String, String),
    /// An executable is there, but does not start.
    NotStarted(String, String),
    /// The kernel's log tells of trouble, while this ran.
    Kernel(Trouble, Option<String>),
    /// The whole guest did not end in its time, while this ran.
    GuestHang(Duration, Option<String>),
    /// qemu ended in a way that no plan asks for.
    EndedOtherwise(String),
    /// Nothing failed, and nothing was tested.
    NothingRan,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let during =
            |run: &Option<String>| run.as_ref().map_or("before the tests".into(), |run| format!("during {run}"));
        match self {
            Fault::TestsFailed(run, 0, code) => write!(f, "failed: {run} ended with exit code {code}"),
            Fault::TestsFailed(run, failed, code) => write!(f, "failed: {failed} tests of {run} (exit code {code})"),
            Fault::Died(run, signal) => write!(f, "died: {run} was ended by signal {signal}"),
            Fault::Hang(run, limit) => write!(f, "hang: {run} did not end in {} s and was killed", limit.as_secs()),
            Fault::Missing(run, path) => write!(f, "missing: {path} is not in the guest, so {run} did not run"),
            Fault::NotStarted(run, why) => write!(f, "not started: {run}: {why}"),
            Fault::Kernel(trouble, run) => {
                write!(f, "{} ({}): {}", trouble.kind.sentence(), during(run), trouble.line)
            }
            Fault::GuestHang(limit, run) => {
                write!(f, "guest hang: it did not end in {} s ({}) and was killed", limit.as_secs(), during(run))
            }
            Fault::EndedOtherwise(how) => write!(f, "ended otherwise: the guest did not carry out its plan: {how}"),
            Fault::NothingRan => f.write_str("nothing ran: no test has such a name"),
        }
    }
}

/// All that went wrong, the cause before what follows from it.
pub(crate) fn judge(runs: &[Ran], end: &End, limit: Duration, finished: bool) -> Vec<Fault> {
    let mut faults: Vec<Fault> = runs.iter().filter_map(of_run).collect();
    let current = runs.iter().find(|run| run.started && run.how.is_none()).map(|run| run.name.clone());
    if let Some(trouble) = &end.trouble {
        faults.push(Fault::Kernel(trouble.clone(), current));
    } else if end.hung {
        faults.push(Fault::GuestHang(limit, current));
    } else if end.code != Some(DONE) || !finished || end.garbled {
        faults.push(Fault::EndedOtherwise(how_it_ended(end)));
    }
    let counts = total(runs);
    if faults.is_empty() && counts.passed + counts.failed == 0 {
        faults.push(Fault::NothingRan);
    }
    faults
}

/// What all tests came to.
pub(crate) fn total(runs: &[Ran]) -> Counts {
    let mut counts = Counts::default();
    runs.iter().for_each(|run| counts.add(run.counts));
    counts
}

fn of_run(run: &Ran) -> Option<Fault> {
    let name = run.name.clone();
    match run.how.clone()? {
        How::Exit(0) if run.counts.failed == 0 => None,
        How::Exit(code) => Some(Fault::TestsFailed(name, run.counts.failed, code)),
        How::Signal(signal) => Some(Fault::Died(name, signal)),
        How::TimedOut => Some(Fault::Hang(name, run.limit)),
        How::Missing(path) => Some(Fault::Missing(name, path)),
        How::NotStarted(why) => Some(Fault::NotStarted(name, why)),
    }
}

fn how_it_ended(end: &End) -> String {
    let code = match end.code {
        Some(code) => format!("qemu's exit code is {code}, not {DONE}"),
        None => "qemu was killed".into(),
    };
    let garbled = if end.garbled { "; it sent bytes that are no message" } else { "" };
    let said = if end.said.is_empty() { String::new() } else { format!("; qemu said: {}", end.said) };
    format!("{code}{garbled}{said}")
}

#[cfg(test)]
mod tests {
    use super::super::log::Kind;
    use super::*;

    const LIMIT: Duration = Duration::from_secs(600);

    fn ran(how: Option<How>, passed: usize, failed: usize) -> Ran {
        let counts = Counts { passed, failed, ignored: 0 };
        let limit = Duration::from_secs(240);
        Ran { name: "handler-native".into(), limit, started: true, how, counts, wall: Duration::ZERO }
    }

    fn end(code: Option<i32>) -> End {
        End { code, hung: false, garbled: false, trouble: None, warnings: 0, said: String::new() }
    }

    fn said(run: Ran, end: &End, finished: bool) -> Vec<String> {
        judge(&[run], end, LIMIT, finished).iter().map(Fault::to_string).collect()
    }

    #[test]
    fn tests_end_with_a_verdict() {
        let known = [
            ("test by::sums ... ok", Some("by::sums")),
            ("test by::sums ... FAILED", Some("by::sums")),
            ("test killed::a_recorder ... ignored, a process for another test", Some("killed::a_recorder")),
            ("test by::sums ... ", None),
            ("test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s", None),
            ("ok", None),
        ];
        for (line, test) in known {
            assert_eq!(ended_test(line), test, "{line}");
        }
    }

    #[test]
    fn only_a_plan_carried_out_is_a_success() {
        assert_eq!(said(ran(Some(How::Exit(0)), 3, 0), &end(Some(DONE)), true), [""; 0]);
        for (code, finished) in [(Some(0), true), (Some(1), true), (None, true), (Some(DONE), false)] {
            let faults = judge(&[ran(Some(How::Exit(0)), 3, 0)], &end(code), LIMIT, finished);
            assert!(matches!(faults.as_slice(), [Fault::EndedOtherwise(_)]), "{code:?} {finished}: {faults:?}");
        }
    }

    #[test]
    fn every_way_to_end_has_its_sentence() {
        let done = end(Some(DONE));
        for (how, sentence) in [
            (How::Exit(101), "failed: 1 tests of handler-native (exit code 101)"),
            (How::Signal(11), "died: handler-native was ended by signal 11"),
            (How::TimedOut, "hang: handler-native did not end in 240 s and was killed"),
            (How::Missing("/t/x".into()), "missing: /t/x is not in the guest, so handler-native did not run"),
            (How::NotStarted("no".into()), "not started: handler-native: no"),
        ] {
            assert_eq!(said(ran(Some(how), 0, 1), &done, true), [sentence]);
        }
        assert_eq!(said(ran(Some(How::Exit(0)), 0, 0), &done, true), ["nothing ran: no test has such a name"]);
    }

    #[test]
    fn the_kernels_trouble_goes_before_the_way_qemu_ended() {
        let trouble = Trouble { kind: Kind::SoftLockup, line: "BUG: soft lockup - CPU#1 stuck for 31s!".into() };
        let ended = End { trouble: Some(trouble), ..end(Some(0)) };
        let sentence = "soft lock-up: a CPU ran kernel code without a break (during handler-native): \
            BUG: soft lockup - CPU#1 stuck for 31s!";
        assert_eq!(said(ran(None, 0, 0), &ended, false), [sentence]);
        let hung = End { hung: true, ..end(None) };
        let sentence = "guest hang: it did not end in 600 s (during handler-native) and was killed";
        assert_eq!(said(ran(None, 0, 0), &hung, false), [sentence]);
    }

    #[test]
    fn counts_are_those_of_the_last_lines() {
        let mut counts = Counts::default();
        counts.add_line(
            "test result: FAILED. 12 passed; 1 failed; 2 ignored; 0 measured; 5 filtered out; finished in 1s",
        );
        counts.add_line("test a::passed ... ok");
        counts.add_line("test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1s");
        assert_eq!(counts, Counts { passed: 15, failed: 1, ignored: 2 });
    }
}
