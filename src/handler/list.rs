//! `handler list`.

use std::io::Write;

use afterimage_recorder::control::{Client, ClientError, Stats, sessions};
use anyhow::Context;
use serde::Serialize;

use super::args::ListArgs;
use super::session::{json, stats};
use crate::exit::Exit;
use crate::out;
use crate::say::Say;
use crate::table::{Cells, Column, Side, Table};
use crate::terminal::{clean, grouped};

#[derive(Serialize)]
struct Listed {
    sessions: Vec<Stats>,
}

/// Lists the sessions of this user.
pub(crate) fn run(args: &ListArgs, say: &Say) -> anyhow::Result<Exit> {
    let mut listed = Vec::new();
    let mut exit = Exit::Done;
    for (session, _) in sessions().context("the folder of control sockets")? {
        match Client::connect(session).and_then(|mut client| stats(&mut client)) {
            Ok(stats) => listed.push(stats),
            // It ended as we came.
            Err(ClientError::NoSession(_) | ClientError::Ended) => (),
            Err(error) => {
                say.warn(format!("session {session}: {error}"));
                exit = Exit::Partly;
            }
        }
    }
    if args.json {
        json("handler-list", &Listed { sessions: listed })?;
    } else if listed.is_empty() {
        say.note("no recording of yours runs");
    } else {
        table(&listed, say.is_quiet())?;
    }
    Ok(exit)
}

fn table(listed: &[Stats], quiet: bool) -> anyhow::Result<()> {
    let columns = vec![
        Column::new("Session", 0, Side::Right),
        Column::new("Handler", 0, Side::Left),
        Column::new("Generation", 0, Side::Right),
        Column::new("Age", 0, Side::Right),
        Column::new("Samples", 0, Side::Right),
        Column::new("Held by", 0, Side::Left),
        Column::new("Command", 0, Side::Left),
    ];
    let mut cells = Cells::new(columns.len());
    for stats in listed {
        let samples = stats.events.iter().map(|event| event.tally.handled.unwrap_or(event.tally.chained)).sum();
        cells.push(|to| write(to, &stats.session.to_string()));
        cells.push(|to| write(to, if stats.programs { &stats.handler } else { "(no programs)" }));
        cells.push(|to| write(to, &stats.generation.to_string()));
        cells.push(|to| write(to, &age(stats.now_ns.saturating_sub(stats.started_ns))));
        cells.push(|to| write(to, &grouped(samples)));
        cells.push(|to| write(to, &stats.holder.as_ref().map_or_else(|| "-".to_owned(), |held| held.pid.to_string())));
        cells.push(|to| write(to, &stats.command.join(" ")));
    }
    let table = Table::fit(columns, &cells);
    let mut to = out::stdout()?;
    let mut all = || {
        if !quiet {
            table.head(&mut to)?;
        }
        (0..cells.rows()).try_for_each(|row| table.row(&mut to, &cells, row))?;
        to.flush()
    };
    all().context("standard output")
}

fn write(to: &mut String, text: &str) -> std::fmt::Result {
    std::fmt::Write::write_str(to, &clean(text))
}

/// How long something has been there: `2 h 5 min`, `3 min 20 s`, `1.2 s`.
pub(crate) fn age(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, seconds) => format!("{seconds}.{} s", ns / 100_000_000 % 10),
        (0, 0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (0, hours, minutes, _) => format!("{hours} h {minutes} min"),
        (days, hours, ..) => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::age;

    #[test]
    fn ages_have_two_units() {
        let second = 1_000_000_000;
        for (ns, text) in [
            (1_250_000_000, "1.2 s"),
            (200 * second, "3 min 20 s"),
            (7500 * second, "2 h 5 min"),
            (90_000 * second, "1 d 1 h"),
        ] {
            assert_eq!(age(ns), text);
        }
    }
}
