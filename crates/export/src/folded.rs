//! Folded stacks: one line a stack, `comm;outermost;…;innermost WEIGHT`, sorted, each stack once.

use std::collections::BTreeMap;
use std::io::Write;

use crate::name::{clean, clean_comm};
use crate::{Error, Stacks};

/// The stacks as lines without their weights, each once, with the sum of its weights.
#[must_use]
pub fn fold(stacks: &dyn Stacks) -> BTreeMap<String, u64> {
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    let mut line = String::new();
    stacks.visit(&mut |frames, weight| {
        line.clear();
        write_frames(&mut line, frames);
        match lines.get_mut(&line) {
            Some(sum) => *sum = sum.saturating_add(weight),
            None => {
                lines.insert(line.clone(), weight);
            }
        }
    });
    lines
}

/// Writes the folded stacks. No stack is an empty file, not an error: a tool that reads it draws nothing.
///
/// # Errors
/// When the output cannot be written.
pub fn write(stacks: &dyn Stacks, out: &mut dyn Write) -> Result<(), Error> {
    for (line, weight) in fold(stacks) {
        writeln!(out, "{line} {weight}")?;
    }
    out.flush()?;
    Ok(())
}

fn write_frames(line: &mut String, frames: &[&str]) {
    for (depth, frame) in frames.iter().enumerate() {
        if depth == 0 {
            line.push_str(&clean_comm(frame));
        } else {
            line.push(';');
            line.push_str(&clean(frame));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::Held;

    fn held(stacks: &[(&[&str], u64)]) -> Held {
        let mut held = Held::default();
        for (frames, weight) in stacks {
            held.push(frames.iter().map(|f| (*f).to_owned()).collect(), *weight);
        }
        held
    }

    fn written(stacks: &[(&[&str], u64)]) -> String {
        let mut out = Vec::new();
        write(&held(stacks), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn equal_stacks_add_up_and_lines_are_sorted() {
        let text = written(&[(&["w", "main", "b"], 2), (&["w", "main"], 1), (&["w", "main", "b"], 3)]);
        assert_eq!(text, "w;main 1\nw;main;b 5\n");
    }

    #[test]
    fn a_name_cannot_make_a_frame_or_a_line() {
        assert_eq!(written(&[(&["my app", "f;g", "h\n9"], 1)]), "my_app;f:g;h\u{fffd}9 1\n");
    }

    #[test]
    fn names_that_differ_only_in_what_is_replaced_add_up() {
        assert_eq!(written(&[(&["w", "a;"], 1), (&["w", "a:"], u64::MAX)]), format!("w;a: {}\n", u64::MAX));
    }

    #[test]
    fn no_stack_is_an_empty_file() {
        assert_eq!(written(&[]), "");
    }
}
