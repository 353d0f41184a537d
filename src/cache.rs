//! `afterimage cache`: the symbol tables that are kept on disk, so that files that were read once are not read again.

use std::io::Write;
use std::time::{Duration, SystemTime};

use afterimage_symbols::cache::{Cache, CacheEntry};
use anyhow::Context;
use clap::{Args, Subcommand};

use crate::exit::{Exit, Problem};
use crate::out;
use crate::say::Say;
use crate::terminal::{clean, grouped};

/// `afterimage cache`
#[derive(Args, Debug)]
pub(crate) struct CacheArgs {
    #[command(subcommand)]
    job: Option<Job>,
}

#[derive(Subcommand, Debug)]
enum Job {
    /// Show what is kept, and how much it takes (what is done when nothing is said)
    List,
    /// Remove all of it
    Clear,
    /// Show how much it may take, or set that
    Limit {
        /// Bytes, with K, M or G
        size: Option<String>,
    },
}

/// Shows or changes the user's cache of symbols.
pub(crate) fn run(args: &CacheArgs, say: &Say) -> anyhow::Result<Exit> {
    let Some(mut cache) = Cache::open_default() else {
        let problem = Problem::failed("there is no place for a cache of symbols".to_owned());
        return Err(problem.hint("HOME or XDG_CACHE_HOME has to name a folder of yours").into());
    };
    let place = cache.dir().display().to_string();
    match &args.job {
        None | Some(Job::List) => {
            let mut to = out::stdout()?;
            list(&mut to, &cache.entries().context(place)?)?;
            out::flush(&mut to)?;
        }
        Some(Job::Clear) => {
            let gone = cache.clear().with_context(|| place.clone())?;
            let bytes = gone.iter().map(|entry| entry.bytes).sum();
            say.note(format!("{place}: {} tables removed, {}", grouped(gone.len() as u64), human(bytes)));
        }
        Some(Job::Limit { size: None }) => {
            let mut to = out::stdout()?;
            writeln!(to, "{}", human(cache.limit()))?;
            out::flush(&mut to)?;
        }
        Some(Job::Limit { size: Some(text) }) => {
            let bytes = bytes(text).ok_or_else(|| {
                Problem::usage(format!("cache limit {text}: not a size")).hint("for example 200M or 2G")
            })?;
            cache.set_limit(bytes).with_context(|| place.clone())?;
            say.note(format!("{place}: {} at most", human(bytes)));
        }
    }
    Ok(Exit::Done)
}

fn list(to: &mut dyn Write, entries: &[CacheEntry]) -> std::io::Result<()> {
    for entry in entries {
        let age = SystemTime::now().duration_since(entry.used).unwrap_or_default();
        writeln!(to, "{:>10}  {:>9}  {}", human(entry.bytes), ago(age), clean(&entry.name))?;
    }
    let all = entries.iter().map(|entry| entry.bytes).sum();
    writeln!(to, "{:>10}  in {} tables", human(all), grouped(entries.len() as u64))
}

/// How long ago, in the largest unit of which there is one.
fn ago(age: Duration) -> String {
    let seconds = age.as_secs();
    match seconds {
        0..60 => format!("{seconds} s ago"),
        60..3600 => format!("{} min ago", seconds / 60),
        3600..86_400 => format!("{} h ago", seconds / 3600),
        _ => format!("{} d ago", seconds / 86_400),
    }
}

fn human(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..0x10_0000 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        0x10_0000..0x4000_0000 => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
        _ => format!("{:.1} GiB", bytes as f64 / 1_073_741_824.0),
    }
}

fn bytes(text: &str) -> Option<u64> {
    let (digits, shift) = match text.char_indices().last()? {
        (at, 'K') => (&text[..at], 10),
        (at, 'M') => (&text[..at], 20),
        (at, 'G') => (&text[..at], 30),
        _ => (text, 0),
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_ages() {
        assert_eq!((bytes("2G"), bytes("77"), bytes("3K")), (Some(2 << 30), Some(77), Some(3072)));
        assert_eq!(
            (bytes(""), bytes("G"), bytes("1.5G"), bytes("99999999999G"), bytes("ü")),
            (None, None, None, None, None)
        );
        assert_eq!(human(512 << 20), "512.0 MiB");
        assert_eq!((human(1023), human(1536), human(3 << 30)), ("1023 B".into(), "1.5 KiB".into(), "3.0 GiB".into()));
        assert_eq!(ago(Duration::from_secs(59)), "59 s ago");
        assert_eq!(ago(Duration::from_secs(200_000)), "2 d ago");
    }
}
