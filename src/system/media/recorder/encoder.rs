//! The encoder: ffmpeg as a child, which gets frames by a pipe and writes the file.

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
    process::child::{Child, Stdout},
    sync::poll::poll_until,
    x11::screen::Size,
};

/// A frame is megabytes: with the usual 64 KiB each would take dozens of turns between us and the encoder. The most an ordinary user may have.
const PIPE_BYTES: i32 = 1 << 20;
/// An encoder that takes nothing for this long is given up.
const PATIENCE: Duration = Duration::from_secs(10);
/// Beyond these it takes more time in all without being needed.
const THREADS: &str = "2";
/// Between two frames that can be jumped to.
const KEY_FRAMES: &str = "expr:gte(t,n_forced*10)";
/// Far more than there are between two such frames.
const NO_OTHER_KEY_FRAMES: &str = "100000";
/// Pixels from which on decoders need a higher level.
const FULL_HD: u32 = 1920 * 1088;

pub struct Options<'a> {
    pub program: &'a Path,
    pub size: Size,
    /// Where there is to be sound.
    pub sound: Option<Sound<'a>>,
    pub output: PathBuf,
}

/// What is recorded from a sound server.
pub struct Sound<'a> {
    pub server: &'a str,
    /// When the time of the frames is nought.
    pub begun: DateTime<Utc>,
}

/// Starts one. Whoever drops the feed tells it that all has come.
///
/// # Errors
/// Where the program cannot be started.
pub async fn start(options: Options<'_>) -> io::Result<(Child, Feed)> {
    let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
    // Where it may not be larger, it stays as it is.
    let _ = fcntl(&write, FcntlArg::F_SETPIPE_SZ(PIPE_BYTES));
    fcntl(&write, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
    let mut command = Command::new(options.program);
    command.args(arguments(&options));
    let quiet = Arc::new(|_: &_| {});
    let stdin = Stdio::from(read);
    let (child, _) = Child::spawn_with_stdin("ffmpeg", command, stdin, Stdout::Log, quiet).await?;
    let feed = Feed {
        pipe: File::from(write),
        header: Some(matroska::header(options.size)),
    };
    Ok((child, feed))
}

fn arguments(options: &Options<'_>) -> Vec<OsString> {
    let level = match options.size.width * options.size.height {
        0..=FULL_HD => "4.2",
        _ => "5.2",
    };
    let before = options.sound.as_ref().map(time_before);
    let mut arguments: Vec<&str> = vec!["-nostdin", "-nostats", "-loglevel", "error", "-y"];
    // What comes says what it is: nothing is to be held back to find out.
    arguments.extend(["-probesize", "32", "-analyzeduration", "0"]);
    arguments.extend(["-fpsprobesize", "0", "-f", "matroska", "-i", "pipe:0"]);
    if let (Some(sound), Some(before)) = (&options.sound, &before) {
        // Sound comes with the time of day. Both keep their times, or each would begin at nought, and sound comes later than the picture.
        arguments.extend(["-copyts", "-itsoffset", before]);
        arguments.extend(["-thread_queue_size", "512", "-f", "pulse"]);
        arguments.extend(["-server", sound.server, "-i", "@DEFAULT_MONITOR@"]);
        arguments.extend(["-map", "0:v", "-map", "1:a"]);
        // Silent until it comes, where some is missing, and from where it ends; and it ends with the picture.
        arguments.extend(["-af", "aresample=async=1:first_pts=0,apad", "-shortest"]);
        arguments.extend(["-c:a", "aac", "-b:a", "96k"]);
    }
    arguments.extend(["-c:v", "libx264"]);
    arguments.extend(super::ENCODER);
    arguments.extend(["-threads", THREADS, "-level", level]);
    // Every frame at its own time.
    arguments.extend(["-fps_mode", "passthrough", "-enc_time_base", "1:1000"]);
    arguments.extend(["-g", NO_OTHER_KEY_FRAMES, "-force_key_frames", KEY_FRAMES]);
    arguments.extend(["-colorspace", "bt709", "-color_primaries", "bt709"]);
    arguments.extend(["-color_trc", "bt709", "-color_range", "tv"]);
    // Each frame is a whole part of the file once the next one comes.
    let flags = "+frag_every_frame+empty_moov+default_base_moof";
    arguments.extend(["-f", "mp4", "-movflags", flags, "-flush_packets", "1"]);
    let mut arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
    arguments.push(options.output.clone().into());
    arguments
}

/// In seconds: what is to be added to the time of day.
fn time_before(sound: &Sound<'_>) -> String {
    let begun = sound.begun.timestamp_micros();
    format!("-{}.{:06}", begun / 1_000_000, begun % 1_000_000)
}

/// The encoder's end of the pipe that is ours.
pub struct Feed {
    pipe: File,
    /// Until it is sent.
    header: Option<Vec<u8>>,
}

impl Feed {
    /// Hands over a frame; later ones must have later times. Blocks for as long as the encoder is busy.
    ///
    /// # Errors
    /// Where the encoder is gone, or takes nothing any more.
    pub fn send(&mut self, at: Duration, pixels: &[u8]) -> io::Result<()> {
        let mut head = self.header.take().unwrap_or_default();
        head.extend(matroska::frame_header(at, pixels.len()));
        let (mut first, mut second) = (&head[..], pixels);
        let mut deadline = Instant::now() + PATIENCE;
        while !(first.is_empty() && second.is_empty()) {
            let parts = [IoSlice::new(first), IoSlice::new(second)];
            match self.pipe.write_vectored(&parts) {
                Ok(written) => {
                    let of_first = written.min(first.len());
                    first = &first[of_first..];
                    second = &second[written - of_first..];
                    deadline = Instant::now() + PATIENCE;
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
