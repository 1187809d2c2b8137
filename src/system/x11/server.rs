//! Connects to the X server, sets its screen mode at run time (RandR) and admits users as clients.

use std::{fmt, io};

use x11rb::{
    connection::Connection,
    errors::{ConnectError, ConnectionError, ReplyError, ReplyOrIdError},
    protocol::{
        randr::{ConnectionExt as _, ModeInfo, Rotation, SetConfig},
        xproto::{ConnectionExt as _, Family, HostMode},
    },
    rust_connection::RustConnection,
};

use super::{socket::socket_path, stream::TimeoutStream};
use crate::api::viewport::Viewport;

/// Marks the names of modes created here; the server's own modes do not have it.
const MODE_MARK: char = '@';
const COOKIE_NAME: &str = "MIT-MAGIC-COOKIE-1";
/// The resolution that pages expect.
const DOTS_PER_INCH: f64 = 96.0;

/// The display number and cookie that a client needs to connect.
#[derive(Clone, PartialEq, Eq)]
pub struct DisplayAccess {
    pub number: u32,
    pub cookie: [u8; 16],
}

impl fmt::Debug for DisplayAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DisplayAccess(:{})", self.number)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum X11Error {
    #[error("cannot connect: {0}")]
    Io(#[from] io::Error),
    #[error("cannot connect: {0}")]
    Connect(#[from] ConnectError),
    #[error("connection lost: {0}")]
    Connection(#[from] ConnectionError),
    #[error("request rejected: {0}")]
    Reply(#[from] ReplyError),
    #[error("the server has no screen")]
    NoScreen,
    #[error("resource ids are exhausted")]
    NoIds,
    #[error("the server rejected the mode ({0:?})")]
    Mode(SetConfig),
}

impl From<ReplyOrIdError> for X11Error {
    fn from(error: ReplyOrIdError) -> Self {
        match error {
            ReplyOrIdError::ConnectionError(error) => Self::Connection(error),
            ReplyOrIdError::X11Error(error) => Self::Reply(ReplyError::X11Error(error)),
            ReplyOrIdError::IdsExhausted => Self::NoIds,
        }
    }
}

/// A connection that fails if the server does not respond.
pub(in crate::system) type XConnection = RustConnection<TimeoutStream>;

pub(in crate::system) fn connect(access: &DisplayAccess) -> Result<XConnection, X11Error> {
    let stream = TimeoutStream::connect(socket_path(access.number))?;
    let x = RustConnection::connect_to_stream_with_auth_info(
        stream,
        0,
        COOKIE_NAME.into(),
        access.cookie.to_vec(),
    )?;
    Ok(x)
}

/// Lets this local user's processes connect without a cookie. Blocks for some milliseconds.
pub fn admit_user(access: &DisplayAccess, uid: u32) -> Result<(), X11Error> {
    change_hosts(access, uid, HostMode::INSERT)
}

/// Stops accepting new connections of that user without a cookie. Existing connections stay open.
/// Blocks for some milliseconds.
pub(super) fn revoke_user(access: &DisplayAccess, uid: u32) -> Result<(), X11Error> {
    change_hosts(access, uid, HostMode::DELETE)
}

fn change_hosts(access: &DisplayAccess, uid: u32, mode: HostMode) -> Result<(), X11Error> {
    let x = connect(access)?;
    let user = format!("localuser\0#{uid}");
    x.change_hosts(mode, Family::SERVER_INTERPRETED, user.as_bytes())?
        .check()?;
    Ok(())
}

/// Sets the screen's size and refresh rate. The size must not exceed the one the server was started
/// with. Blocks for some milliseconds.
pub fn set_mode(access: &DisplayAccess, viewport: Viewport) -> Result<(), X11Error> {
    let x = connect(access)?;
    let root = x.setup().roots.first().ok_or(X11Error::NoScreen)?.root;
    let resources = x.randr_get_screen_resources(root)?.reply()?;
    let (Some(&crtc), Some(&output)) = (resources.crtcs.first(), resources.outputs.first()) else {
        return Err(X11Error::NoScreen);
    };
    let (width, height) = (viewport.width as u16, viewport.height as u16);

    // Hides the intermediate states from clients.
    x.grab_server()?;
    let name = format!("{}x{}{MODE_MARK}{}", width, height, viewport.refresh_rate);
    let known = created_modes(&resources.modes, &resources.names);
    let mode = match known.iter().find(|(_, known)| *known == name) {
        Some((mode, _)) => *mode,
        None => {
            let info = ModeInfo {
                width,
                height,
                // No blanking, so that the rate is exact.
                htotal: width,
                vtotal: height,
                dot_clock: viewport.width * viewport.height * viewport.refresh_rate,
                name_len: name.len() as u16,
                ..ModeInfo::default()
            };
            let mode = x
                .randr_create_mode(root, info, name.as_bytes())?
                .reply()?
                .mode;
            x.randr_add_output_mode(output, mode)?.check()?;
            mode
        }
    };
    let now = x11rb::CURRENT_TIME;
    let configured = resources.config_timestamp;
    x.randr_set_crtc_config(crtc, now, configured, 0, 0, 0, Rotation::ROTATE0, &[])?
        .reply()?;
    let millimetres = |pixels: u16| (f64::from(pixels) * 25.4 / DOTS_PER_INCH).round() as u32;
    x.randr_set_screen_size(root, width, height, millimetres(width), millimetres(height))?
        .check()?;
    let set = x
        .randr_set_crtc_config(
            crtc,
            now,
            configured,
            0,
            0,
            mode,
            Rotation::ROTATE0,
            &[output],
        )?
        .reply()?;
    if set.status != SetConfig::SUCCESS {
        return Err(X11Error::Mode(set.status));
    }
    // Otherwise the server would keep every mode that was ever set.
    for (old, _) in known.into_iter().filter(|(old, _)| *old != mode) {
        x.randr_delete_output_mode(output, old)?;
        x.randr_destroy_mode(old)?;
    }
    x.ungrab_server()?.check()?;
    Ok(())
}

/// Returns the modes created here. The server sends all names as one string, divided by lengths.
fn created_modes(modes: &[ModeInfo], mut names: &[u8]) -> Vec<(u32, String)> {
    let mut created = Vec::new();
    for mode in modes {
        let (name, rest) = names.split_at(names.len().min(usize::from(mode.name_len)));
        names = rest;
        let name = String::from_utf8_lossy(name);
        if name.contains(MODE_MARK) {
            created.push((mode.id, name.into_owned()));
        }
    }
    created
}
