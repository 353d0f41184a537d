//! Pieces of the time of a recording, as perf's `--time` names them (`perf_time__parse_for_ranges`, tools/perf/util/
//! time-utils.c).

/// Times that are wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct Times {
    pieces: Vec<Piece>,
}

/// A text that names no time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither FROM,TO in seconds nor a share like 10%/2 or 0%-30%")]
pub struct BadTimes(pub String);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Piece {
    /// From the first to the last of these, ns; as perf has it, both are in it.
    Between(u64, u64),
    /// The same as parts of the recording, 0 to 1.
    Share(f64, f64),
}

impl Times {
    /// Reads `FROM,TO`, `FROM,` or `,TO` in seconds, several with blanks between them; or `P%/N`, the N-th piece of P per
    /// cent, and `P%-Q%`, several with commas between them.
    ///
    /// # Errors
    /// When it is none of these, ends before it begins, or lies outside of the recording.
    pub fn parse(text: &str) -> Result<Times, BadTimes> {
        let bad = || BadTimes(text.to_owned());
        let pieces: Option<Vec<Piece>> = if text.contains('%') {
            text.split(',').map(|word| share(word.trim())).collect()
        } else {
            text.split_whitespace().map(between).collect()
        };
        pieces.filter(|pieces| !pieces.is_empty()).map(|pieces| Times { pieces }).ok_or_else(bad)
    }

    /// Whether it takes the times of the first and the last sample: those are to be told to [`Times::of`].
    pub fn needs_span(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Share(..)))
    }

    /// The same in times of a recording whose first and last sample were taken then, ns.
    pub fn of(&self, first: u64, last: u64) -> Times {
        let total = last.saturating_sub(first);
        // A float holds any part of a recording closely enough: perf counts the same way.
        let at = |share: f64| first.saturating_add((share * total as f64).round() as u64);
        let absolute = |piece: &Piece| match *piece {
            Piece::Share(from, to) => {
                let (start, end) = (at(from), at(to));
                // What is no end of the recording belongs to the next piece.
                let end = if end > start && end != last { end - 1 } else { end };
                Piece::Between(start, end)
            }
            between => between,
        };
        Times { pieces: self.pieces.iter().map(absolute).collect() }
    }

    /// Whether a time is wanted. Shares that nobody [placed](Times::of) want none.
    pub fn has(&self, time: u64) -> bool {
        self.pieces.iter().any(|piece| match *piece {
            Piece::Between(from, to) => from <= time && time <= to,
            Piece::Share(..) => false,
        })
    }
}

fn between(word: &str) -> Option<Piece> {
    let (from, to) = word.split_once(',').unwrap_or((word, ""));
    if from.is_empty() && to.is_empty() {
        return None;
    }
    let from = if from.is_empty() { 0 } else { nanoseconds(from)? };
    let to = if to.is_empty() { u64::MAX } else { nanoseconds(to)? };
    (from <= to).then_some(Piece::Between(from, to))
}

/// Seconds with up to nine digits behind the point.
fn nanoseconds(text: &str) -> Option<u64> {
    let (seconds, rest) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(seconds) || !digits(rest) || seconds.is_empty() || rest.len() > 9 {
        return None;
    }
    let rest: u64 = format!("{rest:0<9}").parse().ok()?;
    seconds.parse::<u64>().ok()?.checked_mul(1_000_000_000)?.checked_add(rest)
}

fn share(word: &str) -> Option<Piece> {
    let (from, to) = if let Some((share, nth)) = word.split_once('/') {
        let (share, nth) = (percent(share)?, nth.parse::<u32>().ok().filter(|nth| *nth > 0)?);
        (share * f64::from(nth - 1), share * f64::from(nth))
    } else if let Some((from, to)) = word.split_once('-') {
        (percent(from)?, percent(to)?)
    } else {
        (0.0, percent(word)?)
    };
    let in_it = |share: f64| (0.0..=1.0).contains(&share);
    (in_it(from) && in_it(to) && from < to).then_some(Piece::Share(from, to))
}

/// A percentage as a part of 1.
fn percent(text: &str) -> Option<f64> {
    let number: f64 = text.trim().strip_suffix('%')?.trim().parse().ok()?;
    number.is_finite().then_some(number / 100.0)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn kept(text: &str, times: &[u64]) -> Vec<u64> {
        let wanted = Times::parse(text).unwrap();
        let wanted = if wanted.needs_span() { wanted.of(times[0], times[times.len() - 1]) } else { wanted };
        times.iter().copied().filter(|time| wanted.has(*time)).collect()
    }

    #[test]
    fn times_are_named_as_in_perf() {
        let second = 1_000_000_000;
        let times: Vec<u64> = (10..=20).map(|n| n * second).collect();
        let kept = |text: &str| kept(text, &times).into_iter().map(|time| time / second).collect::<Vec<_>>();
        assert_eq!(kept("12,14"), [12, 13, 14]);
        assert_eq!(kept("18.5,"), [19, 20]);
        assert_eq!(kept(",11.000000000"), [10, 11]);
        assert_eq!(kept(",10.999999999"), [10]);
        assert_eq!(kept("19"), [19, 20]);
        assert_eq!(kept("11,12 19,19.5"), [11, 12, 19]);
        assert_eq!(kept("10%/2"), [11]);
        assert_eq!(kept("0%-30%"), [10, 11, 12]);
        assert_eq!(kept("20%"), [10, 11]);
        assert_eq!(kept("10%/1,90%-100%"), [10, 19, 20]);
        let all: Vec<u64> = (1..=4).flat_map(|nth| kept(&format!("25%/{nth}"))).collect();
        assert_eq!(all, (10..=20).collect::<Vec<_>>(), "each is in one quarter");
    }

    #[test]
    fn what_names_no_time_is_said() {
        for bad in [
            "",
            ",",
            "2,1",
            "x,",
            "1.0000000001,",
            "0%/1",
            "10%/0",
            "60%/2",
            "30%-20%",
            "-1%",
            "1%-",
            "99999999999999,",
        ] {
            assert!(Times::parse(bad).is_err(), "{bad}");
        }
        assert!(Times::parse("2,1").unwrap_err().to_string().starts_with("\"2,1\" is neither FROM,TO"));
    }
}
