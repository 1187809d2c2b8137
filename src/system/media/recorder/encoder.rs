//! The encoder: an ffmpeg child process that reads frames from a pipe and writes the file.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, IoSlice, Write},
    os::fd::AsFd,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use chrono::{DateTime, Utc};
use nix::{
    fcntl::{FcntlArg, OFlag, fcntl},
    poll::{PollFd, PollFlags},
    unistd::pipe2,
};
use tokio::process::Command;

use super::matroska;
use crate::system::{
    process::{
        child::{Child, Stdout},
        environment::Inherited,
    },
    sync::poll::poll_until,
    x11::screen::Size,
};

/// The capacity of the pipe: the most an unprivileged user may set. A frame has megabytes; with the
/// default of 64 KiB each would need dozens of context switches.
const PIPE_BYTES: i32 = 1 << 20;
/// The time the encoder may read nothing before it counts as failed.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
/// More threads use more CPU time in total and are not needed.
const THREADS: &str = "2";
/// Forces a key frame every 10 s.
const KEY_FRAMES: &str = "expr:gte(t,n_forced*10)";
/// A GOP size that never adds key frames.
const MAX_GOP_SIZE: &str = "100000";
/// The number of pixels above which the stream needs a higher H.264 level.
const FULL_HD: u32 = 1920 * 1088;

pub struct EncoderOptions<'a> {
    pub program: &'a Path,
    pub size: Size,
    pub audio: Option<AudioSource<'a>>,
    pub output: PathBuf,
}

/// A PulseAudio server to record from.
pub struct AudioSource<'a> {
    pub server: &'a str,
    /// The time of the frames' timestamp zero.
    pub started_at: DateTime<Utc>,
}

/// Starts the encoder. It finishes the file when the [`FrameSender`] is dropped.
///
/// # Errors
/// If the program cannot be started.
pub async fn start(options: EncoderOptions<'_>) -> io::Result<(Child, FrameSender)> {
    let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
    // Best effort: a smaller pipe only costs time.
    let _ = fcntl(&write, FcntlArg::F_SETPIPE_SZ(PIPE_BYTES));
    fcntl(&write, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    let mut command = Command::new(options.program);
    command.args(arguments(&options));
    let quiet = Arc::new(|_: &_| {});
    let stdin = Stdio::from(read);
    let (child, _) = Child::spawn_with_stdin(
        "ffmpeg",
        command,
        Inherited::Helper,
        stdin,
        Stdout::Log,
        quiet,
    )
    .await?;
    let sender = FrameSender {
        pipe: File::from(write),
        header: Some(matroska::header(options.size)),
    };
    Ok((child, sender))
}

fn arguments(options: &EncoderOptions<'_>) -> Vec<OsString> {
    let level = match options.size.width * options.size.height {
        0..=FULL_HD => "4.2",
        _ => "5.2",
    };
    let offset = options.audio.as_ref().map(audio_offset);
    let mut arguments: Vec<&str> = vec!["-nostdin", "-nostats", "-loglevel", "error", "-y"];
    // The stream is self-describing: no probing, which would delay frames.
    arguments.extend(["-probesize", "32", "-analyzeduration", "0"]);
    arguments.extend(["-fpsprobesize", "0", "-f", "matroska", "-i", "pipe:0"]);
    if let (Some(audio), Some(offset)) = (&options.audio, &offset) {
        // Audio is timestamped with the time of day. Both inputs keep their timestamps: otherwise
        // each would start at zero, although audio starts later than video.
        arguments.extend(["-copyts", "-itsoffset", offset]);
        arguments.extend(["-thread_queue_size", "512", "-f", "pulse"]);
        arguments.extend(["-server", audio.server, "-i", "@DEFAULT_MONITOR@"]);
        arguments.extend(["-map", "0:v", "-map", "1:a"]);
        // Fills gaps with silence, before, within and after the audio; it ends with the video.
        arguments.extend(["-af", "aresample=async=1:first_pts=0,apad", "-shortest"]);
        arguments.extend(["-c:a", "aac", "-b:a", "96k"]);
    }
    arguments.extend(["-c:v", "libx264"]);
    arguments.extend(super::ENCODER);
    arguments.extend(["-threads", THREADS, "-level", level]);
    // Keeps each frame's timestamp.
    arguments.extend(["-fps_mode", "passthrough", "-enc_time_base", "1:1000"]);
    arguments.extend(["-g", MAX_GOP_SIZE, "-force_key_frames", KEY_FRAMES]);
    arguments.extend(["-colorspace", "bt709", "-color_primaries", "bt709"]);
    arguments.extend(["-color_trc", "bt709", "-color_range", "tv"]);
    // Writes each frame as a complete fragment once the next one arrives.
    let flags = "+frag_every_frame+empty_moov+default_base_moof";
    arguments.extend(["-f", "mp4", "-movflags", flags, "-flush_packets", "1"]);
    let mut arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
    arguments.push(options.output.clone().into());
    arguments
}

/// Returns the offset, in seconds, from the time of day to the frames' timestamps.
fn audio_offset(audio: &AudioSource<'_>) -> String {
    let micros = audio.started_at.timestamp_micros();
    format!("-{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

/// The writing end of the encoder's pipe.
pub struct FrameSender {
    pipe: File,
    /// The stream's header, until it is sent with the first frame.
    header: Option<Vec<u8>>,
}

impl FrameSender {
    /// Sends a frame. Timestamps must increase. Blocks while the encoder is busy.
    ///
    /// # Errors
    /// If the encoder has exited, or has read nothing for [`WRITE_TIMEOUT`].
    pub fn send(&mut self, timestamp: Duration, pixels: &[u8]) -> io::Result<()> {
        let mut head = self.header.take().unwrap_or_default();
        head.extend(matroska::frame_header(timestamp, pixels.len()));
        let (mut first, mut second) = (&head[..], pixels);
        let mut deadline = Instant::now() + WRITE_TIMEOUT;
        while !(first.is_empty() && second.is_empty()) {
            let parts = [IoSlice::new(first), IoSlice::new(second)];
            match self.pipe.write_vectored(&parts) {
                Ok(written) => {
                    let from_first = written.min(first.len());
                    first = &first[from_first..];
                    second = &second[written - from_first..];
                    deadline = Instant::now() + WRITE_TIMEOUT;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let mut fds = [PollFd::new(self.pipe.as_fd(), PollFlags::POLLOUT)];
                    if !poll_until(&mut fds, Some(deadline))? {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
