//! What stands around the records of a recording: events, features, the private section.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use afterimage_handler::object::LoadedObject;
use afterimage_handler::{Builtin, HandlerId, Handlers};
use afterimage_kernel_text::capture::by_id::Program;
use afterimage_perf_data::features::{BpfBtf, BuildIdEntry, ClockData, GroupDesc, PmuMapping, RawFeature, bit};
use afterimage_perf_data::record::cpumode;
use afterimage_perf_data::{BuildId, EventDesc, Features, HandlerDesc, HandlerTypes};
use afterimage_perf_event::facts::Facts;
use afterimage_perf_event::open::Opened;
use afterimage_perf_event::spec::EventSpec;

use crate::host::Host;
use crate::pass::CountTarget;
use crate::session::Session;
use crate::{Destination, Handler, Plan};
use crate::{synth, tracing_data};

/// The first id that the kernel does not know: of the entries of count tables, in their event or in one of their own.
const MADE_UP_IDS: u64 = 1 << 62;

/// The events as the file lists them: sampling events, the second events of handlers, the sideband.
pub(crate) struct Described {
    pub(crate) events: Vec<EventDesc>,
    pub(crate) handlers: Vec<HandlerDesc>,
    /// Per sampling event, where the entries of its count table go.
    pub(crate) count_targets: Vec<Option<CountTarget>>,
    /// The first of the second events, which follow in the order of the stubs.
    pub(crate) first_output: usize,
    /// The event of time off CPU.
    pub(crate) off_cpu: Option<usize>,
}

/// Describes what a session has open.
pub(crate) fn describe(session: &Session, plan: &Plan) -> Described {
    let mut events = described(&session.sampling);
    let mut handlers = Vec::new();
    let mut count_targets = vec![None; events.len()];
    let outputs = session.outputs.as_ref().map(described).unwrap_or_default();
    let first_output = events.len();
    let first_second = first_output + outputs.len();
    events.extend(outputs);
    if let Some(loaded) = &session.handlers {
        let mut seconds = Vec::new();
        for (event, stub) in session.stubs.iter().enumerate() {
            let Some(stub) = stub else { continue };
            let made_up = MADE_UP_IDS + event as u64;
            let counting = plan.builtin() == Builtin::Count;
            // Beside samples of its own event an entry needs another one, and only what counts from the start has that.
            if plan.chain && counting {
                let file_event = first_second + seconds.len();
                seconds.push(second_event(&events[event], plan, made_up));
                count_targets[event] = Some(CountTarget { event, file_event, ids: on_all(session, made_up) });
            } else if !plan.chain && plan.destination != Destination::Pipe {
                // Samples of handlers before and after it may stand among the entries.
                events[event].ids.push(made_up);
                count_targets[event] = Some(CountTarget { event, file_event: event, ids: on_all(session, made_up) });
            }
            let places = Places {
                event,
                ring: session.outputs.as_ref().map(|_| first_output + stub),
                entries: count_targets[event].as_ref(),
                gate: session.gate.as_deref(),
            };
            let handler = plan.handler.clone().unwrap_or(Handler::Builtin(Builtin::None));
            handlers.push(places.describe(&handler, session.objects.first(), plan, loaded));
        }
        events.extend(seconds);
    }
    let first = session.sampling.specs.first();
    let off_cpu = session.off_cpu.as_ref().zip(first).map(|(waiting, first)| {
        let at = events.len();
        events.extend(waiting.events(&first.attr));
        at
    });
    let mut sideband = described(&session.sideband.opened);
    sideband.iter_mut().for_each(|event| event.name = "dummy:HG".to_owned());
    events.extend(sideband);
    Described { events, handlers, count_targets, first_output, off_cpu }
}

/// Where the handlers of one event leave their output in the file.
pub(crate) struct Places<'a> {
    pub(crate) event: usize,
    /// The event of its handler ring, where it has one.
    pub(crate) ring: Option<usize>,
    /// Where entries of its count table go, if there is such a place.
    pub(crate) entries: Option<&'a CountTarget>,
    /// The expression of the gate before them.
    pub(crate) gate: Option<&'a str>,
}

impl Places<'_> {
    /// The handler that has just been put in force on the event; with one from an object, what was loaded of it.
    pub(crate) fn describe(
        &self,
        handler: &Handler,
        object: Option<&LoadedObject>,
        plan: &Plan,
        loaded: &Handlers,
    ) -> HandlerDesc {
        let builtin = match handler {
            Handler::Builtin(builtin) => Some(*builtin),
            Handler::Object { .. } => None,
        };
        let entries = self.entries.filter(|_| builtin == Some(Builtin::Count));
        let output_event = match (builtin, entries) {
            (Some(Builtin::None), _) => None,
            (_, Some(entries)) => Some(entries.file_event).filter(|&file_event| file_event != self.event),
            _ => self.ring,
        };
        let among_samples = entries.filter(|entries| entries.file_event == self.event);
        let mut desc = HandlerDesc {
            event: self.event,
            name: handler.name().to_owned(),
            chain: plan.chain || !matches!(builtin, Some(Builtin::Emit | Builtin::Count)),
            output_event,
            mechanism: loaded.mechanism().name().to_owned(),
            id: builtin.map_or(0, |builtin| HandlerId::from(builtin).0),
            generation: loaded.generation(),
            entries_id: among_samples.and_then(|entries| Some(entries.ids.first()?.1)),
            gate: self.gate.map(str::to_owned),
            ..HandlerDesc::default()
        };
        if let (Handler::Object { path, object }, Some(of)) = (handler, object) {
            desc.id = of.id.0;
            desc.program = Some(of.name.clone());
            desc.object = Some(path.to_string_lossy().into_owned());
            desc.tag = Some(of.tag.clone());
            desc.set = object.settings().iter().map(|set| (set.name.clone(), set.value.clone())).collect();
        }
        desc
    }
}

/// The types of what a handler writes.
pub(crate) fn types(loaded: &LoadedObject) -> HandlerTypes {
    HandlerTypes { handler: loaded.id.0.into(), btf: loaded.btf.clone() }
}

fn described(opened: &Opened) -> Vec<EventDesc> {
    let ids = |spec: usize| opened.events.iter().filter(|e| e.spec == spec).map(|e| e.id).collect();
    let one = |(index, spec): (usize, &EventSpec)| EventDesc {
        attr: spec.attr.clone(),
        ids: ids(index),
        name: spec.name.clone(),
    };
    opened.specs.iter().enumerate().map(one).collect()
}

fn second_event(first: &EventDesc, plan: &Plan, id: u64) -> EventDesc {
    EventDesc { attr: first.attr.clone(), ids: vec![id], name: format!("{}/{}", first.name, plan.builtin()) }
}

fn on_all(session: &Session, id: u64) -> Vec<(u32, u64)> {
    session.cpus.iter().map(|cpu| (*cpu, id)).collect()
}

/// The features that are known before the first record.
pub(crate) fn features_before(plan: &Plan, specs: &[EventSpec], facts: &Facts) -> Features {
    let host = Host::read(facts);
    let formats = facts.tracefs().and_then(|tracefs| tracing_data::section(specs, tracefs));
    Features {
        hostname: Some(host.hostname),
        os_release: Some(host.release),
        version: Some(concat!("afterimage ", env!("CARGO_PKG_VERSION")).to_owned()),
        arch: Some(host.arch),
        nr_cpus: Some(host.cpus),
        cpu_desc: host.cpu_description,
        cpuid: host.cpuid,
        total_mem: host.memory_kb,
        cmdline: plan.command_line.clone(),
        pmu_mappings: facts.pmus().into_iter().map(|(name, kind)| PmuMapping { kind, name }).collect(),
        groups: groups(specs),
        clockid_res_ns: Some(1),
        clock_data: clocks(),
        extra: formats.map(|data| RawFeature { bit: bit::TRACING_DATA, data }).into_iter().collect(),
        ..Features::default()
    }
}

fn groups(specs: &[EventSpec]) -> Vec<GroupDesc> {
    let leads = |index: usize| specs[index].group == Some(index);
    let members = |leader: usize| specs.iter().filter(|spec| spec.group == Some(leader)).count();
    let group =
        |leader: usize| GroupDesc { name: String::new(), leader: leader as u32, members: members(leader) as u32 };
    (0..specs.len()).filter(|&index| leads(index)).map(group).collect()
}

fn clocks() -> Option<ClockData> {
    let mono = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
    let ns = |seconds: u64, nanos: u64| seconds.saturating_mul(1_000_000_000).saturating_add(nanos);
    Some(ClockData {
        clockid: rustix::time::ClockId::Monotonic as u32,
        wall_ns: ns(wall.as_secs(), wall.subsec_nanos().into()),
        clock_ns: ns(u64::try_from(mono.tv_sec).ok()?, u64::try_from(mono.tv_nsec).ok()?),
    })
}

/// Build IDs of the kernel and of every mapped file, in the order of their names.
pub(crate) fn build_ids(files: &HashMap<Vec<u8>, BuildId>) -> Vec<BuildIdEntry> {
    let kernel = synth::kernel::build_id().map(|build_id| BuildIdEntry {
        pid: -1,
        build_id,
        filename: "[kernel.kallsyms]".to_owned(),
        cpumode: cpumode::KERNEL,
    });
    let mut entries: Vec<BuildIdEntry> = files
        .iter()
        .map(|(name, id)| BuildIdEntry {
            pid: -1,
            build_id: *id,
            filename: String::from_utf8_lossy(name).into_owned(),
            cpumode: cpumode::USER,
        })
        .collect();
    entries.sort_by(|a, b| a.filename.cmp(&b.filename));
    kernel.into_iter().chain(entries).collect()
}

/// Programs that were loaded when the recording began, with their types.
pub(crate) fn programs(programs: &[Program]) -> (Vec<afterimage_perf_data::features::BpfProgInfo>, Vec<BpfBtf>) {
    let infos = programs.iter().map(synth::bpf::info).collect();
    let types = synth::bpf::type_information(programs);
    (infos, types.into_iter().map(|(id, data)| BpfBtf { id, data }).collect())
}
