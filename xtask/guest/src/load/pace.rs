//! How many objects, how fast, and how long each lives; all times by CLOCK_MONOTONIC.

use std::str::FromStr;
use std::thread;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// How long an object lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// It goes as soon as what it is has been asked.
    Closed,
    /// It is left alone for that time.
    For(Duration),
    /// It runs until the end.
    Hot,
}

impl FromStr for Life {
    type Err = String;

    fn from_str(text: &str) -> Result<Life, String> {
        if let Some(fixed) = match text {
            "closed" => Some(Life::Closed),
            "hot" => Some(Life::Hot),
            _ => None,
        } {
            return Ok(fixed);
        }
        let bad = || format!("{text} is none of closed, hot, or a time such as 100us, 10ms, 2s");
        let digits = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
        let (number, unit) = text.split_at(digits);
        let number: u32 = number.parse().map_err(|_| bad())?;
        let unit = match unit {
            "us" => Duration::from_micros(1),
            "ms" => Duration::from_millis(1),
            "s" => Duration::from_secs(1),
            _ => return Err(bad()),
        };
        Ok(Life::For(unit * number))
    }
}

impl Life {
    /// Lets an object live: sleeps, or not. A hot object is its kind's own matter.
    pub(crate) fn pass(self) {
        if let Life::For(time) = self {
            thread::sleep(time);
        }
    }
}

/// Nanoseconds of CLOCK_MONOTONIC.
pub(crate) fn now() -> u64 {
    nanoseconds(ClockId::Monotonic)
}

/// Nanoseconds of CPU time that this thread has used.
pub(crate) fn thread_cpu() -> u64 {
    nanoseconds(ClockId::ThreadCPUTime)
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Hands out the numbers of the objects to make, each at its time.
#[derive(Debug)]
pub(crate) struct Pace {
    first: u64,
    made: u64,
    count: u64,
    interval: Option<Duration>,
    start: u64,
    end: Option<u64>,
}

impl Pace {
    /// `count` objects numbered from `first`, but none after `seconds`; at most `rate` in a second.
    pub(crate) fn new(first: u64, count: Option<u64>, seconds: Option<f64>, rate: Option<u32>) -> Pace {
        let start = now();
        // Whoever gives a time and no number wants as many as there is time for.
        let count = count.unwrap_or(if seconds.is_some() { u64::MAX } else { 100 });
        let end = seconds.map(|s| start.saturating_add((s * 1e9) as u64));
        let interval = rate.filter(|rate| *rate > 0).map(|rate| Duration::from_secs(1) / rate);
        Pace { first, made: 0, count, interval, start, end }
    }

    fn over(&self) -> bool {
        self.end.is_some_and(|end| now() >= end)
    }
}

impl Iterator for Pace {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if self.made == self.count || self.over() {
            return None;
        }
        if let Some(interval) = self.interval {
            let due = self.start.saturating_add((interval.as_nanos() as u64).saturating_mul(self.made));
            thread::sleep(Duration::from_nanos(due.saturating_sub(now())));
            if self.over() {
                return None;
            }
        }
        self.made += 1;
        Some(self.first.wrapping_add(self.made - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_is_read_from_its_name() {
        assert_eq!("closed".parse(), Ok(Life::Closed));
        assert_eq!("100us".parse(), Ok(Life::For(Duration::from_micros(100))));
        assert_eq!("2s".parse(), Ok(Life::For(Duration::from_secs(2))));
        for bad in ["", "10", "ms", "1h", "99999999999ms"] {
            assert!(bad.parse::<Life>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_count_ends_the_load_and_so_does_its_time() {
        assert_eq!(Pace::new(5, Some(3), None, None).collect::<Vec<_>>(), [5, 6, 7]);
        assert_eq!(Pace::new(0, Some(3), Some(0.0), None).count(), 0);
        assert_eq!(Pace::new(0, None, None, None).count(), 100);
        assert_eq!(Pace::new(u64::MAX, Some(2), Some(f64::INFINITY), None).collect::<Vec<_>>(), [u64::MAX, 0]);
    }
}
