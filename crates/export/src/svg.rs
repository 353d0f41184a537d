//! The flame graph: one SVG file that a browser opens, with zoom and search.

use std::collections::BTreeMap;
use std::io::Write;

use inferno::flamegraph::{self, Options};

use crate::{Error, Stacks, folded};

/// What stands around the picture.
#[derive(Clone, Debug)]
pub struct Caption {
    /// The first line: the event and where it was recorded.
    pub title: String,
    /// The second line: the tally, so that a picture that leaves something out says so.
    pub subtitle: String,
    /// What the widths count, such as `samples` or `ns`.
    pub unit: String,
}

/// Draws the stacks of one event.
///
/// Colours follow from names, so that two pictures of the same program can be compared by eye.
///
/// # Errors
/// When the output cannot be written, or no stack has a weight.
pub fn write(stacks: &dyn Stacks, caption: &Caption, out: &mut dyn Write) -> Result<(), Error> {
    let folded = folded::fold(stacks);
    let drawn = folded.iter().filter(|(_, weight)| **weight > 0);
    let lines: Vec<String> = drawn.map(|(line, weight)| format!("{line} {weight}")).collect();
    if lines.is_empty() {
        return Err(Error::NoSamples);
    }
    if total(&folded).is_none() {
        return Err(Error::TooHeavy);
    }
    flamegraph::from_lines(&mut options(caption), lines.iter().map(String::as_str), &mut *out)?;
    out.flush()?;
    Ok(())
}

/// The sum of all weights, where a picture can show it exactly (widths are floating point numbers).
fn total(folded: &BTreeMap<String, u64>) -> Option<u64> {
    let sum = folded.values().try_fold(0_u64, |sum, weight| sum.checked_add(*weight))?;
    (sum < 1 << 53).then_some(sum)
}

fn options(caption: &Caption) -> Options<'static> {
    let mut options = Options::default();
    options.title = clean_caption(&caption.title);
    options.subtitle = Some(clean_caption(&caption.subtitle)).filter(|line| !line.is_empty());
    options.count_name = clean_caption(&caption.unit);
    options.hash = true;
    options.deterministic = true;
    // Frames thinner than a fiftieth of a pixel only make the file bigger.
    options.min_width = 0.02;
    options
}

fn clean_caption(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stacks::Held;

    fn caption() -> Caption {
        Caption { title: "cpu-clock on <host>".into(), subtitle: "3 samples: 3 kept".into(), unit: "samples".into() }
    }

    fn drawn(stacks: &[(&[&str], u64)]) -> Result<String, Error> {
        let mut held = Held::default();
        for (frames, weight) in stacks {
            held.push(frames.iter().map(|f| (*f).to_owned()).collect(), *weight);
        }
        let mut out = Vec::new();
        write(&held, &caption(), &mut out)?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn every_frame_stands_with_its_share() {
        let svg = drawn(&[(&["w", "main", "a<T>"], 3), (&["w", "main", "b"], 1)]).unwrap();
        assert!(svg.contains("<title>a&lt;T&gt; (3 samples, 75.00%)</title>"), "{svg}");
        assert!(svg.contains("<title>main (4 samples, 100.00%)</title>"));
        assert!(svg.contains("cpu-clock on &lt;host&gt;") && svg.contains("3 samples: 3 kept"));
    }

    #[test]
    fn names_cannot_break_the_document() {
        let svg = drawn(&[(&["w", "</title><script>\u{0}\u{1b}"], 1)]).unwrap();
        assert!(!svg.contains("</title><script>") && !svg.contains('\u{0}') && !svg.contains('\u{1b}'));
    }

    #[test]
    fn the_same_stacks_give_the_same_picture() {
        let stacks: [(&[&str], u64); 2] = [(&["w", "main", "a"], 3), (&["w", "main", "b"], 1)];
        assert_eq!(drawn(&stacks).unwrap(), drawn(&stacks).unwrap());
    }

    #[test]
    fn nothing_to_draw_is_said() {
        assert!(matches!(drawn(&[]), Err(Error::NoSamples)));
        assert!(matches!(drawn(&[(&["w"], 0)]), Err(Error::NoSamples)));
    }

    #[test]
    fn weights_that_cannot_be_drawn_are_refused() {
        let stacks: [(&[&str], u64); 2] = [(&["w", "a"], u64::MAX), (&["w", "b"], 2)];
        assert!(matches!(drawn(&stacks), Err(Error::TooHeavy)));
    }
}
