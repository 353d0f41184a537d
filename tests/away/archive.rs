//! Archives: what is read from one in an empty root, by nobody, is what was read at home.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use afterimage_testkit::{Need, has, workload};
use serde_json::Value;

use crate::common::{afterimage, file, folder, perf, perf_record, stderr, stdout, word};

/// A folder in which there is nothing but the command, the libraries that it is linked with, and a recording.
fn empty_root(folder: &Path) -> PathBuf {
    let root = folder.join("root");
    std::fs::create_dir(&root).unwrap();
    let command = Path::new(env!("CARGO_BIN_EXE_afterimage"));
    std::fs::copy(command, root.join("afterimage")).unwrap();
    let linked = Command::new("ldd").arg(command).output().unwrap();
    for library in stdout(&linked).split_whitespace().filter(|word| word.starts_with('/')) {
        let place = root.join(library.trim_start_matches('/'));
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::copy(library, place).unwrap();
    }
    root
}

struct Elsewhere {
    root: PathBuf,
}

impl Elsewhere {
    /// Takes an archive to an empty root.
    fn new(folder: &Path, archive: &Path) -> Elsewhere {
        let root = empty_root(folder);
        std::fs::copy(archive, root.join("a.data")).unwrap();
        assert!(Command::new("chmod").args(["-R", "a+rX"]).arg(folder).status().unwrap().success());
        Elsewhere { root }
    }

    /// Runs the command there as nobody, without /proc.
    fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new("chroot");
        command.args(["--userspec=65534:65534", word(&self.root), "/afterimage"]).args(words).args(["-i", "/a.data"]);
        command.env("NO_COLOR", "1").stdin(Stdio::null()).output().unwrap()
    }
}

fn at_home(path: &Path, words: &[&str]) -> Output {
    afterimage().args(words).args(["-i", word(path)]).output().unwrap()
}

/// Archives a recording beside it.
fn archive(path: &Path, words: &[&str]) -> PathBuf {
    let output = at_home(path, &[&["archive"], words].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    println!("{}", stderr(&output));
    let archive = PathBuf::from(format!("{}.archive", path.display()));
    assert!(archive.is_file());
    archive
}

/// The same lines from the recording at home and from the archive elsewhere.
fn same(home: &Path, elsewhere: &Elsewhere, words: &[&str]) -> String {
    let (here, there) = (at_home(home, words), elsewhere.run(words));
    assert_eq!(here.status.code(), Some(0), "{words:?}: {}", stderr(&here));
    assert_eq!(there.status.code(), Some(0), "{words:?}: {}", stderr(&there));
    let (here, there) = (stdout(&here), stdout(&there));
    let different = here.lines().zip(there.lines()).find(|(a, b)| a != b);
    assert_eq!(different, None, "{words:?}");
    assert_eq!(here.len(), there.len(), "{words:?}");
    assert!(!stdout(&elsewhere.run(words)).is_empty());
    here
}

/// A program whose source is there, with a function that is inlined, and its recording by perf.
fn own_program(folder: &tempfile::TempDir) -> (PathBuf, PathBuf) {
    let (source, program, path) = (file(folder, "loop.c"), file(folder, "loop"), file(folder, "data"));
    let text = "static inline __attribute__((always_inline)) unsigned step(unsigned x, unsigned i)\n{\n\treturn x * 31 + i; /* here */\n}\n\n__attribute__((noinline)) unsigned hot(unsigned x)\n{\n\tfor (unsigned i = 0; i < 300000000; i++)\n\t\tx = step(x, i);\n\treturn x;\n}\n\nint main(int argc, char **argv)\n{\n\treturn hot(argc) & 1;\n}\n";
    std::fs::write(&source, text).unwrap();
    let mut build = Command::new("cc");
    build.args(["-O1", "-g", "-fno-omit-frame-pointer", "-o"]).arg(&program).arg(&source);
    assert!(build.status().unwrap().success());
    (program, path)
}

#[test]
fn reads_elsewhere_as_at_home() {
    let needs = [Need::Root, Need::Perf, Need::Cc, Need::Setpriv];
    if !has("reads_elsewhere_as_at_home", &needs) {
        return;
    }
    let folder = folder();
    let (program, path) = own_program(&folder);
    // With the kernel, and with what the linker and the C library do.
    let run = format!("{}; find /usr/share/doc > /dev/null", program.display());
    perf_record(&path, &["-g", "-e", "cpu-clock", "-F", "999"], &["sh", "-c", &run]);
    let archive = archive(&path, &[]);
    let elsewhere = Elsewhere::new(folder.path(), &archive);
    for words in [
        &["report", "--sort", "comm,dso,sym"][..],
        &["report", "--children", "-g", "caller"],
        &["report", "--sort", "srcline"],
        &["report", "-g", "srcline", "--sort", "sym"],
        &["script"],
        &["script", "-F", "+srcline"],
        &["script", "--json"],
        &["export"],
        &["annotate", "-s", "hot"],
    ] {
        let lines = same(&path, &elsewhere, words);
        assert!(lines.contains("hot") || lines.contains("loop.c"), "{words:?}: {lines}");
    }
    let annotated = same(&path, &elsewhere, &["annotate", "-s", "hot"]);
    assert!(annotated.contains("/* here */") && annotated.contains("jne "), "{annotated}");
    let report = same(&path, &elsewhere, &["report", "--sort", "dso,sym"]);
    let kernel = report.lines().filter(|line| line.contains("[k] ") && !line.contains("0xffff")).count();
    assert!(kernel > 5, "{kernel} functions of the kernel have names:\n{report}");
    // Nobody asks for what is not in the file.
    let said = stderr(&elsewhere.run(&["report"]));
    assert!(!said.contains("not used"), "{said}");
    // The recording itself is not enough there.
    std::fs::copy(&path, elsewhere.root.join("a.data")).unwrap();
    assert!(!stdout(&elsewhere.run(&["report", "--sort", "sym"])).contains("hot"));
    // Stock perf reads an archive as it reads the recording.
    let lines = |path: &Path| perf(&["script", "-i", word(path), "-F", "comm,tid,time,event,ip,sym"]);
    assert!(lines(&path) == lines(&archive));
}

#[test]
fn without_the_text_of_sources() {
    if !has("without_the_text_of_sources", &[Need::Root, Need::Perf, Need::Cc, Need::Setpriv]) {
        return;
    }
    let folder = folder();
    let (program, path) = own_program(&folder);
    perf_record(&path, &["-e", "cpu-clock:u", "-F", "499"], &[word(&program)]);
    let elsewhere = Elsewhere::new(folder.path(), &archive(&path, &["--no-source"]));
    let annotated = stdout(&elsewhere.run(&["annotate", "-s", "hot"]));
    assert!(annotated.contains("loop.c:3") && !annotated.contains("/* here */"), "{annotated}");
    same(&path, &elsewhere, &["report", "--sort", "srcline"]);
}

/// A recording of ours, whose recorder was killed: what its journal held is in the archive.
#[test]
fn one_that_was_killed() {
    let needs = [Need::Root, Need::Bpf, Need::Cc, Need::Setpriv];
    if !has("one_that_was_killed", &needs) {
        return;
    }
    let folder = folder();
    let path = file(&folder, "data");
    let busy = workload::build().busy;
    let mut program = Command::new(&busy).arg("100000").stdout(Stdio::null()).spawn().unwrap();
    let mut recorder = afterimage();
    recorder.args(["record", "-q", "-e", "cpu-clock", "-F", "999", "-g", "-o", word(&path)]);
    recorder.args(["-p", &program.id().to_string()]).stdout(Stdio::null()).stderr(Stdio::null());
    let mut recorder = recorder.spawn().unwrap();
    // Until a pass has brought samples.
    let samples = || at_home(&path, &["script", "-F", "comm,ip"]).stdout.iter().filter(|byte| **byte == b'\n').count();
    assert!((0..300).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(200));
        path.exists() && samples() > 100
    }));
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    program.kill().unwrap();
    program.wait().unwrap();
    let archive = archive(&path, &[]);
    let elsewhere = Elsewhere::new(folder.path(), &archive);
    for words in [&["report"][..], &["script"], &["report", "--sort", "srcline"]] {
        let lines = same(&path, &elsewhere, words);
        assert!(lines.contains("busy"), "{words:?}: {lines}");
    }
    assert!(stderr(&elsewhere.run(&["report"])).contains("was not finished; to the last pass"));
}

/// Streams, compressed recordings and folders with a file for each thread: the same samples and names.
#[test]
fn recordings_of_other_forms() {
    if !has("recordings_of_other_forms", &[Need::Root, Need::Perf, Need::Cc]) {
        return;
    }
    let folder = folder();
    let (program, stream) = own_program(&folder);
    let script = |path: &Path| {
        let output = at_home(path, &["script", "-F", "comm,tid,time,event,ip,sym"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        stdout(&output)
    };
    let mut perf = Command::new("perf");
    perf.args(["record", "-q", "-N", "-e", "cpu-clock:u", "-F", "499", "-o", "-", "--", word(&program)]);
    perf.stdin(Stdio::null()).stdout(std::fs::File::create(&stream).unwrap()).stderr(Stdio::null());
    // It ends with the program's status.
    perf.status().unwrap();
    let (packed, parts) = (file(&folder, "packed"), file(&folder, "parts"));
    perf_record(&packed, &["-z", "-e", "cpu-clock:u", "-F", "499"], &[word(&program)]);
    perf_record(&parts, &["--threads", "-a", "-e", "cpu-clock", "-F", "199"], &[word(&program)]);
    for path in [&stream, &packed, &parts] {
        let archive = archive(path, &[]);
        let (here, there) = (script(path), script(&archive));
        assert!(here.lines().filter(|line| line.contains("hot")).count() > 20, "{path:?}");
        assert_eq!(here.lines().count(), there.lines().count(), "{path:?}");
        assert_eq!(here.lines().zip(there.lines()).find(|(a, b)| a != b), None, "{path:?}");
    }
    // What comes through a pipe can be read once only.
    let mut command = afterimage();
    command.args(["archive", "-i", "-", "-o", word(&file(&folder, "none"))]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // It may end before it has read everything.
    let _ = std::io::copy(&mut std::fs::File::open(&stream).unwrap(), &mut stdin);
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(!file(&folder, "none").exists());
}

/// What is damaged in an archive costs the names in it, and is told; the samples stay.
#[test]
fn damage_costs_names_and_is_told() {
    if !has("damage_costs_names_and_is_told", &[Need::Root, Need::Perf, Need::Cc]) {
        return;
    }
    let folder = folder();
    let (program, path) = own_program(&folder);
    perf_record(&path, &["-e", "cpu-clock:u", "-F", "499"], &[word(&program)]);
    let archive = archive(&path, &[]);
    let whole = std::fs::read(&archive).unwrap();
    let recording = std::fs::metadata(&path).unwrap().len() as usize;
    let samples = |path: &Path| {
        let output = at_home(path, &["report", "--json", "--sort", "sym"]);
        let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
        (
            shown["events"][0]["samples"].as_u64().unwrap(),
            shown["not_used"]["damaged_objects"].as_u64().unwrap(),
            output,
        )
    };
    let (all, none, _) = samples(&archive);
    assert_eq!(none, 0);
    let broken = file(&folder, "broken");
    let (mut told, step) = (0, (whole.len() - recording) / 40);
    for nth in 1..40 {
        let mut bytes = whole.clone();
        bytes[recording + nth * step] ^= 0x20;
        std::fs::write(&broken, &bytes).unwrap();
        let (samples, damaged, output) = samples(&broken);
        assert_eq!(samples, all);
        let said = stderr(&output);
        assert!(damaged == 0 || said.contains("of the archive are damaged"), "{said}");
        told += u64::from(damaged > 0);
    }
    assert!(told > 20, "{told} of 39");
    std::fs::write(&broken, &whole[..whole.len() - 100]).unwrap();
    assert_eq!(samples(&broken).0, all);
}

/// Stacks that are unwound from copies: the tables for that are in the archive, for the program, the C library, the vDSO, and the
/// code that signal handlers return to.
#[test]
fn copied_stacks_elsewhere() {
    if !has("copied_stacks_elsewhere", &[Need::Root, Need::Perf, Need::Cc, Need::Setpriv]) {
        return;
    }
    let folder = folder();
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let (program, path) = (file(&folder, "frames"), file(&folder, "data"));
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-g", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-I"]).arg(here.join("workload"));
    cc.arg(here.join("script_lines/frames.c")).arg("-o").arg(&program);
    assert!(cc.status().unwrap().success());
    perf_record(&path, &["--call-graph", "dwarf", "-e", "cpu-clock", "-F", "499"], &[word(&program), "0.3"]);
    let archive = archive(&path, &[]);
    let elsewhere = Elsewhere::new(folder.path(), &archive);
    for words in [
        &["script"][..],
        &["script", "--json"],
        &["report", "--children", "-g", "caller"],
        &["report", "--stats"],
        &["export"],
    ] {
        let lines = same(&path, &elsewhere, words);
        assert!(lines.contains("on_signal") || words.contains(&"--stats"), "{words:?}: {lines}");
    }
    let ends = |output: Output| -> Value {
        let report: Value = serde_json::from_slice(&output.stdout).unwrap();
        report["unwound"].clone()
    };
    let (home, away) = (ends(at_home(&path, &["report", "--json"])), ends(elsewhere.run(&["report", "--json"])));
    println!("{home}");
    assert_eq!(home, away);
    assert!(away["complete"].as_u64().unwrap() * 100 >= away["stacks"].as_u64().unwrap() * 99, "{away}");
    // An archive of an archive has them as well.
    std::fs::copy(self::archive(&archive, &[]), elsewhere.root.join("a.data")).unwrap();
    std::fs::set_permissions(elsewhere.root.join("a.data"), std::fs::Permissions::from_mode(0o644)).unwrap();
    same(&path, &elsewhere, &["script"]);
    // Stacks that nothing was copied of need no tables.
    let plain = file(&folder, "plain");
    perf_record(&plain, &["-g", "-e", "cpu-clock:u", "-F", "499"], &[word(&program), "0.1"]);
    assert!(tables(&self::archive(&plain, &[])).is_empty() && tables(&archive).len() >= 2);
}

/// The entries with unwind tables in an archive.
fn tables(archive: &Path) -> Vec<Vec<u8>> {
    let bytes = std::fs::read(archive).unwrap();
    let reader = afterimage_perf_data::FileReader::open(&bytes).unwrap();
    reader.private().unwrap().tables.clone()
}

/// Debug information may name any file as its source: an archive does not carry what its owner could not have read, nor what is no
/// source at all.
#[test]
fn nobodys_files_are_taken_for_sources() {
    if !has("nobodys_files_are_taken_for_sources", &[Need::Root, Need::Perf, Need::Cc]) {
        return;
    }
    let folder = folder();
    let (source, program, path) = (file(&folder, "loop.c"), file(&folder, "loop"), file(&folder, "data"));
    let named =
        [file(&folder, "shadow"), file(&folder, "key.pem"), file(&folder, "private.c"), file(&folder, "link.c")];
    let mut text = String::from(
        "__attribute__((noinline)) unsigned hot(unsigned x)\n{\nfor (unsigned i = 0; i < 300000000; i++) {\n",
    );
    for named in &named {
        // A line for each file, as a generator writes it.
        text.push_str(&format!(
            "#line 1 \"{}\"\nx = x * 31 + i;\n__asm__ volatile(\"\" : \"+r\"(x));\n",
            named.display()
        ));
    }
    text.push_str(&format!("#line 1 \"{}\"\nx ^= i; /* ours */\n}}\nreturn x;\n}}\n", source.display()));
    text.push_str("int main(int argc, char **argv)\n{\nreturn hot(argc) & 1;\n}\n");
    std::fs::write(&source, "x ^= i; /* ours */\n".repeat(3)).unwrap();
    let compiled = file(&folder, "compiled.c");
    std::fs::write(&compiled, &text).unwrap();
    assert!(Command::new("cc").args(["-O1", "-g", "-o"]).arg(&program).arg(&compiled).status().unwrap().success());
    const SECRET: &str = "not to be given away";
    for named in &named[..3] {
        std::fs::write(named, format!("{SECRET}\n").repeat(3)).unwrap();
    }
    std::os::unix::fs::symlink(&named[0], &named[3]).unwrap();
    // The program is somebody's who may not read that one, which is a source.
    std::os::unix::fs::chown(&program, Some(65_534), None).unwrap();
    std::fs::set_permissions(&named[2], std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    perf_record(&path, &["-e", "cpu-clock:u", "-F", "999"], &[word(&program)]);
    let output = at_home(&path, &["archive", "-v"]);
    let said = stderr(&output);
    println!("{said}");
    assert_eq!(output.status.code(), Some(0), "{said}");
    let bytes = std::fs::read(format!("{}.archive", path.display())).unwrap();
    let reader = afterimage_perf_data::FileReader::open(&bytes).unwrap();
    let kept: Vec<u8> = reader.private().unwrap().objects.concat();
    let holds = |text: &str| kept.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(holds("/* ours */") && holds("private.c") && !holds(SECRET), "{said}");
    for (named, why) in
        named.iter().zip(["not a source file", "not a source file", "may not read it", "not a source file"])
    {
        let told = said.lines().find(|line| line.contains(&format!("no lines of {} are kept", named.display())));
        assert!(told.is_some_and(|line| line.ends_with(why)), "{named:?}: {said}");
    }
    assert!(
        said.contains("lines of 2 source files") && said.contains("4 files that are named as sources are left out"),
        "{said}"
    );
}

/// A source that was changed since it was compiled says of other lines than those that ran. Compilers that write its sum down let that
/// be seen.
#[test]
fn sources_that_were_changed_are_left_out() {
    if !has("sources_that_were_changed_are_left_out", &[Need::Root, Need::Perf, Need::Clang]) {
        return;
    }
    let folder = folder();
    let (source, program, path) = (file(&folder, "loop.c"), file(&folder, "loop"), file(&folder, "data"));
    let text = "int main(int argc, char **argv)\n{\n\tunsigned x = argc;\n\tfor (volatile unsigned i = 0; i < 100000000; i++)\n\t\tx = x * 31 + i; /* here */\n\treturn x & 1;\n}\n";
    std::fs::write(&source, text).unwrap();
    let mut clang = Command::new("clang");
    assert!(clang.args(["-O1", "-g", "-gdwarf-5", "-o"]).arg(&program).arg(&source).status().unwrap().success());
    perf_record(&path, &["-e", "cpu-clock:u", "-F", "499"], &[word(&program)]);
    let holds = |text: &str| {
        let bytes = std::fs::read(archive(&path, &[])).unwrap();
        let reader = afterimage_perf_data::FileReader::open(&bytes).unwrap();
        let kept: Vec<u8> = reader.private().unwrap().objects.concat();
        kept.windows(text.len()).any(|window| window == text.as_bytes())
    };
    assert!(holds("/* here */"));
    std::fs::write(&source, text.replace("here", "there")).unwrap();
    assert!(!holds("/* there */") && holds("loop.c"));
}
