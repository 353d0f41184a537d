//! Lists of names, with patterns among them.

use regex::Regex;
use rustc_hash::FxHashSet;

use crate::resolve::Frame;

/// Names that are wanted: some as they are, others by what they look like.
#[derive(Clone, Debug, Default)]
pub struct Names {
    exact: FxHashSet<String>,
    patterns: Vec<Regex>,
}

/// A pattern that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{pattern}: {why}")]
pub struct BadPattern {
    /// The pattern, with its slashes.
    pub pattern: String,
    /// What is wrong with it, in a line.
    pub why: String,
}

impl Names {
    /// Reads `NAME,/REGEX/,…`. What begins and ends with a slash is a regular expression, which may match anywhere in a name.
    /// Where a name begins with a slash and a later one ends with it, with none that begins with one between them, they are
    /// one expression with commas.
    ///
    /// # Errors
    /// When a regular expression is none.
    pub fn parse(text: &str) -> Result<Names, BadPattern> {
        let mut names = Names::default();
        let all: Vec<&str> = text.split(',').collect();
        let mut rest = all.as_slice();
        while let Some((first, others)) = rest.split_first() {
            let opens = first.starts_with('/') && !(first.len() > 1 && first.ends_with('/'));
            let inside = others.iter().take_while(|word| !word.starts_with('/'));
            let closing = inside.clone().position(|word| word.ends_with('/')).filter(|_| opens);
            let (words, after) = rest.split_at(closing.map_or(1, |at| at + 2));
            rest = after;
            let word = words.join(",");
            if word.is_empty() {
                continue;
            }
            match word.strip_prefix('/').and_then(|rest| rest.strip_suffix('/')).filter(|pattern| !pattern.is_empty()) {
                Some(pattern) => names.patterns.push(compile(pattern)?),
                None => drop(names.exact.insert(word.to_owned())),
            }
        }
        Ok(names)
    }

    /// Whether there is no name that it has.
    pub fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.patterns.is_empty()
    }

    /// Whether a name is wanted.
    pub fn has(&self, name: &str) -> bool {
        self.exact.contains(name) || self.patterns.iter().any(|pattern| pattern.is_match(name))
    }
}

/// A regular expression, which may match anywhere in a name.
#[derive(Clone, Debug)]
pub struct Pattern(Regex);

impl Pattern {
    /// Reads one.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(text: &str) -> Result<Pattern, BadPattern> {
        compile(text).map(Pattern)
    }

    /// Whether a frame's symbol matches.
    pub(crate) fn is_parent(&self, frame: &Frame) -> bool {
        frame.symbol.as_ref().is_ok_and(|name| self.0.is_match(name))
    }
}

/// Compiles a regular expression.
fn compile(pattern: &str) -> Result<Regex, BadPattern> {
    Regex::new(pattern).map_err(|error| {
        // Its text points into the pattern over several lines; the last one says what is wrong.
        let text = error.to_string();
        let why = text.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
        BadPattern { pattern: format!("/{pattern}/"), why }
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn names_stand_as_they_are_or_match() {
        let names = Names::parse("sh,/^work[0-9]+$/,/usr/bin/true,").unwrap();
        for (name, wanted) in [
            ("sh", true),
            ("bash", false),
            ("work12", true),
            ("worker", false),
            ("/usr/bin/true", true),
            ("true", false),
            ("", false),
        ] {
            assert_eq!(names.has(name), wanted, "{name}");
        }
        assert!(Names::parse("/a\\x2cb/").unwrap().has("xa,by"));
        let counted = Names::parse("/^w[0-9]{1,3}$/,sh").unwrap();
        assert!(counted.has("w12") && counted.has("sh") && !counted.has("w1234") && !counted.has("3}$/"));
        let paths = Names::parse("/usr/bin/true,/^x/").unwrap();
        assert!(paths.has("/usr/bin/true") && paths.has("xy") && !paths.has("true"));
        assert!(Names::parse(",").unwrap().is_empty());
        // A folder is no pattern unless it ends with a slash.
        assert!(Names::parse("/usr/lib").unwrap().has("/usr/lib"));
        assert!(Names::parse("//").unwrap().has("//"));
    }

    #[test]
    fn what_is_no_pattern_is_said() {
        let error = Names::parse("a,/(/").unwrap_err();
        assert_eq!((error.pattern.as_str(), error.why.as_str()), ("/(/", "unclosed group"));
    }
}
