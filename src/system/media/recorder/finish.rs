//! Rewrites a fragmented recording to a regular MP4 with its index at the start, for seeking.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::Path,
    sync::Arc,
    time::Duration,
};

use tokio::{process::Command, time};

use crate::system::process::{
    child::{Child, Stdout},
    environment::Inherited,
};

#[derive(Debug, thiserror::Error)]
pub enum FinishError {
    #[error("ffmpeg cannot be run: {0}")]
    Io(#[from] io::Error),
    #[error("ffmpeg failed: {0}")]
    Failed(String),
    #[error("the finished file is larger than {0} bytes")]
    TooLarge(u64),
    #[error("ffmpeg did not finish in time")]
    Timeout,
}

/// Copies the complete frames of `source`, a recording that has ended or was cut off, to the new
/// file `target` without encoding them again.
///
/// `source` is untrusted, as it may have been replaced: ffmpeg reads it as MP4 only and opens no
/// other file it refers to.
///
/// # Errors
/// If the disk is full or `source` has no complete frame. A partial `target` may remain.
pub async fn finish(
    program: &Path,
    source: &Path,
    target: &Path,
    timeout: Duration,
) -> Result<(), FinishError> {
    // A copy is about as large as its source; the index adds some.
    let source_size = tokio::fs::metadata(source).await?.len();
    let max_size = source_size
        .saturating_add(source_size / 2)
        .saturating_add(1 << 20);
    let mut command = Command::new(program);
    command
        .args(["-nostdin", "-nostats", "-loglevel", "error", "-y"])
        .args(["-protocol_whitelist", "file", "-f", "mov", "-i"])
        .arg(source)
        .args(["-map", "0", "-c", "copy"])
        // Each frame lasts until the next. The last one marks the end of the recording; ffmpeg
        // would give it the average duration.
        .args(["-bsf:v", "setts=duration=1"])
        .args(["-movflags", "+faststart", "-f", "mp4"])
        .args(["-fs", &max_size.to_string()])
        .arg(target);
    let quiet = Arc::new(|_: &_| {});
    let (mut child, _) =
        Child::spawn("ffmpeg", command, Inherited::Plain, Stdout::Log, quiet).await?;
    let Ok(status) = time::timeout(timeout, child.wait()).await else {
        let _ = child.kill().await;
        return Err(FinishError::Timeout);
    };
    if !status?.success() {
        return Err(FinishError::Failed(child.tail()));
    }
    // `-fs` truncates the output silently.
    if tokio::fs::metadata(target).await?.len() >= max_size {
        return Err(FinishError::TooLarge(max_size));
    }
    Ok(())
}

/// Reads the duration of a finished recording from its header. Blocks.
///
/// # Errors
/// If the file is not an MP4.
pub fn duration(path: &Path) -> io::Result<Duration> {
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    let movie = find_box(&mut file, *b"moov", 0..length)?;
    let header = find_box(&mut file, *b"mvhd", movie)?;
    file.seek(SeekFrom::Start(header.start))?;
    let mut bytes = [0; 32];
    file.read_exact(&mut bytes)?;
    let u32_at = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|i| bytes[at + i]));
    // Version, flags and two times come first. Version 1 has 64-bit times.
    let (scale, ticks) = match bytes[0] {
        0 => (u32_at(12), u64::from(u32_at(16))),
        _ => (
            u32_at(20),
            u64::from(u32_at(24)) << 32 | u64::from(u32_at(28)),
        ),
    };
    match u64::from(scale) {
        0 => Err(io::ErrorKind::InvalidData.into()),
        scale => Ok(Duration::from_millis(ticks.saturating_mul(1000) / scale)),
    }
}

/// Returns the position of the content of the first box with that name.
fn find_box(
    file: &mut File,
    name: [u8; 4],
    within: std::ops::Range<u64>,
) -> io::Result<std::ops::Range<u64>> {
    let mut at = within.start;
    while at < within.end {
        file.seek(SeekFrom::Start(at))?;
        let mut head = [0; 16];
        file.read_exact(&mut head[..8])?;
        let (mut content, mut length) = (
            8,
            u64::from(u32::from_be_bytes([0, 1, 2, 3].map(|i| head[i]))),
        );
        if length == 1 {
            file.read_exact(&mut head[8..])?;
            length = u64::from_be_bytes([8, 9, 10, 11, 12, 13, 14, 15].map(|i| head[i]));
            content = 16;
        }
        if length < content {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let end = at.saturating_add(length).min(within.end);
        if head[4..8] == name {
            return Ok(at + content..end);
        }
        at = end;
    }
    Err(io::ErrorKind::NotFound.into())
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn boxed(name: &[u8; 4], content: &[u8]) -> Vec<u8> {
        let length = (content.len() as u32 + 8).to_be_bytes();
        [&length[..], name, content].concat()
    }

    fn duration_of(content: &[u8]) -> io::Result<Duration> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content).unwrap();
        duration(file.path())
    }

    #[test]
    fn duration_is_read_from_both_header_versions() {
        let mut header = vec![0; 100];
        header[12..16].copy_from_slice(&1000_u32.to_be_bytes());
        header[16..20].copy_from_slice(&5_250_u32.to_be_bytes());
        let movie = boxed(
            b"moov",
            &[boxed(b"free", b"x"), boxed(b"mvhd", &header)].concat(),
        );
        let file = [boxed(b"ftyp", b"isom"), movie].concat();
        assert_eq!(duration_of(&file).unwrap(), Duration::from_millis(5_250));

        header[0] = 1;
        header[20..24].copy_from_slice(&16_000_u32.to_be_bytes());
        header[24..32].copy_from_slice(&(16_000_u64 * 5_000_000).to_be_bytes());
        let movie = boxed(b"moov", &boxed(b"mvhd", &header));
        assert_eq!(duration_of(&movie).unwrap(), Duration::from_secs(5_000_000));
    }

    #[test]
    fn duration_of_an_invalid_file_is_an_error() {
        let cases = [
            vec![],
            b"short".to_vec(),
            boxed(b"ftyp", b"isom"),
            boxed(b"moov", b""),
            boxed(b"moov", &boxed(b"mvhd", &[0; 4])),
            boxed(b"moov", &boxed(b"mvhd", &[0; 100])),
            vec![0; 64],
        ];
        for content in cases {
            assert!(duration_of(&content).is_err(), "{content:?}");
        }
    }

    #[expect(clippy::disallowed_methods, reason = "blocks a test thread")]
    fn ffmpeg(arguments: &[&str]) {
        let made = std::process::Command::new("ffmpeg")
            .args(["-nostdin", "-loglevel", "error", "-y"])
            .args(arguments)
            .output()
            .unwrap();
        assert!(made.status.success(), "{made:?}");
    }

    #[tokio::test]
    async fn finish_copies_a_video_and_rejects_files_that_refer_to_others() {
        const COLORS: [&str; 4] = ["-f", "lavfi", "-i", "testsrc=size=64x48:rate=10:duration=2"];
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let text = |name: &str| path(name).into_os_string().into_string().unwrap();
        let flags = "+frag_every_frame+empty_moov+default_base_moof";
        let film = text("film.mp4");
        ffmpeg(&[&COLORS[..], &["-movflags", flags, &film]].concat());
        // Files that refer to other files: a list, and a manifest with its segments.
        let list = "ffconcat version 1.0\nfile 'film.mp4'\n";
        std::fs::write(path("list"), list).unwrap();
        ffmpeg(&[&COLORS[..], &["-f", "dash", &text("manifest")]].concat());

        let program = Path::new("ffmpeg");
        let limit = Duration::from_secs(60);
        let draft = path("draft.mp4");
        finish(program, &path("film.mp4"), &draft, limit)
            .await
            .unwrap();
        assert_eq!(duration(&draft).unwrap().as_secs(), 1);
        for other in ["list", "manifest"] {
            let made = finish(program, &path(other), &draft, limit).await;
            assert!(matches!(made, Err(FinishError::Failed(_))), "{other}");
        }
        let none = finish(program, &path("none"), &draft, limit).await;
        assert!(matches!(none, Err(FinishError::Io(_))));
    }
}
