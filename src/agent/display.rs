//! The screen: an Xvfb process of the agent, accessible only with its cookie.

use std::{
    fs, io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

use nix::unistd::{Gid, Uid};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, BufReader},
    net::UnixStream,
    process::{ChildStdout, Command},
    sync::Semaphore,
    time,
};

use crate::{
    agent::settings::Config,
    api::viewport::Viewport,
    system::{
        files::{remove::remove_file_if_exists, wait::DirectoryWatch},
        process::{
            child::{Child, Listener, PassedChild, Stdout, describe_exit},
            environment::Inherited,
        },
        x11::{
            server::{self, DisplayAccess, X11Error},
            socket::{self, DisplayNumber, PassedDisplayNumber, SOCKET_DIR},
        },
    },
};

/// The name of the server in the log.
const NAME: &str = "xvfb";
/// The longest time for a server to start, or to change its mode.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// The time between SIGTERM and SIGKILL.
const TERMINATE_GRACE_PERIOD: Duration = Duration::from_secs(2);
/// The longest time for a server to admit a user, which takes it about a millisecond. Shorter than
/// the 5 s of a single request, so that the next caller does not query a silent server as well.
const ADMIT_TIMEOUT: Duration = Duration::from_secs(4);
/// Limits admissions to one at a time: the blocking thread remains while a server does not answer,
/// even after its caller has timed out.
static ADMISSION_PERMIT: Semaphore = Semaphore::const_new(1);
/// The color depth in bits.
const DEPTH: u32 = 24;
/// The most clients of a server, unauthenticated ones included. More than a user could connect
/// before the socket is protected: until the server accepts, the kernel queues 129.
const MAX_CLIENTS: &str = "1024";
/// The smallest reserved frame buffer, to which a screen can grow without a restart. It takes 16
/// MB. A frame buffer for every permitted size would take 42 MB more of each browser, because the
/// server touches all of it.
const RESERVED_SIZE: (u32, u32) = (2560, 1600);

/// Why the X server is not usable.
#[derive(Debug, thiserror::Error)]
pub(super) enum DisplayError {
    #[error("cannot start the X server: {0}")]
    Spawn(#[from] io::Error),
    #[error("the X server ended while starting ({status})")]
    Ended {
        status: String,
        /// The last output, for the log only.
        tail: String,
    },
    #[error("cannot set the screen size: {0}")]
    Mode(#[from] X11Error),
    #[error("the X server was not ready within {} s", START_TIMEOUT.as_secs())]
    Timeout,
}

/// A running X server for the next program.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PassedDisplay {
    child: PassedChild,
    number: PassedDisplayNumber,
    max_size: (u32, u32),
}

impl PassedDisplay {
    pub(super) fn pid(&self) -> u32 {
        self.child.pid()
    }
}

/// A running X server.
pub(super) struct Display {
    child: Child,
    /// Held while the server runs.
    number: DisplayNumber,
    /// The display name, such as `:0`.
    name: String,
    authority: PathBuf,
    access: DisplayAccess,
    /// The size of the frame buffer: the largest screen without a restart.
    max_size: (u32, u32),
}

impl Display {
    /// Starts a server with a frame buffer for `viewport`, or a larger one if `reserve` is set. The
    /// agent's user and `group` can connect.
    ///
    /// The server accepts connections when this returns, and answers them a little later, so that
    /// clients can start at the same time.
    pub(super) async fn start(
        config: &Config,
        viewport: Viewport,
        reserve: bool,
        group: Gid,
        listener: Listener,
    ) -> Result<Self, DisplayError> {
        let max_size = if reserve {
            (
                viewport.width.max(RESERVED_SIZE.0),
                viewport.height.max(RESERVED_SIZE.1),
            )
        } else {
            (viewport.width, viewport.height)
        };
        let authority = config.session_dir.display_authority();
        let cookie = write_authority(&authority)?;
        let reserved = tokio::task::spawn_blocking(DisplayNumber::reserve).await;
        let reserved = reserved.map_err(io::Error::other)??;
        let number = reserved.get();
        let command = command(config, number, max_size, &authority);
        let (mut child, stdout) =
            Child::spawn(NAME, command, Inherited::Plain, Stdout::Pipe, listener).await?;
        let stdout = stdout.ok_or_else(|| io::Error::from(io::ErrorKind::BrokenPipe))?;
        // The server prints its number when it is ready. Its socket, which shows its process id,
        // exists much earlier.
        let (pid, mut printed) = (child.pid(), tokio::spawn(wait_for_number(stdout)));
        let listening = tokio::select! {
            printed = time::timeout(START_TIMEOUT, &mut printed) => match printed {
                Ok(Ok(Ok(()))) => Ok(()),
                Ok(Ok(Err(error))) => Err(error.to_string()),
                Ok(Err(panic)) => Err(panic.to_string()),
                Err(_) => return Err(DisplayError::Timeout),
            },
            () = listens(pid, number) => Ok(()),
            status = child.wait() => Err(describe_exit(status)),
        };
        listening.map_err(|status| DisplayError::Ended {
            status,
            tail: child.tail(),
        })?;
        socket::protect(
            number,
            Some(group).filter(|group| *group != Gid::effective()),
        )?;
        Ok(Self {
            child,
            number: reserved,
            name: format!(":{number}"),
            authority,
            access: DisplayAccess { number, cookie },
            max_size,
        })
    }

    /// Releases the server to the next program of the agent.
    ///
    /// # Errors
    /// Fails if something of it cannot be passed on. It is killed then.
    pub(super) async fn pass(self) -> io::Result<PassedDisplay> {
        let number = self.number.pass()?;
        Ok(PassedDisplay {
            child: self.child.pass().await?,
            number,
            max_size: self.max_size,
        })
    }

    /// Takes over the server of the program before. It is killed if that fails.
    ///
    /// # Errors
    /// Fails if it cannot be watched, or its cookie cannot be read.
    pub(super) fn adopt(
        config: &Config,
        passed: PassedDisplay,
        listener: &Listener,
    ) -> io::Result<Self> {
        let child = Child::adopt(NAME, passed.child, listener)?;
        let number = DisplayNumber::adopt(passed.number);
        let authority = config.session_dir.display_authority();
        let cookie = read_authority(&authority)?;
        Ok(Self {
            child,
            name: format!(":{}", number.get()),
            access: DisplayAccess {
                number: number.get(),
                cookie,
            },
            number,
            authority,
            max_size: passed.max_size,
        })
    }

    /// Whether [`Self::set_mode`] supports this size.
    pub(super) fn has_room_for(&self, viewport: Viewport) -> bool {
        viewport.width <= self.max_size.0 && viewport.height <= self.max_size.1
    }

    pub(super) async fn set_mode(&self, viewport: Viewport) -> Result<(), DisplayError> {
        let access = self.access.clone();
        let set = tokio::task::spawn_blocking(move || server::set_mode(&access, viewport));
        match time::timeout(START_TIMEOUT, set).await {
            Ok(Ok(set)) => set?,
            Ok(Err(panic)) => return Err(io::Error::other(panic).into()),
            Err(_) => return Err(DisplayError::Timeout),
        }
        Ok(())
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the credentials of its clients.
    pub(super) fn access(&self) -> &DisplayAccess {
        &self.access
    }

    pub(super) fn authority(&self) -> &Path {
        &self.authority
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.pid()
    }

    pub(super) fn has_ended(&mut self) -> bool {
        self.child.has_ended()
    }

    /// Waits until the server ends, and returns the reason.
    pub(super) async fn ended(&mut self) -> String {
        let status = self.child.wait().await;
        format!("the X server ended ({})", describe_exit(status))
    }

    pub(super) async fn terminate(self) {
        let _ = self.child.terminate(TERMINATE_GRACE_PERIOD).await;
    }
}

/// Returns the command line of a server.
fn command(config: &Config, number: u32, size: (u32, u32), authority: &Path) -> Command {
    let mut command = Command::new(&config.xvfb);
    command
        .arg(format!(":{number}"))
        // With this option the server neither reads nor creates lock files, which any user of the
        // machine may create.
        .args(["-displayfd", "1"])
        .args(["-screen", "0"])
        .arg(format!("{}x{}x{DEPTH}", size.0, size.1))
        // The GL extension would load a software renderer that Chromium does not use.
        .args(["-extension", "GLX"])
        // `local` is the abstract socket, which all users can connect to.
        .args(["-nolisten", "tcp", "-nolisten", "local"])
        .args(["-maxclients", MAX_CLIENTS, "-noreset", "-auth"])
        .arg(authority);
    command
}

/// Admits the programs of a user, who cannot read the authority file, to the display with that
/// name.
pub(super) async fn admit(name: &str, authority: &Path, uid: u32) -> Result<(), X11Error> {
    let access = access(name, authority)?;
    let admission = async {
        let permit = ADMISSION_PERMIT.acquire().await.map_err(io::Error::other)?;
        let admitted = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            server::admit_user(&access, uid)?;
            Ok(socket::permit(access.number, Uid::from_raw(uid))?)
        });
        admitted.await.map_err(io::Error::other)?
    };
    match time::timeout(ADMIT_TIMEOUT, admission).await {
        Ok(result) => result,
        Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
    }
}

/// Returns the credentials of a client of the display with that name.
fn access(name: &str, authority: &Path) -> io::Result<DisplayAccess> {
    Ok(DisplayAccess {
        number: number_of(name)?,
        cookie: read_authority(authority)?,
    })
}

fn number_of(name: &str) -> io::Result<u32> {
    let number = name.strip_prefix(':').and_then(|rest| rest.parse().ok());
    number.ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// Waits until the process listens on the socket of a display.
async fn listens(pid: u32, number: u32) {
    let search = async {
        let mut watch = DirectoryWatch::new(Path::new(SOCKET_DIR))?;
        while !listens_on(pid, number).await {
            watch.changed().await?;
        }
        io::Result::Ok(())
    };
    // If the directory cannot be watched, the caller waits until the server prints its number.
    if search.await.is_err() {
        std::future::pending().await
    }
}

async fn listens_on(pid: u32, number: u32) -> bool {
    let socket = UnixStream::connect(socket::socket_path(number)).await;
    socket
        .and_then(|socket| socket.peer_cred())
        .is_ok_and(|server| server.pid().and_then(|server| u32::try_from(server).ok()) == Some(pid))
}

/// Waits for the line with the display number. A task discards later output, so that the server
/// never blocks on its pipe.
async fn wait_for_number(stdout: ChildStdout) -> io::Result<()> {
    const MAX_LINE: u64 = 16;
    let mut reader = BufReader::new(stdout);
    let mut line = String::new();
    (&mut reader).take(MAX_LINE).read_line(&mut line).await?;
    if line.trim().parse::<u32>().is_err() {
        return Err(io::Error::other(format!(
            "it printed `{}`, which is no display number",
            line.trim()
        )));
    }
    tokio::spawn(async move { tokio::io::copy(&mut reader, &mut tokio::io::sink()).await });
    Ok(())
}

/// Writes an authority file with one new cookie, valid for any display number.
fn write_authority(path: &Path) -> io::Result<[u8; 16]> {
    use io::Write;
    const FAMILY_WILD: u16 = 0xffff;
    const NAME: &[u8] = b"MIT-MAGIC-COOKIE-1";
    let mut cookie = [0; 16];
    getrandom::fill(&mut cookie).map_err(io::Error::other)?;

    let mut entry = FAMILY_WILD.to_be_bytes().to_vec();
    // An empty address and display number match all.
    for part in [&[][..], &[], NAME, &cookie] {
        entry.extend((part.len() as u16).to_be_bytes());
        entry.extend(part);
    }
    // The file is removed first: an existing one would keep its permissions.
    remove_file_if_exists(path)?;
    fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?
        .write_all(&entry)?;
    Ok(cookie)
}

/// Reads the cookie written by [`write_authority`], which is at the end of the file.
pub(super) fn read_authority(path: &Path) -> io::Result<[u8; 16]> {
    let entry = fs::read(path)?;
    let cookie = entry.last_chunk().copied();
    cookie.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use futures::future::join_all;
    use tokio::net::UnixListener;

    use super::*;

    fn is_timeout(error: &X11Error) -> bool {
        matches!(error, X11Error::Io(error) if error.kind() == io::ErrorKind::TimedOut)
    }

    #[tokio::test]
    async fn unresponsive_server_is_queried_by_one_thread_at_a_time() {
        let directory = tempfile::TempDir::new().unwrap();
        let authority = directory.path().join("authority");
        write_authority(&authority).unwrap();
        if fs::create_dir(SOCKET_DIR).is_ok() {
            fs::set_permissions(SOCKET_DIR, fs::Permissions::from_mode(0o1777)).unwrap();
        }
        // No real server has such a high number.
        let number = 1_000_000 + std::process::id();
        let (name, socket) = (format!(":{number}"), socket::socket_path(number));
        let _ = fs::remove_file(&socket);
        let server = UnixListener::bind(&socket).unwrap();

        let mut clients = Vec::new();
        let accept = async {
            loop {
                let (client, _) = server.accept().await.unwrap();
                clients.push(client);
            }
        };
        let admissions = [1, 2, 3].map(|uid| admit(&name, &authority, uid));
        let answers = tokio::select! {
            answers = join_all(admissions) => answers,
            () = accept => Vec::new(),
        };
        fs::remove_file(&socket).unwrap();
        assert_eq!(answers.len(), 3);
        assert!(answers.iter().all(|a| a.as_ref().is_err_and(is_timeout)));
        assert!(clients.len() <= 1, "{}", clients.len());

        drop((server, clients));
        let next = admit(&name, &authority, 1).await.unwrap_err();
        assert!(!is_timeout(&next), "{next}");
    }
}
