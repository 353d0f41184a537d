//! `handler stats`: what became of the samples so far, once or each second.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write};
use std::sync::atomic::Ordering;
use std::time::Duration;

use afterimage_recorder::control::{ClientError, EventStats, Stats};
use anyhow::Context;

use super::args::StatsArgs;
use super::list::age;
use super::session::{connect, json, refused, stats};
use crate::exit::Exit;
use crate::record::on_signals;
use crate::say::Say;
use crate::table::{Cells, Column, Side, Table};
use crate::terminal::{clean, grouped};

const SECOND: Duration = Duration::from_secs(1);

/// Shows how a session goes.
pub(crate) fn run(args: &StatsArgs, say: &Say) -> anyhow::Result<Exit> {
    let (session, mut client) = connect(args.session.as_deref())?;
    let mut now = stats(&mut client).map_err(|error| refused(&error, say))?;
    if !args.watch {
        if args.json {
            json("handler-stats", &now)?;
        } else {
            std::io::stdout().lock().write_all(show(&now, None).as_bytes()).context("standard output")?;
        }
        return Ok(Exit::Done);
    }
    let stop = on_signals()?;
    let mut screen = Screen::new();
    let mut before: Option<Stats> = None;
    loop {
        if args.json {
            json("handler-stats", &now)?;
        } else {
            screen.show(&show(&now, before.as_ref()))?;
        }
        let mut rest = SECOND;
        while !rest.is_zero() && !stop.load(Ordering::Relaxed) {
            let part = rest.min(Duration::from_millis(100));
            if client.has_ended(part).context("waiting")? {
                say.note(format!("session {session} has ended"));
                return Ok(Exit::Done);
            }
            rest -= part;
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(Exit::Done);
        }
        match stats(&mut client) {
            Ok(next) => before = Some(std::mem::replace(&mut now, next)),
            Err(ClientError::Ended) => {
                say.note(format!("session {session} has ended"));
                return Ok(Exit::Done);
            }
            Err(error) => return Err(refused(&error, say)),
        }
    }
}

/// Where the table is drawn over itself, on a terminal.
struct Screen {
    terminal: bool,
    lines: usize,
}

impl Screen {
    fn new() -> Screen {
        Screen { terminal: std::io::stdout().is_terminal(), lines: 0 }
    }

    fn show(&mut self, text: &str) -> anyhow::Result<()> {
        let mut to = std::io::stdout().lock();
        let over = if self.terminal && self.lines > 0 { format!("\x1b[{}A\x1b[J", self.lines) } else { String::new() };
        self.lines = text.lines().count();
        to.write_all(over.as_bytes()).and_then(|()| to.write_all(text.as_bytes())).context("standard output")?;
        to.flush().context("standard output")
    }
}

/// Two lines and a table; with rates where there was a look before.
fn show(now: &Stats, before: Option<&Stats>) -> String {
    let mut out = Vec::new();
    // Writing to memory does not fail.
    let _ = write(&mut out, now, before);
    String::from_utf8_lossy(&out).into_owned()
}

fn write(out: &mut dyn Write, now: &Stats, before: Option<&Stats>) -> std::io::Result<()> {
    let mut line =
        format!("# Session {}, recording for {}", now.session, age(now.now_ns.saturating_sub(now.started_ns)));
    if let Some(holder) = &now.holder {
        let _ = write!(line, ", held by pid {} since {}", holder.pid, holder.since);
    }
    writeln!(out, "{line}")?;
    let mut line = match now.programs {
        true => format!("# Handler: {}, generation {}", clean(&now.handler), now.generation),
        false => "# Handler: none, for no programs run on these samples".to_owned(),
    };
    if let Some(gate) = &now.gate {
        let _ = write!(line, ", where {}", clean(gate));
    }
    if let Some(changed) = now.changed_ns {
        let times = if now.changes == 1 { "once".to_owned() } else { format!("{} times", grouped(now.changes)) };
        let _ = write!(line, "; changed {times}, last {} ago", age(now.now_ns.saturating_sub(changed)));
    }
    writeln!(out, "{line}\n#")?;
    let titles = ["Handled", "a second", "Filtered", "Dropped", "Passed", "Chained", "Emitted", "Counted", "Lost"];
    let left = Column::new("Event", 0, Side::Left);
    let columns: Vec<Column> =
        std::iter::once(left).chain(titles.map(|title| Column::new(title, 0, Side::Right))).collect();
    let mut cells = Cells::new(columns.len());
    for event in &now.events {
        let earlier = before.and_then(|before| before.events.iter().find(|then| then.name == event.name));
        let seconds = before.map_or(0.0, |before| now.now_ns.saturating_sub(before.now_ns) as f64 / 1e9);
        row(&mut cells, event, earlier.map(|earlier| (earlier, seconds)));
    }
    let table = Table::fit(columns, &cells);
    table.head(out)?;
    (0..cells.rows()).try_for_each(|row| table.row(out, &cells, row))
}

fn row(cells: &mut Cells, event: &EventStats, before: Option<(&EventStats, f64)>) {
    let tally = &event.tally;
    let handled = |event: &EventStats| event.tally.handled.unwrap_or(event.tally.chained);
    let rate = before.filter(|(_, seconds)| *seconds > 0.0).map(|(earlier, seconds)| {
        // Rates of samples are far below what a float holds.
        let more = handled(event).saturating_sub(handled(earlier));
        (more as f64 / seconds).round() as u64
    });
    let lost = tally.ring.lost.saturating_add(tally.handler_ring.lost).saturating_add(tally.map.lost.total());
    cells.push(|to| to.write_str(&clean(&event.name)));
    let numbers = [tally.handled, rate, tally.filtered, tally.dropped, tally.passed].into_iter();
    for number in numbers.chain([tally.chained, tally.emitted, tally.counted, lost].map(Some)) {
        cells.push(|to| to.write_str(&number.map_or_else(|| "-".to_owned(), grouped)));
    }
}

#[cfg(test)]
mod tests {
    use afterimage_perf_data::Tally;

    use super::*;

    #[test]
    fn a_table_with_rates() {
        let event = |handled| EventStats {
            name: "cpu-clock".into(),
            tally: Tally { handled: Some(handled), passed: Some(handled), chained: handled, ..Tally::default() },
        };
        let at = |now_ns, handled| Stats {
            session: 12,
            started_ns: 1_000_000_000,
            now_ns,
            programs: true,
            handler: "none".into(),
            generation: 3,
            changes: 2,
            changed_ns: Some(2_000_000_000),
            events: vec![event(handled)],
            ..Stats::default()
        };
        let text = show(&at(4_000_000_000, 5000), Some(&at(2_000_000_000, 1000)));
        let expected = "\
# Session 12, recording for 3.0 s
# Handler: none, generation 3; changed 2 times, last 2.0 s ago
#
# Event      Handled  a second  Filtered  Dropped  Passed  Chained  Emitted  Counted  Lost
# .........  .......  ........  ........  .......  ......  .......  .......  .......  ....
#
  cpu-clock    5,000     2,000         -        -   5,000    5,000        0        0     0
";
        assert_eq!(text, expected);
    }
}
