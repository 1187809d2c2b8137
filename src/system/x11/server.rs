//! The X server: the size and rate of its screen, changed while it runs (RandR), and who may be its client.

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

use crate::api::viewport::Viewport;

use super::link::Bounded;

/// Of the modes we make; the server's own have none.
const MARK: char = '@';
const COOKIE_NAME: &str = "MIT-MAGIC-COOKIE-1";
/// Screens of this fineness are what pages expect.
const DOTS_PER_INCH: f64 = 96.0;

/// What a client of a server needs.
#[derive(Clone, PartialEq, Eq)]
pub struct Access {
    pub number: u32,
    pub cookie: [u8; 16],
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Access(:{})", self.number)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum X11Error {
    #[error("cannot connect: {0}")]
    Io(#[from] io::Error),
    #[error("cannot connect: {0}")]
    Connect(#[from] ConnectError),
    #[error("the connection broke: {0}")]
    Connection(#[from] ConnectionError),
    #[error("refused: {0}")]
    Reply(#[from] ReplyError),
    #[error("the server has no screen to resize")]
    NoScreen,
    #[error("the server has no more numbers for what is made on it")]
    NoIds,
    #[error("the server does not take the mode ({0:?})")]
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

/// A connection that gives up on a server which does not answer.
pub(in crate::system) type Link = RustConnection<Bounded>;

pub(in crate::system) fn connect(access: &Access) -> Result<Link, X11Error> {
    let stream = Bounded::connect(format!("/tmp/.X11-unix/X{}", access.number))?;
    let link = RustConnection::connect_to_stream_with_auth_info(
        stream,
        0,
        COOKIE_NAME.into(),
        access.cookie.to_vec(),
    )?;
    Ok(link)
}

/// Takes clients of this machine's user without a cookie from now on. Blocks for some milliseconds.
pub fn admit(access: &Access, uid: u32) -> Result<(), X11Error> {
    change_hosts(access, uid, HostMode::INSERT)
}

/// Takes no new clients of that user any more without a cookie; those that are there stay. Blocks for some milliseconds.
pub fn dismiss(access: &Access, uid: u32) -> Result<(), X11Error> {
    change_hosts(access, uid, HostMode::DELETE)
}

fn change_hosts(access: &Access, uid: u32, mode: HostMode) -> Result<(), X11Error> {
    let x = connect(access)?;
    let user = format!("localuser\0#{uid}");
    x.change_hosts(mode, Family::SERVER_INTERPRETED, user.as_bytes())?
        .check()?;
    Ok(())
}

/// Gives the screen this size and rate. It must not be larger than the one the server was started with. Blocks for some milliseconds.
pub fn set_mode(access: &Access, viewport: Viewport) -> Result<(), X11Error> {
    let x = connect(access)?;
    let root = x.setup().roots.first().ok_or(X11Error::NoScreen)?.root;
    let resources = x.randr_get_screen_resources(root)?.reply()?;
    let (Some(&crtc), Some(&output)) = (resources.crtcs.first(), resources.outputs.first()) else {
        return Err(X11Error::NoScreen);
    };
    let (width, height) = (viewport.width as u16, viewport.height as u16);

    // Clients are not to see the steps between.
    x.grab_server()?;
    let name = format!("{}x{}{MARK}{}", width, height, viewport.refresh_rate);
    let known = modes_of_ours(&resources.modes, &resources.names);
    let mode = match known.iter().find(|(_, known)| *known == name) {
        Some((mode, _)) => *mode,
        None => {
            let info = ModeInfo {
                width,
                height,
                // A screen without margins, so that the rate is exact.
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
    // Or else every size ever asked for would stay in the server's memory.
    for (old, _) in known.into_iter().filter(|(old, _)| *old != mode) {
        x.randr_delete_output_mode(output, old)?;
        x.randr_destroy_mode(old)?;
    }
    x.ungrab_server()?.check()?;
    Ok(())
}

/// The names of all modes are one string, cut by their lengths.
fn modes_of_ours(modes: &[ModeInfo], mut names: &[u8]) -> Vec<(u32, String)> {
    let mut ours = Vec::new();
    for mode in modes {
        let (name, rest) = names.split_at(names.len().min(usize::from(mode.name_len)));
        names = rest;
        let name = String::from_utf8_lossy(name);
        if name.contains(MARK) {
            ours.push((mode.id, name.into_owned()));
        }
    }
    ours
}
