//! Programs that the tests compile, and processes of them.
#![allow(dead_code, reason = "each test file uses its part of this one")]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Functions of every shape that a symbol table has: global, local, weak, aliased, without a size, nested, mangled.
pub(crate) const SOURCE: &str = r#"
#define KEEP __attribute__((noinline, used))
KEEP int global_one(int x) { return x * 3 + 1; }
static KEEP int local_one(int x) { return x * 5 + 1; }
__attribute__((weak)) KEEP int weak_one(int x) { return x * 7 + 1; }
KEEP int __barred(int x) { return x * 11 + 1; }
int plain(int x) __attribute__((alias("__barred")));
int weak_alias_with_a_long_name(int x) __attribute__((weak, alias("__barred")));
KEEP int member(int x) __asm__("_ZN2ns1SIiE6memberEii");
KEEP int member(int x) { return x * 13 + 1; }
KEEP int rusty(int x) __asm__("_ZN3abc5inner5rusty17h0123456789abcdefE");
KEEP int rusty(int x) { return x * 17 + 1; }
__asm__(".text\n.globl unsized_one\n.type unsized_one,%function\nunsized_one:\n nop\n nop\n nop\n nop\n"
        ".globl bounded\n.type bounded,%function\nbounded:\n nop\n nop\nLinner_label:\n nop\n nop\n.size bounded,.-bounded\n");
KEEP void spin(void) { for (volatile int i = 0;; i++) { } }
void _start(void) {
    spin();
    global_one(local_one(weak_one(plain(member(rusty(1))))));
}
"#;

/// Compiles `source` to `name` in `dir`.
pub(crate) fn compile(dir: &Path, name: &str, source: &str, options: &[&str]) -> PathBuf {
    let (code, program) = (dir.join(format!("{name}.c")), dir.join(name));
    std::fs::write(&code, source).unwrap();
    run(Command::new("cc").args(["-O1", "-w", "-Wl,--build-id=sha1", "-o"]).arg(&program).arg(&code).args(options));
    program
}

/// The program of [`SOURCE`], which needs no library and spins for ever. Another `salt` makes another build id.
pub(crate) fn freestanding(dir: &Path, name: &str, salt: &str) -> PathBuf {
    let source = format!("{SOURCE}\nconst char salt[] = \"{salt}\";\n");
    compile(dir, name, &source, &["-nostdlib", "-static", "-fno-stack-protector"])
}

pub(crate) fn run(command: &mut Command) {
    let out = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
}

/// A process that is ended when the test is.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start(command: &mut Command) -> Running {
        Running(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// The executable mapping of a file whose path holds `part`: its range, its offset, its path.
    pub(crate) fn mapping(&self, part: &str) -> (u64, u64, u64, String) {
        for _ in 0..2000 {
            let maps = std::fs::read_to_string(format!("/proc/{}/maps", self.pid())).unwrap();
            let line = maps.lines().find(|line| line.contains("r-xp") && line.contains(part));
            if let Some(line) = line {
                let fields: Vec<&str> = line.splitn(6, ' ').collect();
                let (start, end) = fields[0].split_once('-').unwrap();
                let hex = |text| u64::from_str_radix(text, 16).unwrap();
                return (hex(start), hex(end), hex(fields[2]), fields[5].trim_start().to_string());
            }
            // The child has not called execve yet.
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        panic!("no mapping of {part}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
