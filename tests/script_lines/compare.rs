//! The same question to both, and what they answer.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{afterimage, stderr, stdout, word};

/// The fields that both name alike whatever symbols they find.
pub(crate) const LINES: &[&str] = &["-F", "comm,tid,time,event,ip"];

/// How a recording is given to its reader.
#[derive(Clone, Copy, Debug)]
pub(crate) enum By {
    Name,
    Stdin,
}

impl By {
    fn give(self, command: &mut Command, path: &Path) {
        match self {
            By::Name => command.args(["-i", word(path)]).stdin(Stdio::null()),
            By::Stdin => command.args(["-i", "-"]).stdin(File::open(path).unwrap()),
        };
    }
}

/// What the command prints, which has to end with 0.
pub(crate) fn ours(by: By, path: &Path, words: &[&str]) -> String {
    let mut command = afterimage();
    by.give(command.args(words), path);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{words:?} of {}: {}", path.display(), stderr(&output));
    stdout(&output)
}

/// What perf prints; `None` where it gives up.
pub(crate) fn perfs(by: By, path: &Path, words: &[&str]) -> Option<String> {
    let mut command = Command::new("perf");
    by.give(command.args(words), path);
    let output = command.output().unwrap();
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// perf leaves out what is beyond 127 addresses of a call chain unless it is told not to.
pub(crate) const WHOLE_CHAINS: &str = "--max-stack=1024";

/// Compares the lines of both, and gives their number. `told`: options for perf alone.
pub(crate) fn lines(by: By, path: &Path, options: &[&str], told: &[&str]) -> Result<usize, String> {
    let ours = ours(by, path, &[&["script"], options].concat());
    let words = [&["script", "--no-inline", WHOLE_CHAINS], told, options].concat();
    let Some(theirs) = perfs(by, path, &words) else { return Err(format!("perf {words:?} fails")) };
    let theirs = if is_stream(path) { without_names(&theirs) } else { theirs };
    same(&ours, &theirs).map_err(|differ| format!("{options:?}, {differ}"))
}

/// Whether a recording is in the form for pipes: its header is no longer than magic number and size.
fn is_stream(path: &Path) -> bool {
    std::fs::read(path).is_ok_and(|bytes| bytes.get(8..16) == Some(&16_u64.to_le_bytes()))
}

/// In call chains of streams perf prints names whether it is asked for them or not.
fn without_names(text: &str) -> String {
    let bare = |line: &str| match line.strip_prefix('\t') {
        Some(frame) => format!("\t{:>16}\n", frame.split_whitespace().next().unwrap_or_default()),
        None => format!("{line}\n"),
    };
    text.lines().map(bare).collect()
}

/// Compares two texts by lines, and gives their number.
pub(crate) fn same(ours: &str, theirs: &str) -> Result<usize, String> {
    let pairs = ours.lines().zip(theirs.lines()).enumerate();
    if let Some((nth, (our, their))) = pairs.into_iter().find(|(_, (our, their))| our != their) {
        return Err(format!("line {}:\nours   {our:?}\ntheirs {their:?}", nth + 1));
    }
    let (our, their) = (ours.lines().count(), theirs.lines().count());
    if our == their { Ok(our) } else { Err(format!("{our} lines, perf has {their}")) }
}

/// The counts of both, which have to be equal. In streams `report` of perf, unlike its `script`, does not look for the names
/// of events and makes them up from the attrs; those are `renamed`.
pub(crate) fn counts(by: By, path: &Path, renamed: &[(&str, &str)]) -> Result<(), String> {
    let ours = ours(by, path, &["report", "--stats"]);
    let theirs = perfs(by, path, &["report", "--stats", "--stdio"]).filter(|text| !text.is_empty());
    let Some(theirs) = theirs else { return Err("perf counts nothing".to_owned()) };
    let theirs = renamed.iter().fold(theirs, |text, (theirs, ours)| text.replace(theirs, ours));
    same(&ours, &theirs).map(|_| ()).map_err(|differ| format!("{differ}\nours{ours}theirs{theirs}"))
}
