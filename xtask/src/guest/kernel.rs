//! The kernels that guests boot: found in the archive or given as a file, with their modules.

use super::apt;
use anyhow::{Context, Result, anyhow, bail, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How many releases of a series are tried: apt may list some that can't be downloaded any more.
const TRIES: usize = 3;

/// A kernel that can be booted.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    /// What it is called in reports: its release, or the name of its file.
    pub(crate) name: String,
    pub(crate) image: PathBuf,
    /// Its modules, by name with underscores.
    modules: BTreeMap<String, PathBuf>,
    /// What modules are built with.
    for_modules: ForModules,
}

/// Where modules for a kernel can be built.
#[derive(Clone, Debug)]
enum ForModules {
    /// With headers from the archive, in this folder or to be put there.
    Headers(PathBuf),
    /// In the folder where a kernel of our own was built.
    Build(PathBuf),
    Nowhere,
}

/// The kernel of a series (`6.1`) from the archive, or the one in a file.
pub(crate) fn find(wanted: &str, folder: &Path) -> Result<Kernel> {
    let series = wanted.split_once('.').is_some_and(|(major, minor)| {
        [major, minor].iter().all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()))
    });
    if series { from_archive(wanted, folder) } else { from_file(Path::new(wanted)) }
}

fn from_archive(series: &str, folder: &Path) -> Result<Kernel> {
    let listed = apt::images(series).unwrap_or_default();
    let first = match newest(&listed, folder) {
        Ok(kernel) => return Ok(kernel),
        Err(error) => error,
    };
    // Lists that are out of date name files that are gone.
    let second = match apt::update().and_then(|()| newest(&apt::images(series)?, folder)) {
        Ok(kernel) => return Ok(kernel),
        Err(error) => error,
    };
    let Some(release) = cached(series, folder) else {
        bail!("no kernel {series}: {first:#}; after apt-get update: {second:#}");
    };
    eprintln!("note: apt gives no kernel {series} ({second:#}); {release} is at hand");
    unpacked(&folder.join(&release), &release)
}

/// The first one that is at hand or can be got.
fn newest(images: &[apt::Image], folder: &Path) -> Result<Kernel> {
    let mut last = anyhow!("apt lists none");
    for image in images.iter().take(TRIES) {
        let place = folder.join(&image.release);
        let got = if place.exists() { Ok(()) } else { apt::unpack(std::slice::from_ref(&image.package), &place) };
        match got.and_then(|()| unpacked(&place, &image.release)) {
            Ok(kernel) => return Ok(kernel),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// The newest release of a series that an earlier run unpacked.
fn cached(series: &str, folder: &Path) -> Option<String> {
    let entries = fs::read_dir(folder).ok()?.flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let lines: String = names.map(|name| format!("linux-image-{name}\n")).collect();
    apt::choose(&lines, series).into_iter().next().map(|image| image.release)
}

fn unpacked(folder: &Path, release: &str) -> Result<Kernel> {
    let image = folder.join("boot").join(format!("vmlinuz-{release}"));
    ensure!(image.exists(), "{} is not there", image.display());
    let modules = modules_in(&folder.join("lib/modules").join(release))?;
    Ok(Kernel {
        name: release.into(),
        image,
        modules,
        for_modules: ForModules::Headers(folder.with_file_name(format!("{release}.headers"))),
    })
}

/// A kernel in a file. Modules are taken from a folder `modules` beside it, or from where Debian puts them. Our own are
/// built in the folder `build` beside it, if that is where the kernel was built.
fn from_file(image: &Path) -> Result<Kernel> {
    ensure!(image.is_file(), "{}: neither a series such as 6.1 nor a file with a kernel", image.display());
    let name = image.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let release = name.strip_prefix("vmlinuz-").unwrap_or(&name);
    let beside = image.with_file_name("modules");
    let above = image.parent().and_then(Path::parent).map(|root| root.join("lib/modules").join(release));
    let mut places = std::iter::once(beside).chain(above);
    let modules = places.find(|place| place.is_dir()).map(|place| modules_in(&place)).transpose()?.unwrap_or_default();
    let build = image.with_file_name("build");
    let built = build.join("Makefile").is_file() && build.join(".config").is_file();
    let for_modules = if built { ForModules::Build(build) } else { ForModules::Nowhere };
    Ok(Kernel { name: release.to_owned(), image: image.to_owned(), modules, for_modules })
}

/// All modules below a folder, compressed or not.
fn modules_in(folder: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                folders.push(path);
            } else if let Some(name) = name.strip_suffix(".ko").or_else(|| name.strip_suffix(".ko.xz")) {
                found.insert(name.replace('-', "_"), path);
            }
        }
    }
    Ok(found)
}

impl Kernel {
    /// The named modules and all that they depend on, in an order in which they can be loaded. What the kernel has no
    /// module for it is taken to have built in.
    pub(crate) fn closure(&self, names: &[&str]) -> Result<Vec<(String, Vec<u8>)>> {
        let mut done = BTreeSet::new();
        let mut ordered = Vec::new();
        for name in names {
            self.add(name, &mut done, &mut ordered)?;
        }
        Ok(ordered)
    }

    fn add(&self, name: &str, done: &mut BTreeSet<String>, ordered: &mut Vec<(String, Vec<u8>)>) -> Result<()> {
        let Some(path) = self.modules.get(name) else { return Ok(()) };
        if done.insert(name.to_owned()) {
            let module = read_module(path)?;
            for other in dependencies(&module) {
                self.add(&other, done, ordered)?;
            }
            ordered.push((name.to_owned(), module));
        }
        Ok(())
    }

    /// The folder in which make builds modules for this kernel; none for a kernel that was given as a file, unless its
    /// build is beside it.
    pub(crate) fn tree(&self) -> Result<Option<PathBuf>> {
        let folder = match &self.for_modules {
            ForModules::Headers(folder) => folder,
            ForModules::Build(build) => return Ok(Some(build.canonicalize()?)),
            ForModules::Nowhere => return Ok(None),
        };
        if !folder.exists() {
            let get = || apt::unpack(&apt::headers(&self.name)?, folder);
            get().or_else(|_| apt::update().and_then(|()| get()))?;
        }
        let tree = folder.join("usr/src").join(format!("linux-headers-{}", self.name));
        point_at(folder, &tree.join("Makefile"))?;
        Ok(Some(tree))
    }

    /// Whether the kernel is one of our own, which has what the module kcore_qc adds.
    pub(crate) fn is_own(&self) -> bool {
        matches!(self.for_modules, ForModules::Build(_))
    }
}

/// Headers are meant to be unpacked at the root: their Makefile includes another one by its whole path.
fn point_at(headers: &Path, makefile: &Path) -> Result<()> {
    let text = fs::read_to_string(makefile).with_context(|| makefile.display().to_string())?;
    let inside = format!("include {}/usr/src/", headers.display());
    if !text.contains(&inside) {
        fs::write(makefile, text.replace("include /usr/src/", &inside))?;
    }
    Ok(())
}

fn read_module(path: &Path) -> Result<Vec<u8>> {
    if path.extension().is_none_or(|extension| extension != "xz") {
        return fs::read(path).with_context(|| path.display().to_string());
    }
    let output = Command::new("xz").arg("-dc").arg(path).output().context("xz")?;
    ensure!(output.status.success(), "xz: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(output.stdout)
}

/// The modules that a module needs, as its section `.modinfo` names them: texts `key=value`, each with NUL behind.
fn dependencies(module: &[u8]) -> Vec<String> {
    let line = module.split(|byte| *byte == 0).find_map(|text| text.strip_prefix(b"depends="));
    let names = String::from_utf8_lossy(line.unwrap_or_default()).into_owned();
    names.split(',').filter(|name| !name.is_empty()).map(|name| name.replace('-', "_")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules(folder: &Path, content: &[(&str, &str)]) -> Kernel {
        fs::create_dir_all(folder.join("kernel/drivers")).unwrap();
        for (name, depends) in content {
            let text = format!("\x7fELF\0license=GPL\0depends={depends}\0name={name}\0");
            fs::write(folder.join("kernel/drivers").join(format!("{name}.ko")), text).unwrap();
        }
        let modules = modules_in(folder).unwrap();
        Kernel { name: "test".into(), image: PathBuf::new(), modules, for_modules: ForModules::Nowhere }
    }

    #[test]
    fn modules_come_after_what_they_need() {
        let folder = tempfile::tempdir().unwrap();
        let content =
            [("virtio", ""), ("virtio_ring", "virtio"), ("virtio-pci", "virtio,virtio_ring"), ("blk", "virtio-pci")];
        let kernel = modules(folder.path(), &content);
        let names = |wanted: &[&str]| -> Vec<String> {
            kernel.closure(wanted).unwrap().into_iter().map(|(name, _)| name).collect()
        };
        assert_eq!(names(&["blk", "virtio"]), ["virtio", "virtio_ring", "virtio_pci", "blk"]);
        assert_eq!(names(&["built_in"]), [""; 0]);
    }

    #[test]
    fn neither_a_series_nor_a_file_is_refused() {
        for wanted in ["6", "6.", "6.x", "/no/such/kernel"] {
            let error = find(wanted, Path::new("/nowhere")).unwrap_err().to_string();
            assert!(error.contains("neither a series such as 6.1 nor a file"), "{wanted}: {error}");
        }
    }
}
