//! Videos, read with ffmpeg and ffprobe.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;
use tempfile::TempDir;

/// Returns the number of video and audio streams.
pub fn stream_count(path: &Path) -> usize {
    let mut probe = Command::new("ffprobe");
    probe.args(["-v", "error", "-of", "csv", "-show_entries", "stream=index"]);
    let output = run(probe.arg(path)).stdout;
    output
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .count()
}

/// Returns the mean volume in decibels; full scale is 0, silence is -91.
pub fn loudness(path: &Path) -> f64 {
    let mut measure = Command::new("ffmpeg");
    measure
        .args(["-nostdin", "-v", "info", "-nostats", "-i"])
        .arg(path);
    measure.args(["-map", "0:a", "-af", "volumedetect", "-f", "null", "-"]);
    let output = measure.output().expect("ffmpeg is there");
    let log = String::from_utf8_lossy(&output.stderr);
    let mean = log
        .lines()
        .find_map(|line| line.split_once("mean_volume: "));
    let (_, mean) = mean.unwrap_or_else(|| panic!("no sound: {log}"));
    mean.trim_end_matches(" dB").parse().unwrap()
}

/// Returns when the first sound starts, in seconds.
pub fn first_sound(path: &Path) -> f64 {
    let mut detect = Command::new("ffmpeg");
    detect
        .args(["-nostdin", "-v", "info", "-nostats", "-i"])
        .arg(path);
    detect.args(["-map", "0:a", "-af", "silencedetect=n=-40dB:d=0.1"]);
    let output = detect.args(["-f", "null", "-"]).output().unwrap();
    let log = String::from_utf8_lossy(&output.stderr);
    let end = log
        .lines()
        .find_map(|line| line.split_once("silence_end: "));
    let (_, end) = end.unwrap_or_else(|| panic!("no sound after silence: {log}"));
    end.split(' ').next().unwrap().parse().unwrap()
}

/// Returns the number of decodable frames of a video that may be truncated.
pub fn frame_count(path: &Path) -> usize {
    let mut decode = Command::new("ffmpeg");
    decode.args(["-nostdin", "-v", "error", "-i"]).arg(path);
    decode.args(["-fps_mode", "passthrough", "-f", "framecrc", "-"]);
    let output = decode.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let lines = String::from_utf8(output.stdout).unwrap();
    lines.lines().filter(|line| !line.starts_with('#')).count()
}

/// Returns the number of complete fragments; a recording has one per frame.
pub fn complete_fragments(video: &[u8]) -> usize {
    let (mut count, mut rest) = (0, video);
    while let Some((head, _)) = rest.split_first_chunk::<8>() {
        let length = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        let Some(after) = rest.get(length as usize..) else {
            break;
        };
        count += usize::from(&head[4..] == b"mdat");
        rest = after;
    }
    count
}

/// Returns the pixels of a part of each frame, in RGB.
pub fn part_of_frames(path: &Path, [x, y, width, height]: [u32; 4]) -> Vec<Vec<u8>> {
    let mut decode = Command::new("ffmpeg");
    decode.args(["-nostdin", "-v", "error", "-i"]).arg(path);
    let part = format!("crop={width}:{height}:{x}:{y}");
    decode.args(["-vf", &part, "-fps_mode", "passthrough"]);
    decode.args(["-enc_time_base", "1:1000"]);
    decode.args(["-f", "rawvideo", "-pix_fmt", "rgb24", "-"]);
    let decoded = run(&mut decode).stdout;
    let frames = decoded.chunks_exact((width * height * 3) as usize);
    frames.map(<[u8]>::to_vec).collect()
}

/// A video that was decoded completely and without an error.
#[derive(Debug)]
pub struct Video {
    /// In seconds.
    pub duration: f64,
    pub width: u64,
    pub height: u64,
    pub frames: Vec<Frame>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Frame {
    /// In seconds.
    pub at: f64,
    /// The average colour of the decoded part, `0xRRGGBB`.
    pub color: u32,
}

fn run(command: &mut Command) -> Output {
    let output = command.output().expect("ffmpeg is there");
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {log}");
    assert_eq!(log, "", "{command:?}");
    output
}

impl Video {
    /// Decodes a video like [`Video::of`] from memory.
    pub fn of_bytes(bytes: &[u8], x: u32, y: u32) -> Self {
        let directory = TempDir::new().unwrap();
        let path = directory.path().join("video.mp4");
        fs::write(&path, bytes).unwrap();
        Self::of(&path, x, y)
    }

    /// Decodes a part of 8×8 pixels of each frame.
    pub fn of(path: &Path, x: u32, y: u32) -> Self {
        let mut probe = Command::new("ffprobe");
        probe.args(["-v", "error", "-of", "json", "-select_streams", "v"]);
        probe.args(["-show_entries"]);
        probe.arg("format=duration:stream=width,height:packet=pts_time");
        let probed: Value = serde_json::from_slice(&run(probe.arg(path)).stdout).unwrap();
        let seconds = |value: &Value| value.as_str().unwrap().parse::<f64>().unwrap();
        let times = probed["packets"].as_array().unwrap().iter();
        let mut times: Vec<f64> = times.map(|packet| seconds(&packet["pts_time"])).collect();
        // Packets are in the order of decoding, pixels in that of presentation.
        times.sort_by(f64::total_cmp);

        let mut decode = Command::new("ffmpeg");
        decode.args(["-nostdin", "-v", "error", "-i"]).arg(path);
        decode.args(["-map", "0:v"]);
        let part = format!("crop=8:8:{x}:{y},scale=1:1:flags=area");
        decode.args(["-vf", &part, "-fps_mode", "passthrough"]);
        decode.args(["-enc_time_base", "1:1000"]);
        decode.args(["-f", "rawvideo", "-pix_fmt", "rgb24", "-"]);
        let decoded = run(&mut decode).stdout;
        let colors = decoded.as_chunks::<3>().0;
        assert_eq!(colors.len(), times.len(), "{probed}");
        let frames = times.iter().zip(colors);
        Self {
            duration: seconds(&probed["format"]["duration"]),
            width: probed["streams"][0]["width"].as_u64().unwrap(),
            height: probed["streams"][0]["height"].as_u64().unwrap(),
            frames: frames
                .map(|(&at, &[red, green, blue])| Frame {
                    at,
                    color: u32::from_be_bytes([0, red, green, blue]),
                })
                .collect(),
        }
    }

    /// Returns when the frame that is shown at a time starts and ends.
    pub fn frame_times(&self, time: f64) -> (f64, f64) {
        let next = self.frames.partition_point(|frame| frame.at <= time);
        let end = self.frames.get(next).map_or(self.duration, |next| next.at);
        (self.frames[next - 1].at, end)
    }

    /// Returns when the colour is first shown. Encoding may change it slightly.
    pub fn first(&self, color: u32) -> Option<f64> {
        let frame = self.frames.iter().find(|frame| frame.shows(color))?;
        Some(frame.at)
    }
}

impl Frame {
    pub fn shows(&self, color: u32) -> bool {
        let pairs = self
            .color
            .to_be_bytes()
            .into_iter()
            .zip(color.to_be_bytes());
        pairs.into_iter().all(|(a, b)| a.abs_diff(b) < 40)
    }
}
