//! Films, as ffmpeg's own programs see them.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use serde_json::Value;
use tempfile::TempDir;

/// Of pictures and of sound.
pub fn stream_count(path: &Path) -> usize {
    let mut probe = Command::new("ffprobe");
    probe.args(["-v", "error", "-of", "csv", "-show_entries", "stream=index"]);
    let told = run(probe.arg(path)).stdout;
    told.split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .count()
}

/// How loud a film is on average, in decibels; full scale is 0, and silence -91.
pub fn loudness(path: &Path) -> f64 {
    let mut measure = Command::new("ffmpeg");
    measure
        .args(["-nostdin", "-v", "info", "-nostats", "-i"])
        .arg(path);
    measure.args(["-map", "0:a", "-af", "volumedetect", "-f", "null", "-"]);
    let output = measure.output().expect("ffmpeg is there");
    let said = String::from_utf8_lossy(&output.stderr);
    let mean = said
        .lines()
        .find_map(|line| line.split_once("mean_volume: "));
    let (_, mean) = mean.unwrap_or_else(|| panic!("no sound: {said}"));
    mean.trim_end_matches(" dB").parse().unwrap()
}

/// When a film is first heard, in seconds.
pub fn first_sound(path: &Path) -> f64 {
    let mut detect = Command::new("ffmpeg");
    detect
        .args(["-nostdin", "-v", "info", "-nostats", "-i"])
        .arg(path);
    detect.args(["-map", "0:a", "-af", "silencedetect=n=-40dB:d=0.1"]);
    let output = detect.args(["-f", "null", "-"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let end = said
        .lines()
        .find_map(|line| line.split_once("silence_end: "));
    let (_, end) = end.unwrap_or_else(|| panic!("no sound after silence: {said}"));
    end.split(' ').next().unwrap().parse().unwrap()
}

/// How many frames can be decoded of a film that ends anywhere.
pub fn frame_count(path: &Path) -> usize {
    let mut decode = Command::new("ffmpeg");
    decode.args(["-nostdin", "-v", "error", "-i"]).arg(path);
    decode.args(["-fps_mode", "passthrough", "-f", "framecrc", "-"]);
    let output = decode.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let told = String::from_utf8(output.stdout).unwrap();
    told.lines().filter(|line| !line.starts_with('#')).count()
}

/// How many parts of a film are there whole, each of which is a frame as it is recorded.
pub fn whole_parts(film: &[u8]) -> usize {
    let (mut count, mut rest) = (0, film);
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

/// A film that was decoded from its beginning to its end without an error.
#[derive(Debug)]
pub struct Film {
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
    /// Of the whole on average, `0xRRGGBB`.
    pub color: u32,
}

fn run(command: &mut Command) -> Output {
    let output = command.output().expect("ffmpeg is there");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {said}");
    assert_eq!(said, "", "{command:?}");
    output
}

impl Film {
    /// As [`Film::of`], of a film that is not in a file.
    pub fn of_bytes(bytes: &[u8], x: u32, y: u32) -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("film.mp4");
        fs::write(&path, bytes).unwrap();
        Self::of(&path, x, y)
    }

    /// Looks at a part of it around a point; everything else may be anything.
    pub fn of(path: &Path, x: u32, y: u32) -> Self {
        let mut probe = Command::new("ffprobe");
        probe.args(["-v", "error", "-of", "json", "-select_streams", "v"]);
        probe.args(["-show_entries"]);
        probe.arg("format=duration:stream=width,height:packet=pts_time");
        let told: Value = serde_json::from_slice(&run(probe.arg(path)).stdout).unwrap();
        let seconds = |value: &Value| value.as_str().unwrap().parse::<f64>().unwrap();
        let times = told["packets"].as_array().unwrap().iter();
        let times: Vec<f64> = times.map(|packet| seconds(&packet["pts_time"])).collect();

        let mut decode = Command::new("ffmpeg");
        decode.args(["-nostdin", "-v", "error", "-i"]).arg(path);
        decode.args(["-map", "0:v"]);
        let part = format!("crop=8:8:{x}:{y},scale=1:1:flags=area");
        decode.args(["-vf", &part, "-fps_mode", "passthrough"]);
        decode.args(["-enc_time_base", "1:1000"]);
        decode.args(["-f", "rawvideo", "-pix_fmt", "rgb24", "-"]);
        let decoded = run(&mut decode).stdout;
        let colors = decoded.as_chunks::<3>().0;
        assert_eq!(colors.len(), times.len(), "{told}");
        let frames = times.iter().zip(colors);
        Self {
            duration: seconds(&told["format"]["duration"]),
            width: told["streams"][0]["width"].as_u64().unwrap(),
            height: told["streams"][0]["height"].as_u64().unwrap(),
            frames: frames
                .map(|(&at, &[red, green, blue])| Frame {
                    at,
                    color: u32::from_be_bytes([0, red, green, blue]),
                })
                .collect(),
        }
    }

    /// When that colour is first seen; what an encoder makes of it may be a little off.
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
