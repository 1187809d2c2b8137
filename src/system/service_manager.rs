//! The service manager (systemd): its notifications, its watchdog, and the socket that it passes to
//! a server.
//!
//! Nothing happens if the process was started by something else.

use std::{io, net::TcpListener, time::Duration};

use listenfd::ListenFd;
use sd_notify::NotifyState;

/// Pings per watchdog timeout. One that is late by half of it is early enough.
const PINGS_PER_TIMEOUT: u32 = 2;

/// The longest status in bytes. systemd ignores notifications of more than 4 KiB.
const MAX_STATUS_BYTES: usize = 1024;

/// Why the passed sockets cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PassedSocketError {
    #[error(
        "the service manager passed {0} sockets, and one is needed: an empty ListenStream= removes the addresses before it"
    )]
    Several(usize),
    #[error("the socket of the service manager cannot be used: {0}")]
    Unusable(#[from] io::Error),
}

/// Returns whether the service manager expects notifications.
#[expect(
    clippy::disallowed_methods,
    reason = "set by the service manager, not by a user"
)]
pub fn is_present() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// Notifies that the server accepts requests, with its first status.
pub fn notify_ready(status: &str) {
    notify(&[NotifyState::Ready, NotifyState::Status(&one_line(status))]);
}

/// Notifies of a changed status.
pub fn notify_status(status: &str) {
    notify(&[NotifyState::Status(&one_line(status))]);
}

/// Notifies that the server shuts down.
pub fn notify_stopping() {
    notify(&[NotifyState::Stopping, NotifyState::Status("Shutting down.")]);
}

/// Resets the timeout of the watchdog.
pub fn ping_watchdog() {
    notify(&[NotifyState::Watchdog]);
}

/// Returns the interval of the pings, or `None` if the service manager has no watchdog.
pub fn watchdog_interval() -> Option<Duration> {
    sd_notify::watchdog_enabled().map(|timeout| timeout / PINGS_PER_TIMEOUT)
}

fn notify(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::warn!(%error, "cannot notify the service manager");
    }
}

/// Returns a text that fits into a notification: a line break would begin another assignment.
fn one_line(text: &str) -> String {
    let length = text.floor_char_boundary(MAX_STATUS_BYTES);
    text[..length].replace(char::is_control, " ")
}

/// Takes the listening TCP socket that the service manager passed, or `None` if it passed none.
///
/// Must be called once, before the process starts a thread: it changes the environment.
///
/// # Errors
/// Fails if there are several sockets, or the one is not a TCP socket.
pub fn take_listener() -> Result<Option<TcpListener>, PassedSocketError> {
    let mut passed = ListenFd::from_env();
    match passed.len() {
        0 => Ok(None),
        1 => {
            let listener = passed.take_tcp_listener(0)?;
            if let Some(listener) = &listener {
                listener.set_nonblocking(true)?;
            }
            Ok(listener)
        }
        count => Err(PassedSocketError::Several(count)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_is_one_short_line() {
        assert_eq!(one_line("502:\nMAINPID=1\r"), "502: MAINPID=1 ");
        let long = "é".repeat(MAX_STATUS_BYTES);
        assert_eq!(one_line(&format!("x{long}")).len(), MAX_STATUS_BYTES - 1);
    }
}
