//! The gate before the handler: the names in its expression, and its way to the stubs.

use std::os::fd::OwnedFd;
use std::path::Path;

use afterimage_handler::gate::{Context, Expression, Place, Resolver, like};
use afterimage_handler::{Handlers, Shared};
use afterimage_perf_data::SampleType;
use afterimage_perf_event::open::Target;
use afterimage_perf_event::spec::EventSpec;
use afterimage_symbols::KernelTable;

use crate::RecordError;
use crate::synth::procfs::{self, PROT_EXEC};

/// Compiles an expression for the events that carry a stub and puts it before the handler in force. Returns what is worth
/// saying about it. On an error the gate that was there stays.
pub(crate) fn install(
    expression: &Expression,
    handlers: &mut Handlers,
    specs: &[EventSpec],
    stubs: &[Option<usize>],
    target: &Target,
) -> Result<Vec<String>, RecordError> {
    let (program, notes) = load(expression, &handlers.shared(), carried(specs, stubs), target)?;
    handlers.set_gate(program)?;
    Ok(notes)
}

/// The fields that all events with a stub carry.
pub(crate) fn carried(specs: &[EventSpec], stubs: &[Option<usize>]) -> SampleType {
    let with_stub = specs.iter().zip(stubs).filter(|(_, stub)| stub.is_some());
    with_stub.fold(SampleType::all(), |common, (spec, _)| common & spec.attr.sample_type)
}

/// Looks names up, compiles and loads: the program, which is none where everything passes, and what is worth saying.
pub(crate) fn load(
    expression: &Expression,
    shared: &Shared,
    carried: SampleType,
    target: &Target,
) -> Result<(Option<OwnedFd>, Vec<String>), RecordError> {
    let context = Context::here(shared.mechanism, carried);
    let gate = expression.compile(&Names { target }, &context)?;
    let program = gate.load(shared)?;
    Ok((program, gate.notes().to_vec()))
}

/// Looks names up on this machine, for one target.
struct Names<'a> {
    target: &'a Target,
}

impl Resolver for Names<'_> {
    fn symbol(&self, name: &str) -> Result<Vec<Place>, String> {
        let table = KernelTable::running().map_err(|e| e.to_string())?;
        if table.hidden() {
            return Err("the kernel hides its addresses (kernel.kptr_restrict)".to_owned());
        }
        let ids = 0..u32::try_from(table.len()).unwrap_or(u32::MAX);
        let pattern = name.contains(['*', '?']);
        let wanted = |symbol: &str| if pattern { like(name, symbol) } else { name == symbol };
        let found = ids.filter_map(|id| table.symbol(id)).filter(|symbol| wanted(symbol.name));
        let place = |start: u64| {
            let extent = table.extent(start)?;
            Some(Place { process: None, start: extent.start, end: extent.end })
        };
        let mut places: Vec<Place> = found.filter_map(|symbol| place(symbol.start)).collect();
        places.dedup();
        if places.is_empty() { Err("the kernel has no such function".to_owned()) } else { Ok(places) }
    }

    fn dso(&self, name: &str) -> Result<Vec<Place>, String> {
        let tids = match self.target {
            Target::Tasks { tids, .. } => tids,
            Target::Cpus(_) => return Err("mappings are a process's own: name processes with -p".to_owned()),
            Target::Command { .. } => {
                return Err("the command has mapped nothing yet: record it with -p once it runs".to_owned());
            }
        };
        let pids = procfs::processes_of(tids);
        let places: Vec<Place> = pids.into_iter().flat_map(|pid| mapped(pid, name.as_bytes())).collect();
        if places.is_empty() { Err("none of the processes has mapped its code".to_owned()) } else { Ok(places) }
    }
}

/// The code of a file in a process, by its path or the last part of it.
fn mapped(pid: u32, name: &[u8]) -> Vec<Place> {
    let mappings = procfs::process(Path::new("/proc"), pid).map(|process| process.mappings).unwrap_or_default();
    let wanted = |path: &[u8]| {
        let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
        path == name || path.rsplit(|byte| *byte == b'/').next() == Some(name)
    };
    let code = mappings.into_iter().filter(|mapping| mapping.prot & PROT_EXEC != 0 && wanted(&mapping.path));
    code.map(|mapping| Place { process: Some(pid), start: mapping.start, end: mapping.end }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_functions_are_found_by_name_and_by_pattern() {
        let table = KernelTable::running().unwrap();
        let names = Names { target: &Target::Cpus(vec![0]) };
        if table.hidden() {
            assert!(names.symbol("schedule").unwrap_err().contains("kptr_restrict"));
            return;
        }
        let listing = std::fs::read_to_string("/proc/kallsyms").unwrap();
        let line = listing.lines().find(|line| line.ends_with(" T schedule")).unwrap();
        let start = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
        let found = names.symbol("schedule").unwrap();
        assert_eq!((found.len(), found[0].process, found[0].start), (1, None, start));
        assert!(found[0].end > start);
        let more = names.symbol("schedule*").unwrap();
        assert!(more.len() > 1 && more.contains(&found[0]), "{more:?}");
        assert_eq!(names.symbol("no_such_*").unwrap_err(), "the kernel has no such function");
    }

    #[test]
    fn names_are_found_for_the_target() {
        let me = std::process::id();
        let tasks = Target::Tasks { tids: vec![me], cpus: vec![0], inherit: true };
        let exe = std::env::current_exe().unwrap();
        let names = Names { target: &tasks };
        let by_path = names.dso(exe.to_str().unwrap()).unwrap();
        let here = names_are_found_for_the_target as fn() as usize as u64;
        assert!(by_path.iter().any(|place| place.process == Some(me) && (place.start..place.end).contains(&here)));
        assert_eq!(names.dso(exe.file_name().unwrap().to_str().unwrap()).unwrap(), by_path);
        assert_eq!(names.dso("libnowhere.so").unwrap_err(), "none of the processes has mapped its code");
        let everywhere = Target::Cpus(vec![0]);
        assert!(Names { target: &everywhere }.dso("x").unwrap_err().contains("-p"));
        let command = Target::Command { pid: me, cpus: vec![0], inherit: true };
        assert!(Names { target: &command }.dso("x").unwrap_err().contains("nothing yet"));
    }
}
