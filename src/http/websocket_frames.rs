//! Finds WebSocket frame boundaries in a byte stream (RFC 6455, section 5.2) by its headers.
//!
//! A tunnel copies bytes and never decodes a payload, but it has to know when the stream is between
//! two frames: only there may it insert a Close frame with the reason why the connection ends.

#[cfg(test)]
mod fuzz;

use super::CloseReason;

/// Bytes of the longest header: two fixed, eight of length, four of mask.
const MAX_HEADER: usize = 14;

const FIN: u8 = 0x80;
const MASKED: u8 = 0x80;
const OPCODE: u8 = 0x0f;
const OPCODE_CLOSE: u8 = 0x8;

/// Tracks the frames in one direction of a WebSocket connection.
#[derive(Debug, Default)]
pub(super) struct FrameTracker {
    header: [u8; MAX_HEADER],
    header_len: usize,
    remaining_payload: u64,
    messages: u64,
    is_closed: bool,
}

impl FrameTracker {
    /// Returns whether the stream is between two frames.
    pub(super) fn is_at_boundary(&self) -> bool {
        self.header_len == 0 && self.remaining_payload == 0
    }

    /// Returns whether a Close frame has passed, after which no frame may follow.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Returns the number of complete messages.
    pub(super) fn messages(&self) -> u64 {
        self.messages
    }

    /// Consumes `bytes` up to the end of the current frame and returns how many were consumed.
    pub(super) fn advance(&mut self, bytes: &[u8]) -> usize {
        let mut consumed = 0;
        if self.remaining_payload == 0 {
            while consumed < bytes.len() {
                self.header[self.header_len] = bytes[consumed];
                self.header_len += 1;
                consumed += 1;
                if self.header_len == self.header_size() {
                    self.start_payload();
                    break;
                }
            }
        }
        let payload = (bytes.len() - consumed)
            .min(usize::try_from(self.remaining_payload).unwrap_or(usize::MAX));
        self.remaining_payload -= payload as u64;
        consumed + payload
    }

    /// Consumes all of `bytes`.
    pub(super) fn advance_all(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let consumed = self.advance(bytes);
            bytes = &bytes[consumed..];
        }
    }

    fn header_size(&self) -> usize {
        if self.header_len < 2 {
            return 2;
        }
        let length = match self.header[1] & !MASKED {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        let mask = if self.header[1] & MASKED == 0 { 0 } else { 4 };
        2 + length + mask
    }

    fn start_payload(&mut self) {
        let [first, second, a, b, c, d, e, f, g, h, ..] = self.header;
        self.remaining_payload = match second & !MASKED {
            126 => u64::from(u16::from_be_bytes([a, b])),
            127 => u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            short => u64::from(short),
        };
        self.header_len = 0;
        let opcode = first & OPCODE;
        if opcode == OPCODE_CLOSE {
            self.is_closed = true;
        } else if opcode < OPCODE_CLOSE && first & FIN != 0 {
            self.messages += 1;
        }
    }
}

impl CloseReason {
    /// Encodes the frame as a server sends it, without a mask.
    pub(super) fn to_frame(&self) -> Vec<u8> {
        // `CloseReason::new` has truncated the text, so the length fits a short frame.
        let mut frame = vec![FIN | OPCODE_CLOSE, 2 + self.text().len() as u8];
        frame.extend(self.code().to_be_bytes());
        frame.extend(self.text().as_bytes());
        frame
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::http::CloseCode;

    fn frame(first: u8, masked: bool, payload: usize) -> Vec<u8> {
        let mask_bit = if masked { MASKED } else { 0 };
        let mut out = vec![first];
        match payload {
            0..=125 => out.push(mask_bit | payload as u8),
            126..=0xffff => {
                out.push(mask_bit | 126);
                out.extend((payload as u16).to_be_bytes());
            }
            _ => {
                out.push(mask_bit | 127);
                out.extend((payload as u64).to_be_bytes());
            }
        }
        if masked {
            out.extend([1, 2, 3, 4]);
        }
        // The payload consists of bytes that look like the header of a Close frame.
        out.resize(out.len() + payload, FIN | OPCODE_CLOSE);
        out
    }

    proptest! {
        #[test]
        fn boundaries_are_found_at_any_chunk_size(
            frames in prop::collection::vec((any::<bool>(), prop::sample::select(vec![0usize, 1, 125, 126, 127, 65535, 65536, 70000])), 1..8),
            cut in 1usize..5000,
        ) {
            let encoded: Vec<Vec<u8>> = frames.iter().map(|&(masked, length)| frame(FIN | 2, masked, length)).collect();
            let stream = encoded.concat();
            let mut tracker = FrameTracker::default();
            let mut ends = Vec::new();
            let mut offset = 0;
            for chunk in stream.chunks(cut) {
                let mut rest = chunk;
                while !rest.is_empty() {
                    let consumed = tracker.advance(rest);
                    prop_assert!(consumed > 0);
                    offset += consumed;
                    rest = &rest[consumed..];
                    if tracker.is_at_boundary() {
                        ends.push(offset);
                    }
                }
            }
            let expected: Vec<usize> = encoded.iter().scan(0, |sum, one| { *sum += one.len(); Some(*sum) }).collect();
            prop_assert_eq!(ends, expected);
            prop_assert_eq!(tracker.messages(), frames.len() as u64);
            prop_assert!(!tracker.is_closed());
        }
    }

    #[test]
    fn fragments_count_as_one_message_and_control_frames_as_none() {
        let mut tracker = FrameTracker::default();
        tracker.advance_all(&frame(1, false, 10));
        tracker.advance_all(&frame(FIN | 9, false, 4));
        tracker.advance_all(&frame(FIN, false, 10));
        assert_eq!(tracker.messages(), 1);
        assert!(!tracker.is_closed());
        let reason = CloseReason::new(CloseCode::Failed, "gone");
        tracker.advance_all(&reason.to_frame());
        assert!(tracker.is_closed() && tracker.is_at_boundary());
    }

    #[test]
    fn largest_payload_length_neither_overflows_nor_ends() {
        let mut tracker = FrameTracker::default();
        tracker.advance_all(&[FIN | 2, 127, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        tracker.advance_all(&[0; 4096]);
        assert!(!tracker.is_at_boundary());
    }

    #[test]
    fn longest_reason_fits_a_short_frame() {
        let encoded = CloseReason::new(CloseCode::TooSlow, "é".repeat(100)).to_frame();
        assert!(encoded.len() <= 2 + 125);
        assert_eq!(usize::from(encoded[1]), encoded.len() - 2);
        assert_eq!(encoded[2..4], 4008u16.to_be_bytes());
        assert!(std::str::from_utf8(&encoded[4..]).is_ok());
    }
}
