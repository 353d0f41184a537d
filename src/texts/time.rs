//! Times of the recording's clock as people read and write them: seconds, as `script` prints them.

use std::fmt;

const SECOND: u64 = 1_000_000_000;

/// A time in nanoseconds, shown in seconds with six digits behind the point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seconds(pub(crate) u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0 / SECOND, self.0 % SECOND / 1000)
    }
}

/// Reads seconds with up to nine digits behind the point. `None` for anything else.
pub(crate) fn parse(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || part.len() > 9 || !digits(whole) || !digits(part) {
        return None;
    }
    let nanoseconds: u64 = format!("{part:0<9}").parse().ok()?;
    whole.parse::<u64>().ok()?.checked_mul(SECOND)?.checked_add(nanoseconds)
}

/// A duration in the unit that suits it, three digits.
pub(crate) fn lasting(ns: u64) -> String {
    let in_units = [(SECOND, "s"), (1_000_000, "ms"), (1000, "µs")].into_iter().find(|(unit, _)| ns >= *unit);
    let Some((unit, name)) = in_units else { return format!("{ns} ns") };
    // A float holds three digits of any duration.
    let value = ns as f64 / unit as f64;
    let decimals = if value >= 100.0 {
        0
    } else if value >= 10.0 {
        1
    } else {
        2
    };
    format!("{value:.decimals$} {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_read_as_they_are_written() {
        for ns in [0, 1_000, 1_001_000, 12_345_678_901_000, 999_999_000] {
            assert_eq!(parse(&Seconds(ns).to_string()), Some(ns));
        }
        assert_eq!(parse("12"), Some(12 * SECOND));
        assert_eq!(parse("0.000000001"), Some(1));
        for bad in ["", ".5", "1.2.3", "-1", "1e3", "1.0000000001", "99999999999999", "1,5"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn durations_have_three_digits() {
        let shown = [
            (7, "7 ns"),
            (1_250, "1.25 µs"),
            (45_600, "45.6 µs"),
            (123_456_789, "123 ms"),
            (61 * SECOND, "61.0 s"),
            (1_234 * SECOND, "1234 s"),
        ];
        for (ns, text) in shown {
            assert_eq!(lasting(ns), text);
        }
    }
}
