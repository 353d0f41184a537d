//! Who alone may change what runs on samples.

use std::time::{SystemTime, UNIX_EPOCH};

use super::message::{Holder, Refusal, RefusalKind};
use super::peer::Credentials;

/// The lease: taken by the first changing command of a connection, and gone with it.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    /// The connection.
    pub(crate) number: u64,
    pub(crate) holder: Holder,
}

impl Lease {
    pub(crate) fn new(number: u64, who: Credentials, now_ns: u64) -> Lease {
        let since = utc(SystemTime::now());
        Lease { number, holder: Holder { pid: who.pid, since_ns: now_ns, since } }
    }

    /// The answer to everybody else.
    pub(crate) fn busy(&self) -> Refusal {
        let Holder { pid, since, .. } = &self.holder;
        Refusal::new(RefusalKind::Busy, format!("busy: held by pid {pid} since {since}"))
    }
}

/// A time as people write it, `2026-01-31 23:59:59 UTC`.
fn utc(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March here, so that a leap day is the last of its year; eras of 400 years have 146,097 days.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02} UTC", second % 60)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_as_people_write_them() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_709_251_200, "2024-03-01 00:00:00 UTC"),
            (1_798_761_599, "2026-12-31 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }
}
