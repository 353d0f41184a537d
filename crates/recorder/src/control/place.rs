//! Where control sockets stand: `/run/afterimage/PID.sock` for root, for others below `$XDG_RUNTIME_DIR`.

use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 16;

/// The folder of this user's sockets, which may not be there yet.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] for users other than root whose XDG_RUNTIME_DIR is not set.
pub fn folder() -> io::Result<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from("/run/afterimage"));
    }
    let base = std::env::var_os("XDG_RUNTIME_DIR").filter(|dir| Path::new(dir).is_absolute());
    let base = base.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "XDG_RUNTIME_DIR is not set"))?;
    Ok(Path::new(&base).join("afterimage"))
}

/// Makes the folder, for its owner alone. One that is there has to be ours.
fn make(folder: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(io::Error::new(error.kind(), format!("{}: {error}", folder.display())));
        }
        _ => (),
    }
    let there = fs::symlink_metadata(folder)?;
    if !there.is_dir() || there.uid() != rustix::process::geteuid().as_raw() {
        let text = format!("{} is not a folder of ours", folder.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    if there.mode() & 0o777 != 0o700 {
        fs::set_permissions(folder, Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// A socket that listens, and its name, which goes with it.
#[derive(Debug)]
pub(crate) struct Listening {
    pub(crate) fd: OwnedFd,
    path: PathBuf,
    identity: (u64, u64),
}

impl Listening {
    /// Listens as session `pid` in `folder`.
    ///
    /// It gets its name only when it listens: whoever finds one by that name and is refused knows that it is dead.
    pub(crate) fn begin(folder: &Path, pid: u32) -> io::Result<Listening> {
        make(folder)?;
        clean(folder);
        let (path, new) = (folder.join(format!("{pid}.sock")), folder.join(format!(".{pid}.new")));
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        // What has our number and our name is of a process that is gone.
        remove(&new)?;
        rustix::net::bind(&fd, &SocketAddrUnix::new(&new)?)?;
        let listening = (|| {
            fs::set_permissions(&new, Permissions::from_mode(0o600))?;
            rustix::net::listen(&fd, BACKLOG)?;
            let there = fs::symlink_metadata(&new)?;
            fs::rename(&new, &path)?;
            Ok((there.dev(), there.ino()))
        })();
        match listening {
            Ok(identity) => Ok(Listening { fd, path, identity }),
            Err(error) => {
                // The first error is the one to tell.
                let _ = remove(&new);
                Err(error)
            }
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let own = fs::symlink_metadata(&self.path).is_ok_and(|there| (there.dev(), there.ino()) == self.identity);
        if own {
            // A name that stays is dead, and removed by whoever sees it.
            let _ = remove(&self.path);
        }
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The sessions in `folder` by number, those that answer. Dead sockets are removed.
///
/// # Errors
/// When the folder cannot be read; one that is not there holds no session.
pub(crate) fn clean_and_list(folder: &Path) -> io::Result<Vec<(u32, PathBuf)>> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let session = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".sock")?.parse().ok());
        let Some(session) = session else { continue };
        if !fs::symlink_metadata(&path).is_ok_and(|there| there.file_type().is_socket()) {
            continue;
        }
        if is_dead(&path) {
            // Another may have seen it, too.
            let _ = remove(&path);
        } else {
            found.push((session, path));
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// Removes dead sockets.
fn clean(folder: &Path) {
    // What cannot be listed cannot be cleaned; the next one to look will say so.
    let _ = clean_and_list(folder);
}

/// Whether nobody listens any more. The socket's own queue being full is no reason to think so.
fn is_dead(path: &Path) -> bool {
    let connect = || -> rustix::io::Result<()> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        rustix::net::connect(&fd, &SocketAddrUnix::new(path)?)
    };
    connect() == Err(rustix::io::Errno::CONNREFUSED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_goes_with_its_owner_and_dead_ones_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("afterimage");
        assert_eq!(clean_and_list(&folder).unwrap(), []);
        let one = Listening::begin(&folder, 7).unwrap();
        assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);
        assert_eq!(fs::metadata(folder.join("7.sock")).unwrap().mode() & 0o777, 0o600);
        let two = Listening::begin(&folder, 12).unwrap();
        // Left behind by somebody who was killed.
        let dead = std::os::unix::net::UnixListener::bind(folder.join("9.sock")).unwrap();
        drop(dead);
        fs::write(folder.join("8.sock"), "no socket").unwrap();
        fs::write(folder.join("notes"), "").unwrap();
        let sessions: Vec<u32> = clean_and_list(&folder).unwrap().into_iter().map(|(session, _)| session).collect();
        assert_eq!(sessions, [7, 12]);
        assert!(!folder.join("9.sock").exists() && folder.join("8.sock").exists());
        drop(two);
        assert!(!folder.join("12.sock").exists());
        // The name has been taken over by another.
        let newer = Listening::begin(&folder, 7).unwrap();
        drop(one);
        assert!(folder.join("7.sock").exists());
        drop(newer);
        assert!(!folder.join("7.sock").exists());
    }

    #[test]
    fn a_folder_that_others_may_read_is_closed_and_a_link_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let open = dir.path().join("open");
        DirBuilder::new().mode(0o755).create(&open).unwrap();
        let listening = Listening::begin(&open, 1).unwrap();
        assert_eq!(fs::metadata(&open).unwrap().mode() & 0o777, 0o700);
        drop(listening);
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&open, &link).unwrap();
        assert_eq!(Listening::begin(&link, 1).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        let long = dir.path().join("x".repeat(120));
        assert!(Listening::begin(&long, 1).is_err());
    }
}
