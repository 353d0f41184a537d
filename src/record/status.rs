//! The status line of a running record, on a terminal only.

use std::time::Duration;

use indicatif::{HumanBytes, HumanCount, ProgressBar, ProgressStyle};

use afterimage_recorder::Progress;

/// One line on stderr that is rewritten at each pass; nothing where stderr is no terminal or `-q` was given.
pub(crate) struct StatusLine {
    bar: ProgressBar,
}

impl StatusLine {
    /// A line, visible unless `quiet`.
    pub(crate) fn new(quiet: bool) -> StatusLine {
        let bar = if quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
        // The template is a constant; should it ever be refused, the default style says the same.
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}") {
            bar.set_style(style);
        }
        StatusLine { bar }
    }

    /// Whether anybody sees it.
    pub(crate) fn is_visible(&self) -> bool {
        !self.bar.is_hidden()
    }

    /// Shows how far the recording is.
    pub(crate) fn show(&self, progress: &Progress) {
        self.bar.set_message(describe(progress));
        self.bar.tick();
    }

    /// Takes the line away, so that what is said next starts on a clean one.
    pub(crate) fn clear(&self) {
        self.bar.finish_and_clear();
    }
}

fn describe(p: &Progress) -> String {
    let seconds = Duration::as_secs_f64(&p.elapsed);
    format!(
        "{seconds:.1} s  {} samples  {} lost  {}  (ctrl-C ends)",
        HumanCount(p.samples),
        HumanCount(p.lost),
        HumanBytes(p.bytes)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_matters() {
        let p = Progress { elapsed: Duration::from_millis(3210), samples: 12034, lost: 2, bytes: 1 << 20 };
        assert_eq!(describe(&p), "3.2 s  12,034 samples  2 lost  1.00 MiB  (ctrl-C ends)");
    }
}
