//! `handler swap` and `handler clear`.

use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use afterimage_handler::Builtin;
use afterimage_recorder::control::{Changed, Client, ClientError, Reply, Request, Wanted};
use anyhow::Context;
use serde::Serialize;

use super::args::{ChangeArgs, ClearArgs, SwapArgs};
use super::session::{connect, json, refused, split};
use crate::exit::{Exit, Problem, not_yet};
use crate::record::on_signals;
use crate::say::Say;

/// The longest that a session is held, a day.
const LONGEST: Duration = Duration::from_secs(86_400);

/// Puts another handler in force.
pub(crate) fn swap(args: &SwapArgs, say: &Say) -> anyhow::Result<Exit> {
    let (session, rest) = split(&args.words);
    let name = match rest {
        [name] => name,
        [] => return Err(Problem::usage("which handler?").hint("handler swap [SESSION] NAME").into()),
        [first, ..] => return Err(Problem::usage(format!("{first}: not a session")).hint("it is a number").into()),
    };
    if name.contains('/') || name.contains(".o") {
        return Err(not_yet("handler swap FILE"));
    }
    if name.parse::<Builtin>().is_err() {
        let problem = Problem::usage(format!("{name}: no such handler"));
        return Err(problem.hint("built in are none, emit and count").into());
    }
    let request = Request::Swap { handler: Wanted::Builtin(name.clone()) };
    change(session, &request, &args.change, say)
}

/// Takes the handler away.
pub(crate) fn clear(args: &ClearArgs, say: &Say) -> anyhow::Result<Exit> {
    change(args.session.as_deref(), &Request::Clear {}, &args.change, say)
}

#[derive(Serialize)]
struct Told {
    session: u32,
    #[serde(flatten)]
    changed: Changed,
}

fn change(word: Option<&str>, request: &Request, args: &ChangeArgs, say: &Say) -> anyhow::Result<Exit> {
    let hold = args.hold.map(hold).transpose()?;
    // A signal that comes after the change ends the hold in good order.
    let stop = hold.map(|_| on_signals()).transpose()?;
    let (session, mut client) = connect(word)?;
    let changed = match client.ask(request, None) {
        Ok(Reply::Changed(changed)) => changed,
        Ok(other) => return Err(refused(&ClientError::Strange(format!("{other:?}")), say)),
        Err(error) => return Err(refused(&error, say)),
    };
    if args.json {
        json("handler-swap", &Told { session, changed })?;
    } else {
        let mut to = std::io::stdout().lock();
        let Changed { handler, generation, .. } = &changed;
        writeln!(to, "session {session}: handler {handler}, generation {generation}").context("standard output")?;
    }
    if let Some((hold, stop)) = hold.zip(stop) {
        keep(&client, session, hold, &stop, say)?;
    }
    Ok(Exit::Done)
}

fn hold(seconds: f64) -> anyhow::Result<Duration> {
    let time = Duration::try_from_secs_f64(seconds).ok().filter(|time| *time <= LONGEST);
    time.ok_or_else(|| Problem::usage(format!("--hold {seconds}: not a time of at most a day")).into())
}

/// Keeps the connection, and with it the lease, until the time is over, a signal comes or the session ends.
fn keep(client: &Client, session: u32, time: Duration, stop: &AtomicBool, say: &Say) -> anyhow::Result<()> {
    let until = Instant::now() + time;
    while !stop.load(Ordering::Relaxed) {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        if client.has_ended(left.min(Duration::from_millis(100))).context("waiting")? {
            say.note(format!("session {session} has ended"));
            break;
        }
    }
    Ok(())
}
