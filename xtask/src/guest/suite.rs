//! Which test executables run in guests: those that ask the kernel something. What only computes is left out.

use std::path::PathBuf;

/// One test executable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// Its package.
    pub(crate) package: &'static str,
    /// The package's folder in the workspace.
    pub(crate) folder: &'static str,
    /// The name of the test target; none for the unit tests of a library.
    pub(crate) target: Option<&'static str>,
}

const fn tests(package: &'static str, folder: &'static str, target: &'static str) -> Member {
    Member { package, folder, target: Some(target) }
}

/// What a run without names takes, in this order.
pub(crate) const SUITE: &[Member] = &[
    tests("afterimage-handler", "crates/handler", "native"),
    tests("afterimage-perf-event", "crates/perf-event", "native"),
    tests("afterimage-perf-event", "crates/perf-event", "sideband"),
    Member { package: "afterimage-recorder", folder: "crates/recorder", target: None },
    tests("guest", "xtask/guest", "loads"),
    tests("guest", "xtask/guest", "texts"),
    tests("guest", "xtask/guest", "qc"),
    tests("afterimage", "", "cli"),
    tests("afterimage", "", "report"),
    tests("afterimage", "", "export"),
    tests("afterimage", "", "record"),
    tests("afterimage", "", "control"),
    tests("afterimage", "", "by"),
    tests("afterimage", "", "embedding"),
];

/// What `--short` takes: the counts of programs, their context, rings, loads, and the recordings that leave the guest.
const SHORT: &[&str] = &[
    "handler::by",
    "handler::context",
    "handler::off_cpu",
    "handler::page_faults",
    "handler::stub",
    "handler::swap",
    "perf-event",
    "recorder",
    "guest-loads",
    "guest-texts",
    "guest-qc",
    "afterimage-record::elsewhere",
    "afterimage-record::probes",
    "afterimage-record::chained",
    "afterimage-record::small_ring",
    "afterimage-record::killed",
];

/// The tests that say most in little time.
pub(crate) fn short() -> Vec<(Member, Vec<String>)> {
    let words: Vec<String> = SHORT.iter().map(|word| (*word).to_owned()).collect();
    chosen(&words)
}

/// Where tests fail or never end on purpose, to show that this is noticed. Only `--fault` runs it.
pub(crate) const PLANTED: Member = tests("guest", "xtask/guest", "planted");

impl Member {
    /// What it is called in reports and files: the package without the project's name, and the target.
    pub(crate) fn name(&self) -> String {
        format!("{}-{}", self.short(), self.target.unwrap_or("lib"))
    }

    fn short(&self) -> &'static str {
        self.package.strip_prefix("afterimage-").unwrap_or(self.package)
    }

    /// The folder that cargo runs it in.
    pub(crate) fn manifest_folder(&self) -> PathBuf {
        crate::root().join(self.folder)
    }

    /// Whether a word on the command line means this executable.
    fn is_called(&self, word: &str) -> bool {
        [self.package, self.short(), &self.name()].contains(&word)
    }
}

/// Which members run, each with its filters for the tests inside: all of them where there are none.
///
/// A word is an executable or package, `NAME::FILTER` for tests inside of one, or a filter for all.
pub(crate) fn chosen(words: &[String]) -> Vec<(Member, Vec<String>)> {
    let of = |member: &Member| -> Option<Vec<String>> {
        let mut filters = Vec::new();
        let mut whole = words.is_empty();
        for word in words {
            let known = |name: &str| SUITE.iter().any(|member| member.is_called(name));
            match word.split_once("::") {
                _ if member.is_called(word) => whole = true,
                _ if known(word) => {}
                Some((name, filter)) if member.is_called(name) => filters.push(filter.to_owned()),
                Some((name, _)) if known(name) => {}
                _ => filters.push(word.clone()),
            }
        }
        if whole { Some(Vec::new()) } else { (!filters.is_empty()).then_some(filters) }
    };
    SUITE.iter().filter_map(|member| Some((*member, of(member)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(words: &[&str]) -> Vec<(String, Vec<String>)> {
        let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
        chosen(&words).into_iter().map(|(member, filters)| (member.name(), filters)).collect()
    }

    #[test]
    fn without_words_everything_runs_whole() {
        let all = names(&[]);
        assert_eq!(all.len(), SUITE.len());
        assert!(all.iter().all(|(_, filters)| filters.is_empty()));
    }

    #[test]
    fn a_package_or_executable_runs_whole() {
        assert_eq!(names(&["handler"]), [("handler-native".into(), vec![])]);
        assert_eq!(names(&["perf-event-sideband", "afterimage-handler"]).len(), 2);
        assert_eq!(names(&["perf-event"]).len(), 2);
    }

    #[test]
    fn filters_go_to_one_or_to_all() {
        assert_eq!(names(&["handler::count"]), [("handler-native".into(), vec!["count".into()])]);
        let all = names(&["killed"]);
        assert_eq!(all.len(), SUITE.len());
        assert!(all.iter().all(|(_, filters)| filters == &["killed"]));
        assert_eq!(names(&["count::twice"]).len(), SUITE.len(), "a module of tests is no package");
    }

    #[test]
    fn the_short_set_names_what_there_is() {
        let names: Vec<String> = short().into_iter().map(|(member, _)| member.name()).collect();
        let all = [
            "handler-native",
            "perf-event-native",
            "perf-event-sideband",
            "recorder-lib",
            "guest-loads",
            "guest-texts",
            "guest-qc",
        ];
        assert_eq!(names[..7], all);
        assert_eq!(names[7..], ["afterimage-record"], "no word is a filter for all");
    }

    #[test]
    fn folders_are_those_of_the_packages() {
        for member in SUITE.iter().chain([&PLANTED]) {
            let manifest = std::fs::read_to_string(member.manifest_folder().join("Cargo.toml")).unwrap();
            assert!(manifest.contains(&format!("name = \"{}\"", member.package)), "{member:?}");
        }
    }
}
