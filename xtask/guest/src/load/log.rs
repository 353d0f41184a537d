//! What was made, as one JSON object a line.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use crate::load::error::{Error, Result};

/// One function of kernel text that came with an object.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Function {
    /// The kernel's symbol.
    pub(crate) name: String,
    /// Where it began, as hexadecimal text; null where the kernel does not say.
    #[serde(serialize_with = "hex")]
    pub(crate) address: Option<u64>,
    /// Its length in bytes; null where the kernel does not say.
    pub(crate) length: Option<u32>,
}

/// Something that came and went.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Object {
    /// The kind of load, as on the command line.
    pub(crate) kind: &'static str,
    /// Its number; names contain it.
    pub(crate) n: u64,
    /// Its symbol in the kernel, where it has one.
    pub(crate) name: Option<String>,
    /// The kernel's id of the program.
    pub(crate) id: Option<u32>,
    /// The tag of the program, 16 hexadecimal digits.
    pub(crate) tag: Option<String>,
    /// Where its text began, as hexadecimal text.
    #[serde(serialize_with = "hex")]
    pub(crate) address: Option<u64>,
    /// All its functions that the kernel tells of, the main one first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) functions: Vec<Function>,
    /// Just before the call that made it; CLOCK_MONOTONIC, nanoseconds.
    pub(crate) born_ns: u64,
    /// Just after the call that removed it returned. The object lived inside of these two.
    pub(crate) gone_ns: u64,
    /// What only this kind of load has to say.
    #[serde(flatten)]
    pub(crate) more: Map<String, Value>,
}

impl Object {
    /// An object of which nothing but its time is known yet.
    pub(crate) fn new(kind: &'static str, n: u64, born_ns: u64) -> Object {
        Object {
            kind,
            n,
            name: None,
            id: None,
            tag: None,
            address: None,
            functions: Vec::new(),
            born_ns,
            gone_ns: 0,
            more: Map::new(),
        }
    }

    /// Adds what only this kind has.
    pub(crate) fn with(mut self, key: &str, value: impl Into<Value>) -> Object {
        self.more.insert(key.to_owned(), value.into());
        self
    }
}

fn hex<S: Serializer>(address: &Option<u64>, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    match address {
        Some(address) => serializer.collect_str(&format_args!("{address:#x}")),
        None => serializer.serialize_none(),
    }
}

/// Where the lines go.
pub(crate) struct Log {
    out: Box<dyn Write>,
    objects: u64,
}

impl Log {
    /// Lines go to `path`, or to the standard output.
    pub(crate) fn open(path: Option<&Path>) -> Result<Log> {
        let out: Box<dyn Write> = match path {
            Some(path) => {
                Box::new(File::create(path).map_err(|e| Error::failed(format!("create {}", path.display()), e))?)
            }
            None => Box::new(io::stdout()),
        };
        Ok(Log { out, objects: 0 })
    }

    /// Writes one object. Each line is out when this returns: a killed load has told what it did.
    pub(crate) fn object(&mut self, object: &Object) -> Result<()> {
        self.objects += 1;
        self.line(object)
    }

    /// Writes an object that another process described.
    pub(crate) fn foreign(&mut self, object: &Value) -> Result<()> {
        self.objects += 1;
        self.line(object)
    }

    /// Writes one line of another shape.
    pub(crate) fn line(&mut self, value: &impl Serialize) -> Result<()> {
        let mut line = serde_json::to_vec(value).map_err(|e| Error::failed("write JSON", e.into()))?;
        line.push(b'\n');
        self.out.write_all(&line).and_then(|()| self.out.flush()).map_err(|e| Error::failed("write to the log", e))
    }

    /// How many objects were written.
    pub(crate) fn objects(&self) -> u64 {
        self.objects
    }
}
