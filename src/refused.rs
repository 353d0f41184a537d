//! What was there and was not used for names, since it is not what was recorded: told in one line each.

use afterimage_profile::{NotUsed, Reason};
use afterimage_symbols::{Mismatch, Refused};
use serde_json::{Value, json};

use crate::say::Say;
use crate::terminal::grouped;

/// Files that a line names; the others are counted.
const NAMED: usize = 3;

/// Says how many files of other builds there were, and whether the kernel was another one.
pub(crate) fn say(recording: &str, not_used: NotUsed<'_>, say: &Say) {
    if let Some(line) = files(not_used.files) {
        say.note(format!("{recording}: {line}"));
    }
    for refused in not_used.files {
        say.detail(format!("{recording}: {}", one_file(refused)));
    }
    if not_used.damaged > 0 {
        let count = grouped(not_used.damaged);
        say.warn(format!("{recording}: {count} objects of the archive are damaged and name nothing"));
    }
    if let Some((reason, places)) = not_used.kernel {
        let without = grouped(places);
        say.note(format!("{recording}: names of the kernel were not used for {without} addresses: {}", why(reason)));
    }
}

/// The same for `--json`.
pub(crate) fn json(not_used: NotUsed<'_>) -> Value {
    let file = |refused: &Refused| {
        let own = match &refused.why {
            Mismatch::BuildId(own) => id(own),
            Mismatch::Checksum => None,
        };
        let why = match refused.why {
            Mismatch::BuildId(_) => "build-id-differs",
            Mismatch::Checksum => "checksum-differs",
        };
        json!({
            "file": refused.file.to_string_lossy(),
            "reason": why,
            "recorded": id(&refused.recorded),
            "own": own,
        })
    };
    let files: Vec<Value> = not_used.files.iter().map(file).collect();
    let kernel = not_used.kernel.map(|(reason, places)| json!({"reason": reason.key(), "addresses": places}));
    json!({"files": files, "kernel": kernel, "damaged_objects": not_used.damaged})
}

fn files(refused: &[Refused]) -> Option<String> {
    let named: Vec<String> = refused.iter().take(NAMED).map(|refused| refused.file.display().to_string()).collect();
    let count = match refused.len() {
        0 => return None,
        1 => "one file is of another build than the recorded one and was not used".to_owned(),
        n => format!("{} files are of other builds than the recorded ones and were not used", grouped(n as u64)),
    };
    let more = if refused.len() > NAMED { ", …" } else { "" };
    Some(format!("{count}: {}{more}", named.join(", ")))
}

fn one_file(refused: &Refused) -> String {
    let file = refused.file.display();
    let hex = |bytes: &[u8]| id(bytes).unwrap_or_else(|| "none".to_owned());
    match &refused.why {
        Mismatch::BuildId(own) => format!("{file}: build ID {}, recorded was {}", hex(own), hex(&refused.recorded)),
        Mismatch::Checksum => format!("{file}: another checksum than its program's .gnu_debuglink has"),
    }
}

fn id(bytes: &[u8]) -> Option<String> {
    (!bytes.is_empty()).then(|| bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn why(reason: Reason) -> String {
    match reason {
        Reason::OtherKernel => "the kernel that runs here is not the recorded one".to_owned(),
        reason => reason.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(file: &str) -> Refused {
        Refused { file: file.into(), recorded: vec![0xab, 1], why: Mismatch::BuildId(vec![0xcd]) }
    }

    #[test]
    fn one_line_tells_how_many_and_names_some() {
        assert_eq!(files(&[]), None);
        let one = files(&[refused("/a")]).unwrap();
        assert_eq!(one, "one file is of another build than the recorded one and was not used: /a");
        let four: Vec<Refused> = ["/a", "/b", "/c", "/d"].map(refused).into();
        let line = files(&four).unwrap();
        assert_eq!(line, "4 files are of other builds than the recorded ones and were not used: /a, /b, /c, …");
        assert_eq!(one_file(&four[0]), "/a: build ID cd, recorded was ab01");
    }

    #[test]
    fn json_has_both_ids() {
        let files = [refused("/a"), Refused { recorded: Vec::new(), why: Mismatch::Checksum, ..refused("/b") }];
        let shown = json(NotUsed { files: &files, kernel: Some((Reason::OtherKernel, 7)), damaged: 2 });
        assert_eq!(
            shown,
            json!({
                "files": [
                    {"file": "/a", "reason": "build-id-differs", "recorded": "ab01", "own": "cd"},
                    {"file": "/b", "reason": "checksum-differs", "recorded": null, "own": null},
                ],
                "kernel": {"reason": "other-kernel", "addresses": 7},
                "damaged_objects": 2,
            })
        );
        let nothing = json(NotUsed { files: &[], kernel: None, damaged: 0 });
        assert_eq!(nothing, json!({"files": [], "kernel": null, "damaged_objects": 0}));
    }
}
