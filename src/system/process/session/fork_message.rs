//! The messages between the agent and its fork server.
//!
//! ```text
//! request  length of the header, length of the strings (8 bytes, with the descriptors)
//!          header (JSON), strings of the program
//! reply    the pid of the new process, or the negative error number of a failed fork (4 bytes)
//! ```

use std::{
    io::{self, IoSlice, IoSliceMut, Read, Write},
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
        unix::net::UnixStream,
    },
};

use nix::{
    cmsg_space,
    errno::Errno,
    libc,
    sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg},
    unistd::Pid,
};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncReadExt, AsyncWriteExt, Interest};

use super::{
    exec_image::ProgramStrings,
    pre_exec::{Plan, Setup},
};
use crate::system::process::{MAX_PROGRAM_STRINGS, mount_namespace::MountNamespace};

/// The longest header. A user may have 65,536 groups.
const MAX_HEADER: u32 = 1 << 20;
/// The most descriptors of a request.
const MAX_DESCRIPTORS: usize = 6;

type Lengths = [u8; 2 * size_of::<u32>()];

/// A [`Setup`] without its strings and descriptors.
#[derive(Serialize, Deserialize)]
struct Header {
    args: usize,
    has_cgroup: bool,
    has_namespace: bool,
    plan: Plan,
}

impl Header {
    fn of(setup: &Setup) -> Self {
        Header {
            args: setup.strings.args,
            has_cgroup: setup.cgroup.is_some(),
            has_namespace: setup.namespace.is_some(),
            plan: setup.plan.clone(),
        }
    }

    /// Returns `None` if descriptors are missing.
    fn into_setup(self, bytes: Vec<u8>, descriptors: Vec<OwnedFd>) -> Option<Setup> {
        let mut descriptors = descriptors.into_iter();
        let stdio = [
            descriptors.next()?,
            descriptors.next()?,
            descriptors.next()?,
        ];
        let status = descriptors.next()?;
        let mut optional = |is_present: bool| match is_present {
            true => descriptors.next().map(Some),
            false => Some(None),
        };
        let cgroup = optional(self.has_cgroup)?;
        let namespace = optional(self.has_namespace)?;
        Some(Setup {
            strings: ProgramStrings {
                bytes,
                args: self.args,
            },
            stdio,
            status,
            cgroup,
            namespace: namespace.map(MountNamespace::from),
            plan: self.plan,
        })
    }
}

/// Returns both ends of a connection: that of the agent, and that of the server, which blocks.
pub(super) fn connection() -> io::Result<(tokio::net::UnixStream, UnixStream)> {
    let (agent, server) = tokio::net::UnixStream::pair()?;
    let server = server.into_std()?;
    server.set_nonblocking(false)?;
    Ok((agent, server))
}

/// Sends a request. The caller keeps the descriptors.
pub(super) async fn send_request(
    socket: &mut tokio::net::UnixStream,
    setup: &Setup,
) -> io::Result<()> {
    let header = serde_json::to_vec(&Header::of(setup))?;
    let strings = &setup.strings.bytes;
    let length = |bytes: &[u8]| u32::try_from(bytes.len()).map_err(|_| Errno::E2BIG);
    let lengths = [length(&header)?, length(strings)?].map(u32::to_ne_bytes);
    // In one piece, so that the server is woken once.
    let message = [lengths.as_flattened(), &header, strings].concat();
    let namespace = setup.namespace.as_ref().map(MountNamespace::descriptor);
    let descriptors: Vec<RawFd> = setup
        .stdio
        .iter()
        .chain([&setup.status])
        .chain(&setup.cgroup)
        .chain(namespace.as_deref())
        .map(AsRawFd::as_raw_fd)
        .collect();
    let send = || {
        let sent = sendmsg::<()>(
            socket.as_raw_fd(),
            &[IoSlice::new(&message)],
            &[ControlMessage::ScmRights(&descriptors)],
            MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT,
            None,
        );
        Ok(sent?)
    };
    let sent = socket.async_io(Interest::WRITABLE, send).await?;
    socket.write_all(&message[sent..]).await
}

/// Waits for a request. Returns `None` if the agent has closed its end.
pub(super) fn receive_request(mut socket: &UnixStream) -> io::Result<Option<Setup>> {
    let Some((lengths, descriptors)) = receive_lengths(socket)? else {
        return Ok(None);
    };
    let [header_length, strings_length] = lengths;
    if header_length > MAX_HEADER || u64::from(strings_length) > MAX_PROGRAM_STRINGS {
        return Err(Errno::EMSGSIZE.into());
    }
    let mut header = vec![0; header_length as usize];
    socket.read_exact(&mut header)?;
    let mut strings = vec![0; strings_length as usize];
    socket.read_exact(&mut strings)?;
    let header: Header = serde_json::from_slice(&header)?;
    let setup = header.into_setup(strings, descriptors);
    setup.map(Some).ok_or(Errno::EBADMSG.into())
}

fn receive_lengths(socket: &UnixStream) -> io::Result<Option<([u32; 2], Vec<OwnedFd>)>> {
    let mut lengths = Lengths::default();
    let mut control = cmsg_space!([libc::c_int; MAX_DESCRIPTORS]);
    let mut parts = [IoSliceMut::new(&mut lengths)];
    let message = loop {
        let flags = MsgFlags::MSG_CMSG_CLOEXEC | MsgFlags::MSG_WAITALL;
        match recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut control), flags) {
            Err(Errno::EINTR) => {}
            message => break message?,
        }
    };
    let (length, descriptors) = (message.bytes, message.cmsgs()?.flat_map(descriptors_of));
    let descriptors = descriptors.collect();
    match length {
        0 => Ok(None),
        length if length < lengths.len() => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => {
            let number = |at: usize| {
                let bytes = [0, 1, 2, 3].map(|byte| lengths[at + byte]);
                u32::from_ne_bytes(bytes)
            };
            Ok(Some(([number(0), number(4)], descriptors)))
        }
    }
}

#[expect(unsafe_code, reason = "takes ownership of received descriptors")]
fn descriptors_of(message: ControlMessageOwned) -> Vec<OwnedFd> {
    match message {
        ControlMessageOwned::ScmRights(received) => received
            .into_iter()
            // SAFETY: the kernel has just created these descriptors for this process.
            .map(|descriptor| unsafe { OwnedFd::from_raw_fd(descriptor) })
            .collect(),
        _ => Vec::new(),
    }
}

pub(super) fn send_reply(mut socket: &UnixStream, forked: nix::Result<Pid>) -> io::Result<()> {
    let reply = match forked {
        Ok(pid) => pid.as_raw(),
        Err(error) => -(error as i32),
    };
    socket.write_all(&reply.to_ne_bytes())
}

/// Waits for the reply. The outer error is one of the connection.
pub(super) async fn receive_reply(
    socket: &mut tokio::net::UnixStream,
) -> io::Result<nix::Result<Pid>> {
    let mut reply = [0; size_of::<i32>()];
    socket.read_exact(&mut reply).await?;
    Ok(match i32::from_ne_bytes(reply) {
        pid @ 1.. => Ok(Pid::from_raw(pid)),
        error => Err(Errno::from_raw(-error)),
    })
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use nix::unistd::{Gid, Uid};

    use super::*;
    use crate::system::process::session::Credentials;

    fn setup() -> Setup {
        let null = || OwnedFd::from(File::open("/dev/null").unwrap());
        let env = [("A".into(), "b c".into())];
        let args = ["echo".to_owned(), "é".to_owned()];
        Setup {
            strings: ProgramStrings::new("/tmp".into(), args, env).unwrap(),
            stdio: [null(), null(), null()],
            status: null(),
            cgroup: None,
            namespace: Some(MountNamespace::from(null())),
            plan: Plan {
                parent: 7,
                has_terminal: true,
                first_pipe: 1,
                credentials: Some(Credentials {
                    uid: Uid::from_raw(u32::MAX - 1),
                    gid: Gid::from_raw(2),
                    groups: vec![Gid::from_raw(3), Gid::from_raw(4)],
                }),
                can_gain_rights: false,
                falls_back_to_root: true,
                open_files: Some((1, u64::MAX)),
            },
        }
    }

    #[tokio::test]
    async fn request_arrives_as_it_was_sent() {
        let (mut agent, server) = connection().unwrap();
        let sent = setup();
        send_request(&mut agent, &sent).await.unwrap();
        let received = receive_request(&server).unwrap().unwrap();
        assert_eq!(received.strings, sent.strings);
        assert_eq!(received.plan, sent.plan);
        assert!(received.cgroup.is_none() && received.namespace.is_some());
        drop(agent);
        assert!(receive_request(&server).unwrap().is_none());
    }

    #[tokio::test]
    async fn request_may_be_longer_than_the_socket_takes_at_once() {
        let (mut agent, server) = connection().unwrap();
        let mut sent = setup();
        let env = [("LONG".into(), "x".repeat(4 << 20).into())];
        sent.strings = ProgramStrings::new("/".into(), ["true".to_owned()], env).unwrap();
        let receiver = tokio::task::spawn_blocking(move || receive_request(&server));
        send_request(&mut agent, &sent).await.unwrap();
        let received = receiver.await.unwrap().unwrap().unwrap();
        assert_eq!(received.strings, sent.strings);
    }

    #[test]
    fn incomplete_request_is_an_error() {
        let (mut agent, server) = UnixStream::pair().unwrap();
        // No descriptors: those of the standard streams are missing.
        let header = serde_json::to_vec(&Header::of(&setup())).unwrap();
        agent
            .write_all(&(header.len() as u32).to_ne_bytes())
            .unwrap();
        agent.write_all(&0_u32.to_ne_bytes()).unwrap();
        agent.write_all(&header).unwrap();
        let error = receive_request(&server).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::EBADMSG as i32));
        agent.write_all(&u32::MAX.to_ne_bytes()).unwrap();
        agent.write_all(&0_u32.to_ne_bytes()).unwrap();
        let error = receive_request(&server).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::EMSGSIZE as i32));
    }

    #[tokio::test]
    async fn reply_is_a_pid_or_an_error() {
        let (mut agent, server) = connection().unwrap();
        for forked in [Ok(Pid::this()), Err(Errno::EAGAIN)] {
            send_reply(&server, forked).unwrap();
            assert_eq!(receive_reply(&mut agent).await.unwrap(), forked);
        }
        drop(server);
        assert!(receive_reply(&mut agent).await.is_err());
    }
}
