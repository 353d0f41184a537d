//! What a guest does once it is up, as a text that the host packs beside the programs.
//!
//! One step a line, its words divided by tabs. A word may hold anything but tabs and line ends.

use std::fmt::Write;
use std::time::Duration;

/// Where the plan is inside a guest.
pub const PATH: &str = "/guest/plan";

/// Everything that a guest is told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Kernel modules to load first, in this order.
    pub modules: Vec<String>,
    /// The environment of every program.
    pub environment: Vec<(String, String)>,
    /// What is run, one after the other.
    pub runs: Vec<Run>,
    /// Whether a shell on the console comes in place of the runs.
    pub shell: bool,
}

/// One program to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// What it is called in reports.
    pub name: String,
    /// After this time it is killed.
    pub limit: Duration,
    /// The folder that it runs in; made when it is not there.
    pub folder: String,
    /// The program and its arguments.
    pub words: Vec<String>,
}

/// A plan that can't be written or read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error(String);

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the guest's plan: {}", self.0)
    }
}

impl std::error::Error for Error {}

impl Plan {
    /// The plan as text.
    ///
    /// # Errors
    /// A word holds a tab or a line end.
    pub fn encode(&self) -> Result<String, Error> {
        let mut text = String::new();
        for module in &self.modules {
            line(&mut text, &["module", module])?;
        }
        for (name, value) in &self.environment {
            line(&mut text, &["env", name, value])?;
        }
        for run in &self.runs {
            let limit = run.limit.as_secs().to_string();
            let mut words = vec!["run", &run.name, &limit, &run.folder];
            words.extend(run.words.iter().map(String::as_str));
            line(&mut text, &words)?;
        }
        if self.shell {
            line(&mut text, &["shell"])?;
        }
        Ok(text)
    }

    /// Reads what [`Plan::encode`] wrote.
    ///
    /// # Errors
    /// A line that is no step.
    pub fn decode(text: &str) -> Result<Plan, Error> {
        let mut plan = Plan::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split('\t').collect();
            match words.as_slice() {
                ["module", path] => plan.modules.push((*path).to_owned()),
                ["env", name, value] => plan.environment.push(((*name).to_owned(), (*value).to_owned())),
                ["run", name, limit, folder, words @ ..] if !words.is_empty() => plan.runs.push(Run {
                    name: (*name).to_owned(),
                    limit: Duration::from_secs(limit.parse().map_err(|_| Error(format!("no seconds: {limit:?}")))?),
                    folder: (*folder).to_owned(),
                    words: words.iter().map(|word| (*word).to_owned()).collect(),
                }),
                ["shell"] => plan.shell = true,
                _ => return Err(Error(format!("no step: {line:?}"))),
            }
        }
        Ok(plan)
    }
}

fn line(text: &mut String, words: &[&str]) -> Result<(), Error> {
    if let Some(word) = words.iter().find(|word| word.contains(['\t', '\n', '\r'])) {
        return Err(Error(format!("{word:?} can't be a word of it")));
    }
    let _ = writeln!(text, "{}", words.join("\t"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Plan {
        Plan {
            modules: vec!["/lib/modules/virtio.ko".into()],
            environment: vec![("PATH".into(), "/bin".into()), ("EMPTY".into(), String::new())],
            runs: vec![Run {
                name: "handler native".into(),
                limit: Duration::from_secs(300),
                folder: "/a b".into(),
                words: vec!["/t/native-1".into(), String::new(), "--test-threads=1".into()],
            }],
            shell: true,
        }
    }

    #[test]
    fn what_was_written_is_read_again() {
        let text = sample().encode().unwrap();
        assert_eq!(Plan::decode(&text).unwrap(), sample());
    }

    #[test]
    fn words_that_would_break_lines_are_refused() {
        let mut plan = sample();
        plan.runs[0].words.push("a\nrun".into());
        assert_eq!(plan.encode().unwrap_err().to_string(), r#"the guest's plan: "a\nrun" can't be a word of it"#);
    }

    #[test]
    fn other_lines_are_refused() {
        for text in ["dance\n", "run\tname\t5\t/\n", "run\tname\tfive\t/\tsh\n", "\n"] {
            assert!(Plan::decode(text).is_err(), "{text:?}");
        }
    }
}
