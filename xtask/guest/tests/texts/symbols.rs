//! What a recording learns of the kernel's symbols as it begins, without the text of `/proc/kallsyms`.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use afterimage_kernel_text::capture::{Capturer, Options};
use afterimage_testkit::{Need, has};

use crate::support::{load, turn};

/// The lines of `/proc/kallsyms` that a recording wants, their types left out.
fn wanted(kallsyms: &str) -> Vec<(String, String)> {
    let line = |line: &str| {
        let (symbol, owner) = line.split_once('\t').unwrap_or((line, ""));
        let mut words = symbol.split(' ');
        let (address, name) = (words.next().unwrap(), words.nth(1).unwrap());
        let wanted = match owner {
            "" => ["_text", "_stext", "_etext"].contains(&name),
            "[bpf]" => !name.starts_with("bpf_prog_"),
            owner => owner.starts_with("[__builtin__"),
        };
        wanted.then(|| (address.to_owned(), format!("{name} {owner}")))
    };
    kallsyms.lines().filter_map(line).collect()
}

#[test]
fn the_iterator_shows_what_kallsyms_shows() {
    if !has("the_iterator_shows_what_kallsyms_shows", &[Need::Root, Need::Bpf]) {
        return;
    }
    let _turn = turn();
    let mut hot = load("xdp --count 1 --life hot --seconds 60").into_iter();
    let mut hot = Command::new(hot.next().unwrap()).args(hot).stdout(Stdio::null()).spawn().unwrap();
    let capturer = Capturer::start(&Options::default()).unwrap();
    let symbols = || capturer.symbols().expect("Linux 6.0 and later have an iterator over symbols");
    let start = Instant::now();
    while !symbols().contains("bpf_dispatcher_xdp\t[bpf]") {
        assert!(start.elapsed() < Duration::from_secs(50), "no dispatcher: {}", symbols());
        std::thread::sleep(Duration::from_millis(50));
    }
    // Others make such text too: what is compared is a time in which none came or went.
    loop {
        let before = symbols();
        let listed = wanted(&std::fs::read_to_string("/proc/kallsyms").unwrap());
        if before == symbols() {
            print!("{before}");
            assert_eq!(wanted(&before), listed);
            assert!(listed.iter().filter(|(_, name)| name.ends_with(' ')).count() >= 3, "the kernel's own: {listed:?}");
            break;
        }
        assert!(start.elapsed() < Duration::from_secs(50), "it never stands still");
    }
    hot.kill().unwrap();
    hot.wait().unwrap();
}
