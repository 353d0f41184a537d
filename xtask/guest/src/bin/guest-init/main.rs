//! The first process of a test guest: sets the system up, runs the plan, and ends the machine.
//!
//! Everything that it finds goes to the host as messages on the second serial port; the first one is the kernel's. At
//! the end the files of [`OUT`] are written to the first virtio disk as an archive. The machine is ended through
//! qemu's debug port, so that a kernel that reboots for any other reason can't look like a run that went to its end.
//!
//! Called as `guest-init fault NAME` it breaks the guest on purpose, to show that the host notices.

mod fault;
mod out;
mod run;
mod system;

use guest::plan::{self, Plan};
use guest::wire::Message;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::process::ExitCode;

/// The folder whose files are copied to the host.
const OUT: &str = "/out";
/// What the debug port gets when the plan was carried out: qemu then exits with 33.
const DONE: u8 = 16;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if std::process::id() != 1 {
        return match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["fault", name] => fault::commit(name),
            _ => {
                eprintln!("guest-init is the first process of a test guest");
                ExitCode::from(2)
            }
        };
    }
    let notes = system::set_up();
    let mut wire = Wire::open();
    wire.send(&Message::Up { uptime_ms: system::uptime_ms(), release: system::release() });
    notes.into_iter().for_each(|note| wire.send(&Message::Note(note)));
    if let Err(error) = work(&mut wire) {
        wire.send(&Message::Note(error.to_string()));
        system::power_off();
    }
    system::exit(DONE);
    // Only a kernel without the debug port comes here: the host sees that qemu ended in another way.
    system::power_off();
    ExitCode::FAILURE
}

fn work(wire: &mut Wire) -> Result<(), Box<dyn std::error::Error>> {
    let mut plan = Plan::decode(&fs::read_to_string(plan::PATH).map_err(|e| format!("{}: {e}", plan::PATH))?)?;
    for module in &plan.modules {
        system::load_module(module).map_err(|e| format!("{module}: {e}"))?;
    }
    plan.environment.push(("AFTERIMAGE_GUEST".into(), series(&system::release())));
    fs::create_dir_all(OUT)?;
    if plan.shell {
        run::shell(&plan)?;
    }
    for (index, step) in plan.runs.iter().enumerate().filter(|_| !plan.shell) {
        let index = u32::try_from(index)?;
        wire.send(&Message::Started(index));
        let how = run::run(step, &plan.environment, &mut |bytes| wire.send(&Message::Output(bytes.to_vec())));
        wire.send(&Message::Ended(index, how));
    }
    let written = out::write(OUT, out::DISK)?;
    wire.send(&Message::Finished(written));
    Ok(())
}

/// Major and minor version of a release.
fn series(release: &str) -> String {
    release.split(['.', '-', '+']).take(2).collect::<Vec<_>>().join(".")
}

/// The serial line to the host.
struct Wire {
    port: Option<File>,
}

impl Wire {
    fn open() -> Wire {
        let port = OpenOptions::new().read(true).write(true).open("/dev/ttyS1").ok();
        if let Some(port) = &port {
            system::make_raw(port);
        }
        Wire { port }
    }

    /// Sends one message and waits until it has left. Without a line (with a shell, say) nothing happens.
    fn send(&mut self, message: &Message) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        if let Some(port) = &mut self.port {
            let _ = port.write_all(&bytes);
            system::drain(port);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::series;

    #[test]
    fn a_series_is_major_and_minor() {
        for (release, expected) in
            [("6.12.117+deb12-cloud-amd64", "6.12"), ("6.1.0-57-cloud-amd64", "6.1"), ("7.0-rc1", "7.0")]
        {
            assert_eq!(series(release), expected);
        }
    }
}
