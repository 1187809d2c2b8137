//! Wraps raw frames in a Matroska stream for the encoder.
//!
//! Matroska carries each frame's timestamp. An encoder that timestamps frames on arrival would be
//! inaccurate on a busy machine.

use std::time::Duration;

use crate::system::x11::screen::Size;

const EBML: &[u8] = &[0x1a, 0x45, 0xdf, 0xa3];
const SEGMENT: &[u8] = &[0x18, 0x53, 0x80, 0x67];
const INFO: &[u8] = &[0x15, 0x49, 0xa9, 0x66];
const TRACKS: &[u8] = &[0x16, 0x54, 0xae, 0x6b];
const CLUSTER: &[u8] = &[0x1f, 0x43, 0xb6, 0x75];
const SIMPLE_BLOCK: &[u8] = &[0xa3];
/// Marks an element of unknown length.
const UNKNOWN_LENGTH: u64 = (1 << 56) - 1;
const NANOSECONDS_PER_TICK: u64 = 1_000_000;
const TRACK: u64 = 1;
const VIDEO: u64 = 1;

/// Returns the start of a stream, for frames of that size.
pub(super) fn header(size: Size) -> Vec<u8> {
    let head = [
        number(&[0x42, 0x86], 1),
        number(&[0x42, 0xf7], 1),
        number(&[0x42, 0xf2], 4),
        number(&[0x42, 0xf3], 8),
        element(&[0x42, 0x82], b"matroska"),
        number(&[0x42, 0x87], 4),
        number(&[0x42, 0x85], 2),
    ];
    let info = [
        number(&[0x2a, 0xd7, 0xb1], NANOSECONDS_PER_TICK),
        element(&[0x4d, 0x80], b"berth"),
        element(&[0x57, 0x41], b"berth"),
    ];
    let video = [
        number(&[0xb0], size.width.into()),
        number(&[0xba], size.height.into()),
        element(&[0x2e, 0xb5, 0x24], b"I420"),
    ];
    let track = [
        number(&[0xd7], TRACK),
        number(&[0x73, 0xc5], TRACK),
        number(&[0x83], VIDEO),
        element(&[0x86], b"V_UNCOMPRESSED"),
        element(&[0xe0], &video.concat()),
    ];
    [
        element(EBML, &head.concat()),
        element_start(SEGMENT, UNKNOWN_LENGTH),
        element(INFO, &info.concat()),
        element(TRACKS, &element(&[0xae], &track.concat())),
    ]
    .concat()
}

/// Returns the header of a frame with that many bytes of pixels.
pub(super) fn frame_header(timestamp: Duration, bytes: usize) -> Vec<u8> {
    let time = number(&[0xe7], timestamp.as_millis() as u64);
    // The track, the time within the cluster, and the key frame flag.
    let block = [0x80 | TRACK as u8, 0, 0, 0x80];
    let block_start = element_start(SIMPLE_BLOCK, (block.len() + bytes) as u64);
    let inner = time.len() + block_start.len() + block.len() + bytes;
    [
        &element_start(CLUSTER, inner as u64)[..],
        &time,
        &block_start,
        &block,
    ]
    .concat()
}

fn number(id: &[u8], value: u64) -> Vec<u8> {
    element(id, &value.to_be_bytes())
}

fn element(id: &[u8], content: &[u8]) -> Vec<u8> {
    let mut element = element_start(id, content.len() as u64);
    element.extend_from_slice(content);
    element
}

/// Returns an element's id and its length in the longest (eight-byte) encoding.
fn element_start(id: &[u8], length: u64) -> Vec<u8> {
    let mut bytes = id.to_vec();
    bytes.extend(((1 << 56) | length).to_be_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_header_has_timestamp_and_length() {
        let header = frame_header(Duration::from_millis(0x1234), 3);
        let expected = [
            &[0x1f, 0x43, 0xb6, 0x75, 1, 0, 0, 0, 0, 0, 0, 33][..],
            &[0xe7, 1, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0x12, 0x34],
            &[0xa3, 1, 0, 0, 0, 0, 0, 0, 7, 0x81, 0, 0, 0x80],
        ]
        .concat();
        assert_eq!(header, expected);
        // The cluster's length includes the pixels.
        assert_eq!(header.len() - 12 + 3, 33);
    }
}
