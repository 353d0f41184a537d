//! libbpf's output, kept for the error it explains instead of printed.

use std::cell::RefCell;
use std::sync::Once;

use libbpf_rs::PrintLevel;

thread_local! {
    static LINES: RefCell<Option<Vec<String>>> = const { RefCell::new(None) };
}

/// Runs `work` and returns what libbpf said meanwhile on this thread, the useful lines of it.
pub(crate) fn capture<T>(work: impl FnOnce() -> T) -> (T, Vec<String>) {
    static INSTALL: Once = Once::new();
    INSTALL.call_once(|| {
        libbpf_rs::set_print(Some((PrintLevel::Warn, keep)));
    });
    let outer = LINES.replace(Some(Vec::new()));
    let result = work();
    let lines = LINES.replace(outer).unwrap_or_default();
    (result, useful(lines))
}

fn keep(_level: PrintLevel, message: String) {
    LINES.with_borrow_mut(|lines| {
        if let Some(lines) = lines {
            lines.extend(message.lines().map(str::to_owned));
        }
    });
}

fn useful(lines: Vec<String>) -> Vec<String> {
    let noise = |line: &String| {
        let line = line.trim();
        // The hint about memlock is wrong on kernels that account memory by cgroup, which is every one we run on.
        line.is_empty()
            || line.contains("ulimit -l")
            || line.contains("PROG LOAD LOG")
            || line.starts_with("processed ")
            || line.contains(": failed to load: ")
            || line.contains(": failed to load object ")
            || line.contains(": failed to load BPF skeleton ")
    };
    lines.into_iter().filter(|line| !noise(line)).map(|line| line.trim_end().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_useful_lines_are_kept() {
        let mut lines: Vec<String> = (0..30).map(|n| format!("{n}: (85) call bpf_x#1")).collect();
        lines.push("-- BEGIN PROG LOAD LOG --".into());
        lines.push("R1 type=ctx expected=fp".into());
        lines.push("libbpf: prog 'x': failed to load: -EACCES".into());
        lines.push("libbpf: failed to load BPF skeleton 'x': -EACCES".into());
        lines.push("processed 3 insns (limit 1000000)".into());
        lines.push(
            "libbpf: permission error while running as root; try raising 'ulimit -l'? current value: 8.0 MiB".into(),
        );
        let kept = useful(lines);
        assert_eq!(kept.len(), 31);
        assert_eq!(kept.last().map(String::as_str), Some("R1 type=ctx expected=fp"));
    }

    #[test]
    fn captures_nest_and_end() {
        let ((), outer) = capture(|| {
            keep(PrintLevel::Warn, "one\n".into());
            let ((), inner) = capture(|| keep(PrintLevel::Warn, "two\n".into()));
            assert_eq!(inner, ["two"]);
        });
        assert_eq!(outer, ["one"]);
    }
}
