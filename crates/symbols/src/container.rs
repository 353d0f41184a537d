//! What the path of a cgroup says of a container: who runs it, its id, its pod; or the unit of systemd.
//!
//! ```text
//! /docker/4f1e…                                                                     docker, cgroupfs
//! /system.slice/docker-4f1e….scope                                                  docker, systemd
//! /kubepods/burstable/pod2c48913c-…/4f1e…                                           kubernetes, cgroupfs
//! /kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod2c48….slice/cri-containerd-4f1e….scope
//! /machine.slice/libpod-4f1e….scope/container                                       podman
//! /system.slice/nginx.service                                                       a unit
//! ```
//! A path may lead through several, for containers run in containers and units within them: the innermost is meant.
#![forbid(unsafe_code)]

use std::borrow::Cow;
use std::fmt;

/// What a cgroup is of.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Container<'p> {
    /// Who runs it.
    pub runtime: Runtime,
    /// Its id, or its name: of docker and its like 64 hex digits, of lxc and nspawn the container's name, of a unit the unit's.
    /// Empty for a pod itself.
    pub id: Cow<'p, str>,
    /// The pod of kubernetes that it is part of, by its uid with hyphens; or of podman, by its id.
    pub pod: Option<Cow<'p, str>>,
}

impl Container<'_> {
    /// The same, which borrows nothing.
    pub fn into_owned(self) -> Container<'static> {
        let Container { runtime, id, pod } = self;
        Container { runtime, id: id.into_owned().into(), pod: pod.map(|pod| pod.into_owned().into()) }
    }
}

/// Who runs a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Runtime {
    /// Docker, and its kind.
    Docker,
    /// containerd, by the container runtime interface or by nerdctl.
    Containerd,
    /// CRI-O.
    Crio,
    /// Podman.
    Podman,
    /// A pod of kubernetes, whoever runs its containers.
    Kubernetes,
    /// LXC.
    Lxc,
    /// systemd-nspawn, and other machines of systemd.
    Machine,
    /// A unit of systemd: a service or a scope that is no container.
    Unit,
}

impl Runtime {
    /// A stable word for it.
    pub fn key(self) -> &'static str {
        match self {
            Runtime::Docker => "docker",
            Runtime::Containerd => "containerd",
            Runtime::Crio => "cri-o",
            Runtime::Podman => "podman",
            Runtime::Kubernetes => "kubernetes",
            Runtime::Lxc => "lxc",
            Runtime::Machine => "machine",
            Runtime::Unit => "unit",
        }
    }
}

/// Digits of an id that are shown, as docker shows them.
const SHOWN: usize = 12;

impl fmt::Display for Container<'_> {
    /// `docker:4f1e09c2ab37`, `containerd:4f1e09c2ab37 pod 2c48913c-…`, `nginx.service`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.runtime == Runtime::Unit {
            return f.write_str(&self.id);
        }
        f.write_str(self.runtime.key())?;
        let shown = if is_id(&self.id) { self.id.get(..SHOWN).unwrap_or(&self.id) } else { &self.id };
        if !shown.is_empty() {
            write!(f, ":{shown}")?;
        }
        match &self.pod {
            Some(pod) if is_id(pod) => write!(f, " pod {}", pod.get(..SHOWN).unwrap_or(pod)),
            Some(pod) => write!(f, " pod {pod}"),
            None => Ok(()),
        }
    }
}

/// What the path of a cgroup, from the root of its hierarchy, is of. `None` for the root, and where nothing is known by it.
pub fn of_cgroup(path: &str) -> Option<Container<'_>> {
    let mut pod: Option<Cow<'_, str>> = None;
    let mut found: Option<Container<'_>> = None;
    let mut unit = None;
    let mut before = "";
    // Where the two drivers are mixed up, one part is SLICE:PREFIX:ID.
    for part in path.split(['/', ':']).filter(|part| !part.is_empty() && *part != "..") {
        if let Some(of) = pod_of(part, before) {
            found = Some(Container { runtime: Runtime::Kubernetes, id: "".into(), pod: Some(of.clone()) });
            (pod, unit) = (Some(of), None);
        } else if let Some((runtime, id)) = container_of(part, before, pod.is_some()) {
            let pod = pod.take().filter(|_| !matches!(runtime, Runtime::Lxc | Runtime::Machine));
            found = Some(Container { runtime, id, pod });
            unit = None;
        } else if is_unit(part) {
            unit = Some(part);
        }
        before = part;
    }
    // A unit of a container's own is one of the container; one that runs containers is not what runs in them.
    let unit = unit.filter(|_| found.is_none());
    found.or(unit.map(|unit| Container { runtime: Runtime::Unit, id: unescaped(unit), pod: None }))
}

/// A pod, by the part of the path that is its own.
fn pod_of<'p>(part: &'p str, before: &str) -> Option<Cow<'p, str>> {
    // kubelet with systemd: kubepods-burstable-podUID.slice, hyphens of the uid as underscores, whatever stands before.
    if let Some(slice) = part.strip_suffix(".slice") {
        if let Some((front, uid)) = slice.rsplit_once("-pod") {
            if front.contains("kubepods") && is_uid(uid) {
                return Some(uid.replace('_', "-").into());
            }
        }
        // podman with systemd: machine-libpod_pod_ID.slice.
        let (_, id) = slice.split_once("libpod_pod_")?;
        return is_id(id).then_some(id.into());
    }
    // kubelet with cgroupfs: kubepods/podUID, kubepods/burstable/podUID.
    let uid = part.strip_prefix("pod").filter(|uid| is_uid(uid))?;
    let below = before.ends_with("kubepods") || matches!(before, "burstable" | "besteffort" | "guaranteed");
    below.then_some(uid.into())
}

/// A container, by the part of the path that is its own.
fn container_of<'p>(part: &'p str, before: &str, in_pod: bool) -> Option<(Runtime, Cow<'p, str>)> {
    // Scopes of systemd: PREFIX-ID.scope.
    let scope = part.strip_suffix(".scope").unwrap_or(part);
    if let Some((prefix, id)) = scope.rsplit_once('-').filter(|(_, id)| is_id(id)) {
        let runtime = match prefix {
            "docker" => Runtime::Docker,
            "cri-containerd" | "nerdctl" => Runtime::Containerd,
            "crio" => Runtime::Crio,
            "libpod" => Runtime::Podman,
            // What watches a container beside it: crio-conmon, libpod-conmon.
            _ => return None,
        };
        return Some((runtime, id.into()));
    }
    // cgroupfs: the id alone, below a folder that says whose it is. In a pod it does not say.
    if is_id(part) {
        let runtime = match before {
            "docker" | "actions_job" => Runtime::Docker,
            "libpod_parent" => Runtime::Podman,
            "default" | "k8s.io" | "moby" | "cri-containerd" => Runtime::Containerd,
            "crio" => Runtime::Crio,
            _ if in_pod => Runtime::Kubernetes,
            // ECS and others put them below folders of their own, by docker.
            _ => Runtime::Docker,
        };
        return Some((runtime, part.into()));
    }
    let named = |name: &'p str| (!name.is_empty()).then_some(Cow::Borrowed(name));
    match before {
        "lxc" | "lxc.payload" => return named(part).map(|name| (Runtime::Lxc, name)),
        _ => {}
    }
    if let Some(name) = part.strip_prefix("lxc.payload.").and_then(named) {
        return Some((Runtime::Lxc, name));
    }
    if before == "machine.slice" {
        let nspawn = part.strip_prefix("systemd-nspawn@").and_then(|rest| rest.strip_suffix(".service"));
        let machine = part.strip_prefix("machine-").and_then(|rest| rest.strip_suffix(".scope"));
        return nspawn.or(machine).filter(|name| !name.is_empty()).map(|name| (Runtime::Machine, unescaped(name)));
    }
    None
}

/// The id of a container: 64 hex digits.
fn is_id(text: &str) -> bool {
    let hex = |text: &str| text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    text.len() == 64 && hex(text)
}

/// The uid of a pod: hex digits with hyphens, or underscores; of a static pod 32 hex digits.
fn is_uid(text: &str) -> bool {
    let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
    let groups: Vec<&str> = text.split(['-', '_']).collect();
    let uuid = groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12]);
    (uuid || text.len() == 32) && groups.iter().all(|group| group.bytes().all(hex))
}

fn is_unit(part: &str) -> bool {
    [".service", ".scope", ".socket", ".mount", ".swap"]
        .iter()
        .any(|kind| part.ends_with(kind) && part.len() > kind.len())
}

/// systemd writes what a unit's name may not have as `\xHH` (systemd.unit(5)).
fn unescaped(name: &str) -> Cow<'_, str> {
    if !name.contains("\\x") {
        return name.into();
    }
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.strip_prefix(b"x").and_then(|hex| std::str::from_utf8(hex.get(..2)?).ok());
        let code = digits.filter(|_| *first == b'\\').and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match code.and_then(|code| Some((code, behind.get(3..)?))) {
            Some((code, behind)) => {
                bytes.push(code);
                rest = behind;
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ID: &str = "4f1e09c2ab37d1e6a86f4f5f9b6c0f6f0d0a6a5e0a8d6c1f3b2e4d5c6b7a8901";
    const UID: &str = "2c48913c-b29f-11e7-9350-020968147796";

    fn shown(path: &str) -> String {
        let path = path.replace("UUD", &UID.replace('-', "_")).replace("UID", UID).replace("ID", ID);
        of_cgroup(&path).map_or("none".to_owned(), |container| container.to_string())
    }

    #[test]
    fn paths_as_they_are_in_life() {
        let pod = format!("pod {UID}");
        let with_pod = |runtime: &str| format!("{runtime}:4f1e09c2ab37 {pod}");
        for (path, wanted) in [
            ("/", "none"),
            ("/docker/ID", "docker:4f1e09c2ab37"),
            ("/docker/ID/init", "docker:4f1e09c2ab37"),
            ("/system.slice/docker-ID.scope", "docker:4f1e09c2ab37"),
            ("/user.slice/user-1000.slice/user@1000.service/user.slice/docker-ID.scope", "docker:4f1e09c2ab37"),
            ("/ecs/task/ID", "docker:4f1e09c2ab37"),
            ("/default/ID", "containerd:4f1e09c2ab37"),
            ("/system.slice/nerdctl-ID.scope", "containerd:4f1e09c2ab37"),
            ("/machine.slice/libpod-ID.scope", "podman:4f1e09c2ab37"),
            ("/machine.slice/libpod-ID.scope/container", "podman:4f1e09c2ab37"),
            (
                "/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-ID.scope/container",
                "podman:4f1e09c2ab37",
            ),
            ("/libpod_parent/libpod-ID", "podman:4f1e09c2ab37"),
            ("/machine.slice/machine-libpod_pod_ID.slice/libpod-ID.scope", "podman:4f1e09c2ab37 pod 4f1e09c2ab37"),
            ("/lxc/web", "lxc:web"),
            ("/lxc.payload.web/system.slice/ssh.service", "lxc:web"),
            ("/lxc.payload/web", "lxc:web"),
            ("/machine.slice/systemd-nspawn@web.service/payload", "machine:web"),
            ("/machine.slice/machine-qemu\\x2d3\\x2dweb.scope", "machine:qemu-3-web"),
            ("/system.slice/nginx.service", "nginx.service"),
            ("/system.slice/system-getty.slice/getty@tty1.service", "getty@tty1.service"),
            ("/system.slice/dev-disk-by\\x2dlabel-swap.swap", "dev-disk-by-label-swap.swap"),
            ("/system.slice/ssh.service/workers", "ssh.service"),
            ("/user.slice/user-0.slice/session-3.scope", "session-3.scope"),
            ("/user.slice/user-1000.slice/user@1000.service/app.slice/app-firefox-7.scope", "app-firefox-7.scope"),
            ("/machine.slice/libpod-conmon-ID.scope", &format!("libpod-conmon-{ID}.scope")),
            ("/user.slice", "none"),
            ("/a/b", "none"),
        ] {
            assert_eq!(shown(path), wanted, "{path}");
        }
        for (path, wanted) in [
            ("/kubepods/burstable/podUID/ID", with_pod("kubernetes")),
            ("/kubepods/podUID/ID", with_pod("kubernetes")),
            ("/kubepods/besteffort/podUID", format!("kubernetes {pod}")),
            (
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUUD.slice/cri-containerd-ID.scope",
                with_pod("containerd"),
            ),
            ("/kubepods.slice/kubepods-podUUD.slice/crio-ID.scope", with_pod("cri-o")),
            (
                "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podUUD.slice/docker-ID.scope",
                with_pod("docker"),
            ),
            ("/kubepods.slice/kubepods-podUUD.slice", format!("kubernetes {pod}")),
            (
                "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podUUD.slice/cri-containerd-ID.scope",
                with_pod("containerd"),
            ),
            (
                "/system.slice/containerd.service/kubepods-burstable-podUUD.slice:cri-containerd:ID",
                with_pod("containerd"),
            ),
            ("/docker/ID/kubelet/kubepods/besteffort/podUID/ID", with_pod("kubernetes")),
            ("/../../kubepods/burstable/podUID/ID", with_pod("kubernetes")),
            (
                "/kubepods/burstable/pod9d5f2a7e51e8d0dd4c6a8c6f9b8f7a11/ID",
                "kubernetes:4f1e09c2ab37 pod 9d5f2a7e51e8d0dd4c6a8c6f9b8f7a11".to_owned(),
            ),
        ] {
            assert_eq!(shown(path), wanted, "{path}");
        }
    }

    proptest! {
        #[test]
        fn any_path_is_safe(parts in prop::collection::vec(prop::sample::select(vec![
            "docker", "kubepods", "burstable", "pod", "podUID", "ID", "docker-ID.scope", "..", "", "machine.slice",
            "machine-\\x2", "machine-\\xzz.scope", "lxc.payload.", "lxc", "-ID.scope", ".service", "x.service", "é-ID",
        ]), 0..8), more in ".{0,20}") {
            let path = parts.join("/").replace("ID", ID);
            crate::fuzzing::cgroup_names(path.as_bytes());
            crate::fuzzing::cgroup_names(format!("{path}/{more}").as_bytes());
        }
    }
}
