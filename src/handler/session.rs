//! Which session is meant, and how it is spoken to.

use std::io::Write;

use afterimage_recorder::control::{Client, ClientError, Reply, Request, Stats, sessions};
use anyhow::Context;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::exit::Problem;
use crate::out;
use crate::say::Say;

/// Splits `[SESSION] REST`: a first word all of digits is the session.
pub(crate) fn split(words: &[String]) -> (Option<&str>, &[String]) {
    match words {
        [first, rest @ ..] if is_session(first) => (Some(first), rest),
        rest => (None, rest),
    }
}

fn is_session(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// Connects to the session that a word names, or to the only one.
pub(crate) fn connect(word: Option<&str>) -> anyhow::Result<(u32, Client)> {
    let session = match word {
        Some(word) => word.parse().ok().filter(|_| is_session(word)).ok_or_else(|| {
            let problem = Problem::usage(format!("{word}: not a session"));
            problem.hint("afterimage handler list shows them, the number of each in its first column")
        })?,
        None => the_only()?,
    };
    let client = Client::connect(session).map_err(|error| explain(&error))?;
    Ok((session, client))
}

fn the_only() -> anyhow::Result<u32> {
    let all = sessions().context("the folder of control sockets")?;
    match all.as_slice() {
        [] => Err(Problem::failed("no recording of yours runs").hint("afterimage record starts one").into()),
        [(only, _)] => Ok(*only),
        several => {
            let numbers: Vec<String> = several.iter().map(|(session, _)| session.to_string()).collect();
            let problem = Problem::usage(format!("{} recordings run: say which one", several.len()));
            Err(problem
                .hint(format!("their sessions are {}; afterimage handler list shows more", numbers.join(", ")))
                .into())
        }
    }
}

/// In our words.
pub(crate) fn explain(error: &ClientError) -> anyhow::Error {
    let problem = Problem::failed(error.to_string());
    match error {
        ClientError::NoSession(_) => problem.hint("afterimage handler list shows those that run").into(),
        ClientError::NotPermitted(_) => {
            problem.hint("only root and the user who records may control a recording").into()
        }
        _ => problem.into(),
    }
}

/// How a session goes.
pub(crate) fn stats(client: &mut Client) -> Result<Stats, ClientError> {
    match client.ask(&Request::Stats {}, None)? {
        Reply::Stats(stats) => Ok(*stats),
        other => Err(ClientError::Strange(format!("{other:?}"))),
    }
}

/// What did not work, with the details that came with it.
pub(crate) fn refused(error: &ClientError, say: &Say) -> anyhow::Error {
    if let ClientError::Refused(refusal) = error {
        let few = if say.verbosity() > 0 { usize::MAX } else { 12 };
        let skipped = refusal.details.len().saturating_sub(few);
        refusal.details.iter().skip(skipped).for_each(|line| say.note(line));
    }
    explain(error)
}

/// One JSON object a line, its schema first.
pub(crate) fn json(schema: &str, value: &impl Serialize) -> anyhow::Result<()> {
    let mut object = Map::new();
    object.insert("schema".into(), format!("afterimage/{schema}/1").into());
    if let Value::Object(keys) = serde_json::to_value(value)? {
        object.extend(keys);
    }
    let mut to = out::stdout()?;
    serde_json::to_writer(&mut to, &Value::Object(object)).context("standard output")?;
    writeln!(to).context("standard output")?;
    out::flush(&mut to)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn a_first_word_of_digits_is_the_session() {
        assert_eq!(split(&words(&["12", "count"])), (Some("12"), &words(&["count"])[..]));
        assert_eq!(split(&words(&["count"])), (None, &words(&["count"])[..]));
        assert_eq!(split(&words(&["12"])), (Some("12"), &[][..]));
        assert_eq!(split(&words(&["12x", "count"])).0, None);
        assert_eq!(split(&[]), (None, &[][..]));
    }
}
