//! Kernels and tools from Debian's archive: which there are, and unpacking them without installing anything.

use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Stock kernels for virtual machines: small, and with everything that a guest needs.
const FLAVOUR: &str = "-cloud-amd64";

/// A kernel image that the archive has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    /// The package's name.
    pub(crate) package: String,
    /// What the kernel calls itself.
    pub(crate) release: String,
}

/// The kernels of a series such as `6.1`, newest first.
pub(crate) fn images(series: &str) -> Result<Vec<Image>> {
    Ok(choose(&said("apt-cache", &["pkgnames", &format!("linux-image-{series}.")])?, series))
}

/// Picks the kernels of a series from names of packages, newest first, each release once.
pub(crate) fn choose(names: &str, series: &str) -> Vec<Image> {
    let mut found: Vec<Image> = names.lines().filter_map(|name| image(name.trim(), series)).collect();
    // Of a release that is there signed and unsigned, the signed one comes first: it is what people run.
    found.sort_by_key(|image| (std::cmp::Reverse(numbers(&image.release)), image.package.len()));
    found.dedup_by(|b, a| a.release == b.release);
    found
}

fn image(name: &str, series: &str) -> Option<Image> {
    let rest = name.strip_prefix("linux-image-")?;
    let release = rest.strip_suffix("-unsigned").unwrap_or(rest);
    let abi = release.strip_suffix(FLAVOUR)?;
    let version = abi.strip_prefix(series)?.strip_prefix('.')?;
    version.starts_with(|c: char| c.is_ascii_digit()).then(|| Image { package: name.into(), release: release.into() })
}

/// The numbers in a version, in order: enough to compare two of one series.
fn numbers(version: &str) -> Vec<u64> {
    let digits = version.split(|c: char| !c.is_ascii_digit());
    digits.filter(|part| !part.is_empty()).map(|part| part.parse().unwrap_or(u64::MAX)).collect()
}

/// The packages that hold the headers of a kernel, for building modules.
pub(crate) fn headers(release: &str) -> Result<Vec<String>> {
    let first = format!("linux-headers-{release}");
    let mut packages = needed(&said("apt-cache", &["depends", &first])?);
    packages.push(first);
    Ok(packages)
}

/// The packages that headers depend on and that hold files for building.
fn needed(depends: &str) -> Vec<String> {
    let names = depends.lines().filter_map(|line| line.trim().strip_prefix("Depends: "));
    let wanted = |name: &&str| name.starts_with("linux-headers-") || name.starts_with("linux-kbuild-");
    names.filter(wanted).map(str::to_owned).collect()
}

/// Downloads packages and unpacks them into `folder`, which is there only when everything worked.
pub(crate) fn unpack(packages: &[String], folder: &Path) -> Result<()> {
    let unfinished = folder.with_extension(format!("part-{}", std::process::id()));
    let _ = fs::remove_dir_all(&unfinished);
    fs::create_dir_all(&unfinished)?;
    let result = unpack_into(packages, &unfinished).and_then(|()| {
        // Another process may have been quicker.
        let _ = fs::remove_dir_all(folder);
        Ok(fs::rename(&unfinished, folder)?)
    });
    let _ = fs::remove_dir_all(&unfinished);
    result.with_context(|| format!("getting {} from apt", packages.join(", ")))
}

fn unpack_into(packages: &[String], folder: &Path) -> Result<()> {
    let archives = folder.join("archives");
    fs::create_dir_all(&archives)?;
    let mut command = Command::new("apt-get");
    command.args(["download", "-qq"]).args(packages).current_dir(&archives).stdin(Stdio::null());
    let output = command.output().context("apt-get")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    let files: Vec<PathBuf> = fs::read_dir(&archives)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    ensure!(files.len() == packages.len(), "{} packages came instead of {}", files.len(), packages.len());
    for file in files {
        let status = Command::new("dpkg-deb").arg("-x").arg(&file).arg(folder).status().context("dpkg-deb")?;
        ensure!(status.success(), "dpkg-deb could not unpack {}", file.display());
    }
    Ok(fs::remove_dir_all(&archives)?)
}

/// Brings apt's lists up to date, as root only.
pub(crate) fn update() -> Result<()> {
    eprintln!("apt-get update");
    said("apt-get", &["update", "-qq"]).map(drop)
}

fn said(program: &str, words: &[&str]) -> Result<String> {
    let output = Command::new(program).args(words).stdin(Stdio::null()).output().context(program.to_owned())?;
    if !output.status.success() {
        bail!("{program} {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn releases(names: &str, series: &str) -> Vec<String> {
        choose(names, series).into_iter().map(|image| image.release).collect()
    }

    #[test]
    fn the_newest_of_a_series_comes_first() {
        let names =
            "linux-image-6.1.0-9-cloud-amd64\nlinux-image-6.1.0-54-cloud-amd64\nlinux-image-6.1.0-7-cloud-amd64\n";
        assert_eq!(releases(names, "6.1"), ["6.1.0-54-cloud-amd64", "6.1.0-9-cloud-amd64", "6.1.0-7-cloud-amd64"]);
        let names = "linux-image-6.12.9+deb12-cloud-amd64-unsigned\nlinux-image-6.12.117+deb12-cloud-amd64-unsigned\n";
        assert_eq!(choose(names, "6.12")[0].package, "linux-image-6.12.117+deb12-cloud-amd64-unsigned");
        assert_eq!(choose(names, "6.12")[0].release, "6.12.117+deb12-cloud-amd64");
    }

    #[test]
    fn other_series_flavours_and_parts_are_left_out() {
        let names = "linux-image-6.12.1+deb12-cloud-amd64\nlinux-image-6.1.0-5-cloud-amd64-dbg\n\
            linux-image-6.1.0-5-rt-amd64\nlinux-image-6.1-cloud-amd64\nlinux-image-cloud-amd64\n\
            linux-headers-6.1.0-5-cloud-amd64\nlinux-image-6.1.0-5-cloud-arm64\nlinux-image-6.1.x-cloud-amd64\n";
        assert_eq!(choose(names, "6.1"), []);
    }

    #[test]
    fn a_signed_kernel_goes_before_the_same_unsigned() {
        let names = "linux-image-6.1.0-5-cloud-amd64-unsigned\nlinux-image-6.1.0-5-cloud-amd64\n";
        let found = choose(names, "6.1");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].package, "linux-image-6.1.0-5-cloud-amd64");
    }

    #[test]
    fn headers_bring_what_building_takes() {
        let said = "linux-headers-6.12.1-cloud-amd64\n  Depends: linux-base\n  Depends: linux-headers-6.12.1-common\n \
            |Depends: linux-image-6.12.1-cloud-amd64\n  Depends: linux-kbuild-6.12.1\n  Depends: gcc-12\n";
        assert_eq!(needed(said), ["linux-headers-6.12.1-common", "linux-kbuild-6.12.1"]);
    }
}
