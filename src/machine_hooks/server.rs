//! HTTP on a Unix socket and on a port of the machine, such as that of virtio-serial.

use std::{
    fs::{File, OpenOptions, Permissions},
    io,
    os::{
        fd::AsFd,
        unix::fs::{OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use axum::Router;
use nix::{
    fcntl::OFlag,
    poll::{PollFd, PollFlags, PollTimeout, poll},
};
use tokio::{
    io::join,
    net::{UnixListener, unix::pipe},
};

use crate::{http::serve_stream, shutdown::Shutdown, system::files::remove::remove_file_if_exists};

/// The interval at which a port is checked for an engine that has opened its other end. A port
/// reports that by no event that could be waited for from the start.
const PORT_INTERVAL: Duration = Duration::from_millis(50);
/// The delay after an error.
const ERROR_DELAY: Duration = Duration::from_secs(1);
/// Root only.
const SOCKET_MODE: u32 = 0o600;

/// Creates the socket, in place of one of an earlier process.
///
/// # Errors
/// Fails if the socket cannot be created.
pub(super) fn bind(path: &Path) -> io::Result<UnixListener> {
    remove_file_if_exists(path)?;
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, Permissions::from_mode(SOCKET_MODE))?;
    Ok(listener)
}

/// Removes the socket.
pub(super) fn remove(path: &Path) {
    if let Err(error) = remove_file_if_exists(path) {
        tracing::warn!("cannot remove {}: {error}", path.display());
    }
}

/// Serves the socket until shutdown.
pub(super) async fn serve_socket(listener: UnixListener, router: Router, shutdown: &Shutdown) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shutdown.requested() => return,
        };
        match accepted {
            Ok((stream, _)) => {
                let (router, stop) = (router.clone(), shutdown.clone());
                shutdown.spawn(async move { serve_stream(stream, router, &stop).await });
            }
            Err(error) => {
                tracing::warn!("cannot accept a connection: {error}");
                shutdown.sleep(ERROR_DELAY).await;
            }
        }
    }
}

/// Serves the port until shutdown, for one client of the engine after another.
pub(super) async fn serve_port(path: PathBuf, router: Router, shutdown: Shutdown) {
    if let Err(error) = serve_clients(&path, &router, &shutdown).await {
        tracing::error!("cannot serve {}: {error}", path.display());
    }
}

/// Does the same. The port stays open: what a client has sent would be lost otherwise.
async fn serve_clients(path: &Path, router: &Router, shutdown: &Shutdown) -> io::Result<()> {
    let port = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(OFlag::O_NONBLOCK.bits())
        .open(path)?;
    while shutdown.sleep(PORT_INTERVAL).await {
        if is_connected(&port)? {
            // The runtime remembers a hang-up of a descriptor, so each client gets new ones.
            let sender = pipe::Sender::from_file_unchecked(port.try_clone()?)?;
            let receiver = pipe::Receiver::from_file_unchecked(port.try_clone()?)?;
            serve_stream(join(receiver, sender), router.clone(), shutdown).await;
        }
    }
    Ok(())
}

/// Returns whether the engine has opened the other end of the port.
fn is_connected(port: &File) -> io::Result<bool> {
    let mut states = [PollFd::new(port.as_fd(), PollFlags::POLLOUT)];
    poll(&mut states, PollTimeout::ZERO)?;
    let hung_up = |state: &PollFd| {
        state
            .revents()
            .is_none_or(|now| now.contains(PollFlags::POLLHUP))
    };
    Ok(!states.iter().any(hung_up))
}
