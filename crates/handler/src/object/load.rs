//! Loading an object over the maps that the stubs share.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use libbpf_rs::{
    AsRawLibbpf, Link, MapCore, MapImpl, MapInfo, MapType, ObjectBuilder, OpenMap, OpenMapMut, OpenObject, ProgramType,
};

use super::{Limits, Object, text};
use crate::load::own;
use crate::{Error, ErrorKind, EventConfig, HandlerId, Result, Shared, libbpf_log};

/// A loaded object. Its maps, and the programs of it that are attached elsewhere, live as long as it does.
#[derive(Debug)]
pub struct LoadedObject {
    /// The handler's number, which its payloads carry.
    pub id: HandlerId,
    /// The name of the program.
    pub name: String,
    /// The kernel's tag of the program, as it prints it.
    pub tag: String,
    /// The object's types, as its section `.BTF` has them.
    pub btf: Vec<u8>,
    /// Whether the program can write to a handler ring.
    pub writes: bool,
    program: OwnedFd,
    maps: Vec<(String, OwnedFd)>,
    links: Vec<Link>,
}

impl LoadedObject {
    /// A descriptor of the program, for [`crate::Handlers::add`].
    ///
    /// # Errors
    /// When the process has no descriptors left.
    pub fn program(&self) -> Result<OwnedFd> {
        own(self.program.as_fd())
    }

    /// Its own maps by name, without those of the public header.
    pub fn maps(&self) -> impl Iterator<Item = (&str, BorrowedFd<'_>)> {
        self.maps.iter().map(|(name, fd)| (name.as_str(), fd.as_fd()))
    }

    /// One of its own maps.
    pub fn map(&self, name: &str) -> Option<BorrowedFd<'_>> {
        self.maps().find(|(known, _)| *known == name).map(|(_, fd)| fd)
    }

    /// How many programs of the object are attached elsewhere, as their sections say.
    pub fn attached(&self) -> usize {
        self.links.len()
    }
}

impl Object {
    /// Checks the object against the events and the running kernel, and loads it: maps of the stubs in place of its own of the
    /// same names, then those of `keep_maps`, which another object may have left, and new ones for the rest. Programs for
    /// probes and tracepoints are loaded and attached as their sections say; those in sections that begin with `?` are not.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] by our own checks, [`ErrorKind::Verifier`] by the kernel's, with the last lines of what it says;
    /// [`ErrorKind::Options`] for a map that cannot be kept.
    pub fn load(
        &self,
        shared: &Shared,
        events: &[EventConfig],
        id: HandlerId,
        keep_maps: &[(String, BorrowedFd<'_>)],
    ) -> Result<LoadedObject> {
        let limits = Limits::of(shared);
        self.check(events, &limits)?;
        let what = format!("loading {}", self.program.name);
        let failed = |e: &libbpf_rs::Error, log: Vec<String>| Error::libbpf(what.as_str(), e, log);
        let (open, log) = libbpf_log::capture(|| ObjectBuilder::default().name("handler")?.open_memory(&self.bytes));
        let mut open = open.map_err(|e| failed(&e, log))?;
        self.choose_programs(&mut open);
        self.set_maps(&mut open, shared, keep_maps)?;
        self.set_constants(&mut open, shared, id, &limits);
        let (loaded, log) = libbpf_log::capture(|| open.load());
        let loaded = loaded.map_err(|e| failed(&e, log).of_the_verifier())?;

        let own_maps = loaded.maps().filter(|map: &MapImpl<'_>| map.autocreate() && is_own(&text(map.name())));
        let maps = own_maps.map(|map| Ok((text(map.name()), own(map.as_fd())?))).collect::<Result<_>>()?;
        let mut links = Vec::new();
        let mut program = None;
        for loaded in loaded.progs_mut() {
            if loaded.name() == self.program.name.as_str() {
                program = Some(own(loaded.as_fd())?);
            } else if loaded.autoload() && attaches_itself(loaded.prog_type()) {
                let name = text(loaded.name());
                let (link, log) = libbpf_log::capture(|| loaded.attach());
                links.push(link.map_err(|e| Error::libbpf(format!("attaching {name}"), &e, log))?);
            }
        }
        let program = program.ok_or_else(|| Error::new(ErrorKind::Object, what.as_str(), "it was not loaded"))?;
        Ok(LoadedObject {
            id,
            name: self.program.name.clone(),
            tag: tag(program.as_fd()).unwrap_or_default(),
            btf: self.code.btf.clone(),
            writes: self.writes(),
            program,
            maps,
            links,
        })
    }

    /// The handler, programs that it may tail-call, and those of other sections; no other handler.
    fn choose_programs(&self, open: &mut OpenObject) {
        let called: Vec<&str> =
            self.code.in_maps.iter().filter_map(|&site| self.code.function(site)).map(|f| f.name.as_str()).collect();
        for mut program in open.progs_mut() {
            let name = text(program.name());
            let handler = text(program.section()).starts_with(super::SECTION);
            if handler {
                program.set_prog_type(ProgramType::PerfEvent);
            }
            let chosen = name == self.program.name || called.contains(&name.as_str());
            let elsewhere = !handler && program.autoload() && attaches_itself(program.prog_type());
            program.set_autoload(chosen || elsewhere);
        }
    }

    fn set_maps(&self, open: &mut OpenObject, shared: &Shared, keep_maps: &[(String, BorrowedFd<'_>)]) -> Result<()> {
        for (name, _) in keep_maps {
            if !self.maps.iter().any(|map| map.name == *name) {
                let have: Vec<&str> = self.maps.iter().map(|m| m.name.as_str()).filter(|name| is_own(name)).collect();
                let cause = format!("the object has no such map; it has {}", have.join(", "));
                return Err(Error::new(ErrorKind::Options, format!("keeping map {name}"), cause));
            }
        }
        for mut map in open.maps_mut() {
            let name = text(map.name());
            let kept = keep_maps.iter().find(|(kept, _)| *kept == name).map(|(_, fd)| *fd);
            let Some(fd) = shared.map(&name).or(kept) else { continue };
            reuse(&mut map, &name, fd, kept.is_some())?;
        }
        Ok(())
    }

    fn set_constants(&self, open: &mut OpenObject, shared: &Shared, id: HandlerId, limits: &Limits) {
        let cpus_and_id = [("ai_nr_cpus", u64::from(shared.nr_cpus)), ("ai_handler_id", u64::from(id.0))];
        let mut ours = self.ours(limits, &cpus_and_id);
        ours.extend(shared.labels.as_ref().and_then(|labels| self.label(&labels.name)));
        for mut map in open.maps_mut() {
            let name = text(map.name());
            let of_map = ours.iter().chain(&self.patches).filter(|patch| name.ends_with(&patch.section));
            for patch in of_map {
                let value = map.initial_value_mut();
                let place = value.and_then(|v| v.get_mut(patch.offset..patch.offset + patch.bytes.len()));
                if let Some(place) = place {
                    place.copy_from_slice(&patch.bytes);
                }
            }
        }
    }
}

/// Whether the section of a program of this type says what it is for: probes and tracepoints.
fn attaches_itself(kind: ProgramType) -> bool {
    use ProgramType as P;
    matches!(kind, P::Kprobe | P::Tracepoint | P::RawTracepoint | P::Tracing)
}

/// Whether a map is the object's own: not of the public header, and not made of its variables.
fn is_own(name: &str) -> bool {
    !name.starts_with("ai_") && !name.contains('.')
}

/// Takes a map that exists in place of the object's own, which must be of the same kind and shape.
fn reuse(map: &mut OpenMapMut<'_>, name: &str, fd: BorrowedFd<'_>, kept: bool) -> Result<()> {
    let what = format!("map {name}");
    let fits = MapInfo::new(fd).is_ok_and(|have| {
        // How many entries a shared map has depends on the machine.
        let entries = !kept || have.info.max_entries == map.max_entries();
        let shape = (have.map_type(), have.info.key_size, have.info.value_size);
        entries && shape == (map.map_type(), map.key_size(), map.value_size())
    });
    if !fits {
        let (kind, cause) = if kept {
            (ErrorKind::Options, "the map to keep is of another type, or has other keys, values or room")
        } else {
            (ErrorKind::Object, "it has another shape here: compile with the header of `afterimage handler header`")
        };
        return Err(Error::new(kind, what, cause));
    }
    map.reuse_fd(fd).map_err(|e| Error::libbpf(what, &e, Vec::new()))
}

/// The type of the maps that a map of maps holds.
pub(super) fn inner_type(map: &OpenMap<'_>) -> Option<MapType> {
    // SAFETY: the pointer is of the open object that `map` borrows, and nobody else uses it meanwhile; the result is
    // null, or a map that belongs to the same object.
    let kind = unsafe {
        let inner = libbpf_sys::bpf_map__inner_map(map.as_libbpf_object().as_ptr());
        (!inner.is_null()).then(|| libbpf_sys::bpf_map__type(inner))
    };
    kind.map(MapType::from)
}

/// The kernel's tag of a program: the digest of its instructions.
fn tag(program: BorrowedFd<'_>) -> Option<String> {
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut len = size_of_val(&info) as u32;
    // SAFETY: `info` has `len` bytes, lives through the call and holds no pointers, so that none are written through.
    let error =
        unsafe { libbpf_sys::bpf_obj_get_info_by_fd(program.as_raw_fd(), (&raw mut info).cast(), &raw mut len) };
    (error == 0).then(|| info.tag.iter().map(|byte| format!("{byte:02x}")).collect())
}
