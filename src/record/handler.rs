//! The handler that the user names: a built-in one, or a program in an object file.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use afterimage_handler::object::{Object, Setting};
use afterimage_handler::{Builtin, Error, ErrorKind};
use afterimage_recorder::Handler;

use crate::exit::Problem;
use crate::say::Say;

/// The handler of `--handler` and `--set`. An object is opened here, so that what is wrong with it is told before anything
/// is started.
pub(crate) fn chosen(name: Option<&str>, set: &[String]) -> anyhow::Result<Option<Handler>> {
    let Some(name) = name else { return Ok(None) };
    let settings = set.iter().map(|text| text.parse::<Setting>()).collect::<Result<Vec<_>, _>>();
    let settings = settings.map_err(|e| usage(&format!("--set {e}")))?;
    if !is_file(name) {
        let builtin: Builtin = name.parse().map_err(|_| {
            let problem = Problem::usage(format!("--handler {name}: no such handler"));
            problem.hint("built in are none, emit and count; a file of your own has a slash or .o in its name")
        })?;
        if !settings.is_empty() {
            return Err(usage(&format!("--set: {builtin} is built in and has no constants")).into());
        }
        return Ok(Some(Handler::Builtin(builtin)));
    }
    let (path, program) = file_and_program(name);
    let failed = |e: io::Error| {
        let problem = Problem::failed(format!("--handler {}: {e}", path.display()));
        problem.hint("FILE.bpf.o is what clang made of a handler; afterimage handler header prints what it includes")
    };
    let bytes = std::fs::read(&path).map_err(failed)?;
    let object = Object::open(bytes, program.as_deref(), &settings).map_err(|e| not_opened(&path, &e))?;
    Ok(Some(Handler::Object { path, object: Arc::new(object) }))
}

fn usage(text: &str) -> Problem {
    Problem::usage(text)
}

/// What has no slash and no `.o` in it is the name of a built-in handler.
fn is_file(name: &str) -> bool {
    name.contains('/') || name.contains(".o")
}

/// `FILE` or `FILE:PROGRAM`; the name of a file may have a colon in it.
pub(crate) fn file_and_program(name: &str) -> (PathBuf, Option<String>) {
    let whole = Path::new(name);
    match name.rsplit_once(':') {
        Some((file, program)) if !program.contains('/') && !whole.exists() => (file.into(), Some(program.to_owned())),
        _ => (whole.to_owned(), None),
    }
}

fn not_opened(path: &Path, error: &Error) -> Problem {
    let text = format!("--handler {}: {error}", path.display());
    match error.kind() {
        ErrorKind::Options => Problem::usage(text),
        _ => Problem::failed(text).hint("a handler is compiled with: clang -O2 -g -target bpf -c FILE.bpf.c"),
    }
}

/// Why a handler was not loaded, after the lines that explain it: the last ones, or with `-v` all of them.
pub(super) fn not_loaded(error: &Error, say: &Say) -> Problem {
    let told = matches!(error.kind(), ErrorKind::Verifier | ErrorKind::Refused);
    if say.verbosity() > 0 {
        error.full_log().iter().for_each(|line| say.note(line));
    } else if told {
        error.log().iter().for_each(|line| say.note(line));
    }
    let problem = Problem::failed(error.to_string());
    match error.kind() {
        ErrorKind::Verifier if say.verbosity() == 0 && error.full_log().len() > error.log().len() => {
            problem.hint("-v shows all that the verifier said")
        }
        ErrorKind::Refused => problem.hint("what a handler must not do, and why: docs/handlers.md"),
        _ => problem,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_built_in_or_a_file() {
        assert!(matches!(chosen(Some("count"), &[]), Ok(Some(Handler::Builtin(Builtin::Count)))));
        for (name, set, says) in [
            ("counts", "", "--handler counts: no such handler"),
            ("count", "a=1", "--set: count is built in and has no constants"),
            ("./none.o", "a", "--set a: not of the form NAME=VALUE"),
            ("./nowhere/x.bpf.o:p", "", "--handler ./nowhere/x.bpf.o: No such file or directory (os error 2)"),
            (
                "./Cargo.toml",
                "",
                "--handler ./Cargo.toml: reading the object: no object file for BPF (Unsupported ELF header)",
            ),
        ] {
            let set: Vec<String> = set.split_whitespace().map(str::to_owned).collect();
            assert_eq!(chosen(Some(name), &set).unwrap_err().to_string(), says);
        }
    }

    #[test]
    fn a_program_stands_behind_the_last_colon() {
        assert_eq!(file_and_program("a.o"), ("a.o".into(), None));
        assert_eq!(file_and_program("./a.o:p"), ("./a.o".into(), Some("p".into())));
        assert_eq!(file_and_program("./a:b.o:p"), ("./a:b.o".into(), Some("p".into())));
        assert_eq!(file_and_program("a:b/c.o"), ("a:b/c.o".into(), None));
    }
}
