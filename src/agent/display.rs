//! The screen: an Xvfb of our own, reachable only with our cookie.

use std::{
    fs, io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    time::Duration,
};

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
        files::wait::DirectoryWatch,
        process::child::{Child, Listener, Stdout, describe_exit},
        x11::server::{self, DisplayAccess, X11Error},
    },
};

const START_DEADLINE: Duration = Duration::from_secs(20);
const END_GRACE: Duration = Duration::from_secs(2);
/// For a server to let somebody in, which takes it a millisecond.
const ADMIT_LIMIT: Duration = Duration::from_secs(5);
/// One at a time: where a server answers nobody, the thread that asks it stays, whoever has stopped waiting.
static ADMISSION: Semaphore = Semaphore::const_new(1);
const DEPTH: u32 = 24;
/// Where X servers have their sockets.
const SOCKETS: &str = "/tmp/.X11-unix";
/// The least frame buffer, which is the most a screen can grow to while it runs: 16 MB buy sizes up to this without a restart.
/// Room for every size that is allowed would be 42 MB more of every browser: the server touches all of it.
const ROOM: (u32, u32) = (2560, 1600);

#[derive(Debug, thiserror::Error)]
pub enum DisplayError {
    #[error("the X server could not be started: {0}")]
    Spawn(#[from] io::Error),
    #[error("the X server ended while starting ({status})")]
    Ended {
        status: String,
        /// The last it printed; for the log alone.
        tail: String,
    },
    #[error("the screen could not be set: {0}")]
    Mode(#[from] X11Error),
    #[error("the X server was not ready within {} s", START_DEADLINE.as_secs())]
    Deadline,
}

/// A running X server.
pub struct Display {
    child: Child,
    /// `:0`.
    name: String,
    authority: PathBuf,
    access: DisplayAccess,
    /// What it can be resized to without a restart.
    largest: (u32, u32),
}

impl Display {
    /// Starts a server with a frame buffer for `viewport`, and for more where `room` says so.
    ///
    /// It takes connections when this returns, and answers them a little later: who connects meanwhile need not wait for its start.
    pub async fn start(
        config: &Config,
        viewport: Viewport,
        room: bool,
        listener: Listener,
    ) -> Result<Self, DisplayError> {
        let largest = if room {
            (viewport.width.max(ROOM.0), viewport.height.max(ROOM.1))
        } else {
            (viewport.width, viewport.height)
        };
        let authority = config.state_dir.display_authority();
        let cookie = write_authority(&authority)?;
        remove_dead_locks(Path::new("/tmp"));
        let mut command = Command::new(&config.xvfb);
        command
            // The server picks a free number itself and says it: two that start at once cannot meet.
            .args(["-displayfd", "1"])
            .args(["-screen", "0"])
            .arg(format!("{}x{}x{DEPTH}", largest.0, largest.1))
            // Without the GL extension, which would load a whole software renderer that Chromium makes no use of.
            .args(["-extension", "GLX"])
            .args(["-nolisten", "tcp", "-noreset", "-auth"])
            .arg(&authority);
        let (mut child, stdout) = Child::spawn("xvfb", command, Stdout::Pipe, listener).await?;
        let stdout = stdout.ok_or_else(|| io::Error::from(io::ErrorKind::BrokenPipe))?;
        // It says its number when it is ready; its socket is there, and bears its process's number, much earlier.
        let (pid, mut said) = (child.pid(), tokio::spawn(read_number(stdout)));
        let number = tokio::select! {
            said = time::timeout(START_DEADLINE, &mut said) => match said {
                Ok(Ok(Ok(number))) => Ok(number),
                Ok(Ok(Err(error))) => Err(error.to_string()),
                Ok(Err(panic)) => Err(panic.to_string()),
                Err(_) => return Err(DisplayError::Deadline),
            },
            number = socket_of(pid) => Ok(number),
            status = child.wait() => Err(describe_exit(status)),
        };
        let number = number.map_err(|status| DisplayError::Ended {
            status,
            tail: child.tail(),
        })?;
        Ok(Self {
            child,
            name: format!(":{number}"),
            authority,
            access: DisplayAccess { number, cookie },
            largest,
        })
    }

    /// Whether [`Self::set_mode`] can give it this size.
    pub fn has_room_for(&self, viewport: Viewport) -> bool {
        viewport.width <= self.largest.0 && viewport.height <= self.largest.1
    }

    pub async fn set_mode(&self, viewport: Viewport) -> Result<(), DisplayError> {
        let access = self.access.clone();
        let set = tokio::task::spawn_blocking(move || server::set_mode(&access, viewport));
        match time::timeout(START_DEADLINE, set).await {
            Ok(Ok(set)) => set?,
            Ok(Err(panic)) => return Err(io::Error::other(panic).into()),
            Err(_) => return Err(DisplayError::Deadline),
        }
        Ok(())
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// What its clients need.
    pub fn access(&self) -> &DisplayAccess {
        &self.access
    }

    pub fn authority(&self) -> &Path {
        &self.authority
    }

    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    pub fn has_ended(&mut self) -> bool {
        self.child.has_ended()
    }

    /// Resolves with the reason when the server ends.
    pub async fn ended(&mut self) -> String {
        let status = self.child.wait().await;
        format!("the X server ended ({})", describe_exit(status))
    }

    pub async fn end(self) {
        let _ = self.child.terminate(END_GRACE).await;
    }
}

/// Lets a user's programs onto the screen of that name, whose authority file that user cannot read.
pub async fn admit(name: &str, authority: &Path, uid: u32) -> Result<(), X11Error> {
    let access = access(name, authority)?;
    let asked = async {
        let turn = ADMISSION.acquire().await.map_err(io::Error::other)?;
        let asking = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            server::admit_user(&access, uid)
        });
        asking.await.map_err(io::Error::other)?
    };
    match time::timeout(ADMIT_LIMIT, asked).await {
        Ok(answer) => answer,
        Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
    }
}

/// What a client of the screen of that name needs.
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

/// The number of the display whose socket the process listens on, as soon as there is one.
async fn socket_of(pid: u32) -> u32 {
    let looking = async {
        let mut watch = DirectoryWatch::new(Path::new(SOCKETS))?;
        loop {
            for number in display_numbers() {
                if listens_on(pid, number).await {
                    return Ok(number);
                }
            }
            watch.changed().await?;
        }
    };
    match looking.await {
        Ok(number) => number,
        // Where the folder cannot be watched, the server's own word is waited for.
        Err(error) => {
            let _: io::Error = error;
            std::future::pending().await
        }
    }
}

fn display_numbers() -> Vec<u32> {
    let entries = fs::read_dir(SOCKETS).into_iter().flatten().flatten();
    let number = |name: &str| name.strip_prefix('X')?.parse().ok();
    entries
        .filter_map(|entry| number(entry.file_name().to_str()?))
        .collect()
}

async fn listens_on(pid: u32, number: u32) -> bool {
    let socket = UnixStream::connect(format!("{SOCKETS}/X{number}")).await;
    socket
        .and_then(|socket| socket.peer_cred())
        .is_ok_and(|server| server.pid().and_then(|server| u32::try_from(server).ok()) == Some(pid))
}

/// The number on the first line; what may follow is read on, so that the server never waits for us.
async fn read_number(stdout: ChildStdout) -> io::Result<u32> {
    const LONGEST: u64 = 16;
    let mut reader = BufReader::new(stdout);
    let mut line = String::new();
    (&mut reader).take(LONGEST).read_line(&mut line).await?;
    let number = line.trim().parse().map_err(|_| {
        io::Error::other(format!("it told no display number but `{}`", line.trim()))
    })?;
    tokio::spawn(async move { tokio::io::copy(&mut reader, &mut tokio::io::sink()).await });
    Ok(number)
}

/// A fresh cookie for any display number: the file holds no other.
fn write_authority(path: &Path) -> io::Result<[u8; 16]> {
    use io::Write;
    const FAMILY_WILD: u16 = 0xffff;
    const NAME: &[u8] = b"MIT-MAGIC-COOKIE-1";
    let mut cookie = [0; 16];
    getrandom::fill(&mut cookie).map_err(io::Error::other)?;

    let mut entry = FAMILY_WILD.to_be_bytes().to_vec();
    // Address and display number are empty: they match all.
    for part in [&[][..], &[], NAME, &cookie] {
        entry.extend((part.len() as u16).to_be_bytes());
        entry.extend(part);
    }
    // Removed first: a file that was left open to others would stay so.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?
        .write_all(&entry)?;
    Ok(cookie)
}

/// The cookie that [`write_authority`] has written, which is the last of it.
fn read_authority(path: &Path) -> io::Result<[u8; 16]> {
    let entry = fs::read(path)?;
    let cookie = entry.last_chunk().copied();
    cookie.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

/// Removes lock files whose process is gone or is no X server any more. The server itself removes only those of the first kind, and
/// gives up on a number that was given to another process since.
fn remove_dead_locks(folder: &Path) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let is_lock = name.to_str().is_some_and(|name| {
            name.strip_prefix(".X")
                .and_then(|rest| rest.strip_suffix("-lock"))
                .is_some_and(|number| {
                    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
                })
        });
        if is_lock && !held_by_x_server(&entry.path()) {
            tracing::info!(lock = %entry.path().display(), "removed a stale X lock");
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn held_by_x_server(lock: &Path) -> bool {
    let Ok(content) = fs::read_to_string(lock) else {
        // Not ours to judge.
        return true;
    };
    let Ok(pid) = content.trim().parse::<u32>() else {
        // Being written at this moment, or torn by a crash; the server treats it well itself.
        return true;
    };
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with('X'))
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
    async fn a_server_that_answers_nobody_is_asked_once() {
        let folder = tempfile::TempDir::new().unwrap();
        let authority = folder.path().join("authority");
        write_authority(&authority).unwrap();
        if fs::create_dir(SOCKETS).is_ok() {
            fs::set_permissions(SOCKETS, fs::Permissions::from_mode(0o1777)).unwrap();
        }
        let own = std::process::id();
        // No real server has so high a number.
        let number = 1_000_000 + own;
        let (name, socket) = (format!(":{number}"), format!("{SOCKETS}/X{number}"));
        let _ = fs::remove_file(&socket);
        let server = UnixListener::bind(&socket).unwrap();

        let mut asking = Vec::new();
        let accept = async {
            loop {
                let (client, _) = server.accept().await.unwrap();
                // Whoever starts a screen meanwhile looks at every socket there is.
                if client.peer_cred().unwrap().pid() == i32::try_from(own).ok() {
                    asking.push(client);
                }
            }
        };
        let asked = [1, 2, 3].map(|uid| admit(&name, &authority, uid));
        let answers = tokio::select! {
            answers = join_all(asked) => answers,
            () = accept => Vec::new(),
        };
        fs::remove_file(&socket).unwrap();
        assert_eq!(answers.len(), 3);
        assert!(answers.iter().all(|a| a.as_ref().is_err_and(is_timeout)));
        assert!(asking.len() <= 1, "{}", asking.len());

        drop((server, asking));
        let next = admit(&name, &authority, 1).await.unwrap_err();
        assert!(!is_timeout(&next), "{next}");
    }
}
