//! What is said over a control socket: one JSON object a line. The first line of either side is [`HELLO`]; then come
//! requests and, one for each, replies. docs/control.md describes them.

use afterimage_perf_data::Tally;
use serde::{Deserialize, Serialize};

/// The version that both sides speak.
pub const VERSION: u32 = 1;

/// The first line of either side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// [`VERSION`].
    pub version: u32,
}

/// The first line that this code says.
pub const HELLO: Hello = Hello { version: VERSION };

/// What a controller asks for. Unknown commands and keys are refused: to leave one out would be to do something else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// How the recording goes.
    Stats {},
    /// Put another handler in force.
    Swap {
        /// The handler.
        handler: Wanted,
    },
    /// Take the handler away: every sample that the gate lets through goes to the sampling ring.
    Clear {},
    /// Put another gate before the handler.
    Where {
        /// The expression that samples have to fulfil; null lets all of them through.
        expression: Option<String>,
    },
}

impl Request {
    /// Whether it changes what runs on samples, so that it takes the lease.
    pub fn changes(&self) -> bool {
        match self {
            Request::Stats {} => false,
            Request::Swap { .. } | Request::Clear {} | Request::Where { .. } => true,
        }
    }
}

/// Which handler to put in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Wanted {
    /// One that comes with the profiler, by its name.
    Builtin(String),
    /// A program of an object file, whose bytes come in a memory file that is sealed against writing and shrinking
    /// (memfd_create(2)); its descriptor comes with the line.
    Object {
        /// What the file is called, for people.
        path: String,
        /// The program; may be left out when the object has one handler.
        #[serde(default)]
        program: Option<String>,
        /// Constants, each `NAME=VALUE`.
        #[serde(default)]
        set: Vec<String>,
        /// Maps that are taken over from the handler in force, which is one from an object.
        #[serde(default)]
        keep_maps: Vec<String>,
    },
}

/// The answer to one request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum Reply {
    /// To `stats`.
    Stats(Box<Stats>),
    /// To whatever changed something.
    Changed(Changed),
    /// It was not done, and nothing has changed.
    Refused(Refusal),
}

/// How a recording goes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// The recorder's process id, which names the session.
    pub session: u32,
    /// The recorder's command line.
    pub command: Vec<String>,
    /// When recording began, ns on the recording's clock (CLOCK_MONOTONIC).
    pub started_ns: u64,
    /// Now, on the same clock.
    pub now_ns: u64,
    /// Whether programs run on samples at all: where none do, no handler can be put in force.
    pub programs: bool,
    /// The handler in force.
    pub handler: String,
    /// Its number.
    pub handler_id: u16,
    /// The expression that samples have to fulfil to get to the handler; `None`: all do.
    #[serde(default)]
    pub gate: Option<String>,
    /// The number of the pair of gate and handler in force. It grows by one at each change.
    pub generation: u32,
    /// How often it has changed.
    pub changes: u64,
    /// When it changed last, ns on the recording's clock; `None`: never.
    pub changed_ns: Option<u64>,
    /// Who holds the lease.
    pub holder: Option<Holder>,
    /// What became of the samples of each event, to the last pass.
    pub events: Vec<EventStats>,
}

/// One sampling event.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventStats {
    /// Its name.
    pub name: String,
    /// The sum over all CPUs.
    pub tally: Tally,
}

/// Who alone may change something.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Its process id; 0 where it is in another pid namespace.
    pub pid: u32,
    /// Since when, ns on the recording's clock.
    pub since_ns: u64,
    /// The same by the wall clock, `2026-01-31 23:59:59 UTC`.
    pub since: String,
}

/// What a change led to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// The handler in force now.
    pub handler: String,
    /// Its number, as the records that it writes carry it.
    pub handler_id: u16,
    /// The number of the new pair of gate and handler.
    pub generation: u32,
    /// How long the change itself took, ns: two slots and one number. Loading came before.
    pub swap_ns: u64,
    /// How long loading and checking took, ns; with a new gate, all of it.
    pub load_ns: u64,
    /// The expression of the gate in force; `None`: every sample gets to the handler.
    #[serde(default)]
    pub gate: Option<String>,
    /// What is worth knowing about it, one line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The cause, for programs.
    pub kind: RefusalKind,
    /// One line.
    pub text: String,
    /// More lines, such as what the verifier said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<String>,
}

impl Refusal {
    pub(crate) fn new(kind: RefusalKind, text: impl Into<String>) -> Refusal {
        Refusal { kind, text: text.into(), details: Vec::new() }
    }
}

/// Causes of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefusalKind {
    /// Somebody else holds the lease.
    Busy,
    /// The peer may not speak here.
    NotPermitted,
    /// What was said makes no sense, or is not known to this recorder.
    BadRequest,
    /// This recording cannot do it, whichever way it is asked.
    Impossible,
    /// It was tried and failed.
    Failed,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_as_described() {
        let line = |request: &Request| serde_json::to_string(request).unwrap();
        assert_eq!(serde_json::to_string(&HELLO).unwrap(), r#"{"version":1}"#);
        assert_eq!(line(&Request::Stats {}), r#"{"command":"stats"}"#);
        let swap = Request::Swap { handler: Wanted::Builtin("count".into()) };
        assert_eq!(line(&swap), r#"{"command":"swap","handler":{"builtin":"count"}}"#);
        assert_eq!(serde_json::from_str::<Request>(&line(&swap)).unwrap(), swap);
        assert_eq!((swap.changes(), Request::Clear {}.changes(), Request::Stats {}.changes()), (true, true, false));
        let refused = Reply::Refused(Refusal::new(RefusalKind::Busy, "busy"));
        assert_eq!(serde_json::to_string(&refused).unwrap(), r#"{"reply":"refused","kind":"busy","text":"busy"}"#);
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for bad in [
            r#"{"command":"stop"}"#,
            r#"{"command":"stats","more":1}"#,
            r#"{"command":"swap"}"#,
            r#"{"command":"swap","handler":{"builtin":"count"},"later":true}"#,
            r#"{"command":"swap","handler":"count"}"#,
            "[]",
            "1",
            "",
        ] {
            assert!(serde_json::from_str::<Request>(bad).is_err(), "{bad}");
        }
    }
}
