//! Destinations of process output: a log of the newest events, or a capture of the head.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;

use super::memory_budget::MemoryReservation;
use crate::{
    api::process::{OutputStream, ProcessEvent},
    streams::{Bounds, Log},
};

/// The memory of an event in addition to its data.
const EVENT_OVERHEAD: usize = 160;
/// The number of retained events, far more than a program that writes lines produces.
const MAX_EVENTS: usize = 1 << 16;

/// The newest output of a process, for any number of readers.
pub(super) type OutputLog = Log<Arc<ProcessEvent>>;

/// The start of one output stream.
#[derive(Debug, Default)]
pub struct CapturedOutput {
    pub data: Bytes,
    /// Whether data after `data` was dropped.
    pub is_truncated: bool,
}

/// The captured output of both streams.
#[derive(Debug, Default)]
pub(super) struct CapturedStreams {
    pub(super) stdout: CapturedOutput,
    pub(super) stderr: CapturedOutput,
    /// The memory that both occupy.
    pub(super) memory: MemoryReservation,
}

/// The destination of a process's output. Clones share it.
#[derive(Debug, Clone)]
pub(super) enum OutputSink {
    /// Retains the newest output.
    Log(OutputLog),
    /// Retains the first `limit` bytes of each stream.
    Capture {
        limit: usize,
        capture: Arc<Mutex<HeadCapture>>,
    },
}

/// The retained head of both output streams.
#[derive(Debug, Default)]
pub(super) struct HeadCapture {
    stdout: Head,
    stderr: Head,
    memory: MemoryReservation,
}

#[derive(Debug, Default)]
struct Head {
    data: Vec<u8>,
    is_truncated: bool,
}

impl OutputSink {
    /// Returns a sink that retains the newest `bytes`, and the log to read them from.
    pub(super) fn log(bytes: usize) -> (Self, OutputLog) {
        let log = Log::new(Bounds {
            entries: MAX_EVENTS,
            weight: bytes,
        });
        (OutputSink::Log(log.clone()), log)
    }

    /// Returns a sink that retains up to `limit` bytes of each stream, as far as `memory` can
    /// grow.
    pub(super) fn capture(limit: usize, memory: MemoryReservation) -> Self {
        let capture = HeadCapture {
            memory,
            ..HeadCapture::default()
        };
        OutputSink::Capture {
            limit,
            capture: Arc::new(Mutex::new(capture)),
        }
    }

    /// Adds the content of `buffer`. A log takes over a full buffer without copying it.
    pub(super) fn write(&self, stream: OutputStream, buffer: &mut BytesMut) {
        match self {
            OutputSink::Log(log) => {
                let data = match buffer.len() == buffer.capacity() {
                    true => buffer.split().freeze(),
                    false => Bytes::copy_from_slice(buffer),
                };
                let weight = data.len() + EVENT_OVERHEAD;
                log.append(ProcessEvent::output(stream, data), weight);
            }
            OutputSink::Capture { limit, capture } => {
                capture.lock().write(stream, buffer, *limit);
            }
        }
    }

    /// Adds the exit as the last event of a log.
    pub(super) fn end(&self, exit_code: i32, is_output_open: bool) {
        if let OutputSink::Log(log) = self {
            log.close_with(
                ProcessEvent::exit(exit_code, is_output_open),
                EVENT_OVERHEAD,
            );
        }
    }

    /// Takes the captured data. It is empty for a log.
    pub(super) fn take_captured(&self) -> CapturedStreams {
        match self {
            OutputSink::Log(_) => CapturedStreams::default(),
            OutputSink::Capture { capture, .. } => std::mem::take(&mut *capture.lock()).into(),
        }
    }
}

impl HeadCapture {
    fn write(&mut self, stream: OutputStream, data: &[u8], limit: usize) {
        let head = match stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
        };
        // Once data was dropped, later data no longer belongs to the head.
        let room = match head.is_truncated {
            true => 0,
            false => self.memory.grow((limit - head.data.len()).min(data.len())),
        };
        head.data.extend_from_slice(&data[..room]);
        head.is_truncated |= room < data.len();
    }
}

impl From<HeadCapture> for CapturedStreams {
    fn from(capture: HeadCapture) -> Self {
        CapturedStreams {
            stdout: capture.stdout.into(),
            stderr: capture.stderr.into(),
            memory: capture.memory,
        }
    }
}

impl From<Head> for CapturedOutput {
    fn from(mut head: Head) -> Self {
        // The vector has grown by doubling, and a slow client may keep the data for long.
        head.data.shrink_to_fit();
        CapturedOutput {
            data: head.data.into(),
            is_truncated: head.is_truncated,
        }
    }
}
