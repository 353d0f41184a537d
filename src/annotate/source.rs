//! Where instructions come from in the source, and the text of those lines.

use std::collections::HashMap;
use std::path::Path;
use std::rc::Rc;

use afterimage_profile::{BpfFunction, Resolver, Subject, Thing, Things};
use afterimage_symbols::source::{Files, Place, RealFiles};

use super::code::{Opened, Sources};

/// The longest source file that is read.
const MOST: u64 = 16 << 20;

/// One level of where an instruction comes from.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(super) struct Origin {
    /// The function, where the debug information says.
    pub(super) function: Option<String>,
    /// The file.
    pub(super) file: Option<String>,
    /// The line; 0 unknown.
    pub(super) line: u32,
    /// The column; 0 unknown.
    pub(super) column: u32,
    /// The line's own text, where the program carries it or the file is there.
    pub(super) text: Option<Rc<str>>,
}

/// How the lines of one thing are looked up.
pub(super) enum Lines<'f> {
    /// By BTF line info.
    Bpf(BpfFunction<'f>),
    /// By DWARF, and how far the thing's addresses lie above the file's.
    Dwarf(Rc<Opened>),
    /// There are none.
    None,
}

impl<'f> Lines<'f> {
    /// The lines of a thing.
    pub(super) fn of(sources: &mut Sources<'f>, found: &Things, resolver: &mut Resolver, thing: &Thing) -> Lines<'f> {
        match thing.subject {
            Subject::Text(id) => {
                let text = found.state.kernel().text(id);
                text.and_then(|text| sources.function_of(&text)).map_or(Lines::None, Lines::Bpf)
            }
            Subject::Kernel => sources.kernel_file(found, resolver).map_or(Lines::None, Lines::Dwarf),
            Subject::Object(id) => sources.file(found, resolver, id).map_or(Lines::None, Lines::Dwarf),
        }
    }

    /// Where the instruction at an address, `offset` bytes into the thing, comes from: innermost first.
    pub(super) fn at(&self, sources: &mut Sources<'_>, texts: &mut Texts, address: u64, offset: u64) -> Vec<Origin> {
        match self {
            Lines::Bpf(of) => {
                let line = sources.programs.lines(of.info.id()).and_then(|lines| lines.at(of.function, offset));
                line.map(|line| Origin {
                    function: None,
                    file: (!line.file.is_empty()).then(|| line.file.into_owned()),
                    line: line.line,
                    column: line.column,
                    text: (!line.text.is_empty()).then(|| line.text.as_ref().into()),
                })
                .into_iter()
                .collect()
            }
            Lines::Dwarf(opened) => {
                let Some(lines) = opened.lines() else { return Vec::new() };
                let frames = lines.frames(address.wrapping_sub(opened.shift));
                let frames = frames.into_iter().filter(|frame| frame.file.is_some() || frame.function.is_some());
                frames
                    .map(|frame| Origin {
                        text: match &frame.text {
                            Some(text) => Some(Rc::from(&**text)),
                            None if lines.is_kept() => None,
                            None => frame.file.as_deref().and_then(|file| texts.line(file, frame.line)),
                        },
                        function: frame.function,
                        file: frame.file,
                        line: frame.line,
                        column: frame.column,
                    })
                    .collect()
            }
            Lines::None => Vec::new(),
        }
    }
}

/// The texts of source files, each read once.
#[derive(Default)]
pub(super) struct Texts {
    files: HashMap<String, Vec<Rc<str>>>,
}

impl Texts {
    /// A line of a file, counted from 1.
    pub(super) fn line(&mut self, file: &str, line: u32) -> Option<Rc<str>> {
        let at = usize::try_from(line).ok()?.checked_sub(1)?;
        if let Some(lines) = self.files.get(file) {
            return lines.get(at).cloned();
        }
        let lines = read(file).unwrap_or_default();
        self.files.entry(file.to_owned()).or_insert(lines).get(at).cloned()
    }
}

/// The lines of a regular file. The path comes from debug information, which may be anybody's.
fn read(file: &str) -> Option<Vec<Rc<str>>> {
    let path = Path::new(file);
    if !path.is_absolute() {
        return None;
    }
    let source = RealFiles.open(&Place::own(path)).ok()?;
    let len = source.len();
    if len > MOST {
        return None;
    }
    let mut bytes = vec![0; usize::try_from(len).ok()?];
    let mut have = 0;
    while have < bytes.len() {
        match source.read_at(bytes.get_mut(have..)?, have as u64).ok()? {
            0 => break,
            got => have += got,
        }
    }
    bytes.truncate(have);
    Some(String::from_utf8_lossy(&bytes).lines().map(Rc::from).collect())
}

/// A path as people read it: the name of the file alone.
pub(super) fn short(file: &str) -> &str {
    file.rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or(file)
}
