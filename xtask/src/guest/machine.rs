//! One guest: qemu without hardware support, its two serial lines, and the time it may take.
//!
//! The first serial line is the kernel's and goes to a file that is watched. The second one carries the messages of
//! the first process. The machine ends itself through qemu's debug port; everything else is a fault.

use super::child::bound;
use super::log::{Trouble, Watch};
use anyhow::{Context, Result};
use guest::wire::{Decoder, Message};
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

pub(crate) const QEMU: &str = "qemu-system-x86_64";
/// qemu's exit code for what `guest-init` writes to the debug port when it carried out its plan: 2 * 16 + 1.
pub(crate) const DONE: i32 = 33;
/// How long a kernel that is in trouble may take to print its stacks and end.
const LAST_WORDS: Duration = Duration::from_secs(20);
/// How long nothing may come before the log and the clock are looked at.
const LOOK: Duration = Duration::from_millis(50);

/// What the kernel is told.
///
/// Whatever locks up ends in a panic, and a panic in a reset, which ends qemu. The times are those that a slow, busy
/// machine under emulation survives: a soft lock-up is told after 2 * 15 s, and before an RCU stall. The clock of traces
/// is named so that the kernel does not change it some seconds after the start, which empties the trace. Whether the timer
/// works is not tried: where this machine is so busy that qemu waits for its turn, the kernel takes it for broken and panics.
/// Nor is the clock of the CPUs watched, which is the same for both: where it is given up for a device's, each look at the time
/// is a call of the device.
const COMMAND_LINE: &str = "console=ttyS0,115200 loglevel=6 rdinit=/init panic=-1 oops=panic softlockup_panic=1 \
    sysctl.kernel.softlockup_all_cpu_backtrace=1 watchdog_thresh=15 rcupdate.rcu_cpu_stall_timeout=45 sysctl.kernel.panic_on_rcu_stall=1 \
    sysctl.kernel.hung_task_panic=1 sysctl.kernel.hung_task_timeout_secs=120 trace_clock=local no_timer_check tsc=reliable";

/// A machine to be started.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    /// The kernel's image.
    pub(crate) image: PathBuf,
    /// The archive with the first file system.
    pub(crate) initramfs: PathBuf,
    /// The disk that files come back on.
    pub(crate) disk: PathBuf,
    /// Where the kernel's log goes.
    pub(crate) log: PathBuf,
    /// After this time the machine is killed.
    pub(crate) limit: Duration,
    /// Whether each CPU has a thread of its own.
    pub(crate) multi: bool,
}

/// How a machine ended.
#[derive(Clone, Debug)]
pub(crate) struct End {
    /// qemu's exit code; none when it was killed.
    pub(crate) code: Option<i32>,
    /// Whether its time was over.
    pub(crate) hung: bool,
    /// Whether bytes arrived that are no message.
    pub(crate) garbled: bool,
    /// What the kernel's log told.
    pub(crate) trouble: Option<Trouble>,
    /// Warnings with a stack in the kernel's log.
    pub(crate) warnings: usize,
    /// What qemu itself said.
    pub(crate) said: String,
}

impl Machine {
    fn command(&self) -> Command {
        let mut command = bound(QEMU);
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]);
        // With a thread for each CPU, one was seen to run a breakpoint of a text patch (a static key of perf) after the
        // kernel had taken it away, which is an oops. With one thread for all, what is patched is seen at once.
        let threads = if self.multi { "tcg,thread=multi" } else { "tcg,thread=single" };
        command.args(["-machine", "pc", "-accel", threads, "-smp", "2", "-m", "1536"]);
        // qemu 7.2 computes the flags of cmpxchg16b from a state that may be stale: now and then the kernel's allocator,
        // which uses it, goes on with half of a register as its flags, and soon after with a double fault. A processor with
        // fast strings (erms, fsrm) is copied for byte by byte, which emulation takes one at a time: a page in four times
        // the time that words take. A fifth level of page tables costs it more, and nothing here depends on it.
        command.args(["-cpu", "max,-cx16,-erms,-fsrm,-la57"]);
        command.arg("-kernel").arg(&self.image).arg("-initrd").arg(&self.initramfs);
        command.args(["-device", "isa-debug-exit,iobase=0xf4,iosize=0x04"]);
        command.arg("-drive").arg(with_path("if=none,id=out,format=raw,cache=unsafe,file=", &self.disk));
        command.args(["-device", "virtio-blk-pci,drive=out"]);
        command
    }

    /// Runs the machine to its end and hands over the messages as they come.
    pub(crate) fn run(&self, each: &mut dyn FnMut(Message)) -> Result<End> {
        let mut command = self.command();
        command.arg("-chardev").arg(with_path("file,id=log,path=", &self.log)).args(["-serial", "chardev:log"]);
        command.args(["-chardev", "stdio,id=wire,signal=off", "-serial", "chardev:wire"]);
        command.args(["-append", COMMAND_LINE]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("qemu-system-x86_64 (Debian's package qemu-system-x86)")?;
        let (wire, said) = (arriving(child.stdout.take()), arriving(child.stderr.take()));
        let (hung, garbled, watch) = self.watch(&wire, each);
        let _ = child.kill();
        let code = child.wait()?.code();
        let said = String::from_utf8_lossy(&said.iter().flatten().collect::<Vec<u8>>()).trim().to_owned();
        Ok(End { code, hung, garbled, trouble: watch.trouble().cloned(), warnings: watch.warnings, said })
    }

    /// Comes back when qemu closed the line, or has to be killed.
    fn watch(&self, wire: &Receiver<Vec<u8>>, each: &mut dyn FnMut(Message)) -> (bool, bool, Watch) {
        let mut end = Instant::now() + self.limit;
        let (mut watch, mut decoder) = (Watch::default(), Decoder::default());
        let mut log = None;
        let mut in_trouble = false;
        loop {
            let arrived = wire.recv_timeout(LOOK);
            let closed = arrived == Err(RecvTimeoutError::Disconnected);
            decoder.push(&arrived.unwrap_or_default());
            let garbled = loop {
                match decoder.message() {
                    Ok(Some(message)) => each(message),
                    Ok(None) => break false,
                    Err(_) => break true,
                }
            };
            // The log is complete once the line is closed, so it is read after that is known.
            log = log.or_else(|| File::open(&self.log).ok());
            let mut added = Vec::new();
            let _ = log.as_mut().map(|log| log.read_to_end(&mut added));
            watch.push(&added);
            if watch.trouble().is_some() && !in_trouble {
                in_trouble = true;
                end = end.min(Instant::now() + LAST_WORDS);
            }
            // qemu ended, and everything that it wrote has been looked at; or there is no way on in its messages.
            if closed || garbled {
                return (false, garbled, watch);
            }
            if Instant::now() >= end {
                return (!in_trouble, garbled, watch);
            }
        }
    }

    /// Runs the machine with its console on this terminal.
    pub(crate) fn run_shell(&self) -> Result<()> {
        let mut command = self.command();
        command.args(["-serial", "mon:stdio", "-serial", "null", "-append", COMMAND_LINE]);
        command.status().context("qemu-system-x86_64 (Debian's package qemu-system-x86)")?;
        Ok(())
    }
}

/// An option of qemu that ends with a path, in which commas are doubled.
fn with_path(option: &str, path: &std::path::Path) -> String {
    format!("{option}{}", path.to_string_lossy().replace(',', ",,"))
}

/// Reads a stream to its end on a thread of its own.
fn arriving(from: Option<impl Read + Send + 'static>) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        let Some(mut from) = from else { return };
        let mut bytes = vec![0; 1 << 16];
        while let Ok(read @ 1..) = from.read(&mut bytes) {
            if sender.send(bytes[..read].to_vec()).is_err() {
                return;
            }
        }
    });
    receiver
}
