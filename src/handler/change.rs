//! `handler swap` and `handler clear`.

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use afterimage_handler::gate::Expression;
use afterimage_recorder::Handler;
use afterimage_recorder::control::{Changed, Client, ClientError, Reply, Request, Wanted};
use anyhow::Context;
use rustix::fs::{MemfdFlags, SealFlags};
use serde::Serialize;

use super::args::{ChangeArgs, ClearArgs, SwapArgs, WhereArgs};
use super::session::{connect, json, refused, split};
use crate::exit::{Exit, Problem};
use crate::record::handler::{chosen, file_and_program};
use crate::record::on_signals;
use crate::record::plan::not_a_gate;
use crate::say::Say;
use crate::terminal::clean;

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
    let (handler, object) = match chosen(Some(name), &args.set)? {
        Some(Handler::Object { path, .. }) => {
            let (_, program) = file_and_program(name);
            let object = memory_file(&path).with_context(|| path.display().to_string())?;
            let path = path.to_string_lossy().into_owned();
            let (set, keep_maps) = (args.set.clone(), args.keep_maps.clone());
            (Wanted::Object { path, program, set, keep_maps }, Some(object))
        }
        _ if !args.keep_maps.is_empty() => {
            return Err(Problem::usage(format!("--keep-map: {name} is built in and keeps no map")).into());
        }
        _ => (Wanted::Builtin(name.clone()), None),
    };
    change(session, &Request::Swap { handler }, object.as_ref(), &args.change, say)
}

/// The bytes of a file in memory, sealed: what a recorder takes from another process, so that it need not wait for a disk.
fn memory_file(path: &Path) -> std::io::Result<OwnedFd> {
    let bytes = std::fs::read(path)?;
    let fd = rustix::fs::memfd_create("afterimage-handler", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    let mut file = std::fs::File::from(fd);
    file.write_all(&bytes)?;
    rustix::fs::fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(file.into())
}

/// Takes the handler away.
pub(crate) fn clear(args: &ClearArgs, say: &Say) -> anyhow::Result<Exit> {
    change(args.session.as_deref(), &Request::Clear {}, None, &args.change, say)
}

/// Puts another gate before the handler.
pub(crate) fn gate(args: &WhereArgs, say: &Say) -> anyhow::Result<Exit> {
    let (session, rest) = split(&args.words);
    let expression = match (rest, args.all) {
        ([text], false) => {
            // What is wrong with it is told before anybody is asked.
            Expression::parse(text).map_err(|error| not_a_gate(&error))?;
            Some(text.clone())
        }
        ([], true) => None,
        ([], false) => {
            return Err(Problem::usage("which samples?").hint("handler where [SESSION] EXPR, or --all").into());
        }
        ([_], true) => return Err(Problem::usage("--all: an expression would leave some out").into()),
        ([first, ..], _) => {
            return Err(Problem::usage(format!("{first}: not a session")).hint("it is a number").into());
        }
    };
    change(session, &Request::Where { expression }, None, &args.change, say)
}

#[derive(Serialize)]
struct Told {
    session: u32,
    #[serde(flatten)]
    changed: Changed,
}

fn change(
    word: Option<&str>,
    request: &Request,
    object: Option<&OwnedFd>,
    args: &ChangeArgs,
    say: &Say,
) -> anyhow::Result<Exit> {
    let hold = args.hold.map(hold).transpose()?;
    // A signal that comes after the change ends the hold in good order.
    let stop = hold.map(|_| on_signals()).transpose()?;
    let (session, mut client) = connect(word)?;
    let changed = match client.ask(request, object.map(AsFd::as_fd)) {
        Ok(Reply::Changed(changed)) => changed,
        Ok(other) => return Err(refused(&ClientError::Strange(format!("{other:?}")), say)),
        Err(error) => return Err(refused(&error, say)),
    };
    changed.notes.iter().for_each(|note| say.note(note));
    if args.json {
        json("handler-swap", &Told { session, changed })?;
    } else {
        let mut to = std::io::stdout().lock();
        let Changed { handler, generation, gate, .. } = &changed;
        let gate = gate.as_ref().map_or_else(String::new, |gate| format!(", where {}", clean(gate)));
        writeln!(to, "session {session}: handler {handler}{gate}, generation {generation}")
            .context("standard output")?;
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
