//! Where one WebSocket frame ends and the next begins (RFC 6455, section 5.2), from the headers alone.
//!
//! A tunnel copies bytes and never looks into a payload, yet it has to know when the stream stands between two frames: only there
//! may it add a Close frame of its own, so that a client learns why its connection ends.

/// The longest header: two fixed bytes, eight of length, four of mask.
const MAX_HEADER: usize = 14;
/// The longest reason: a control frame carries at most 125 bytes, two of them the code.
const MAX_REASON: usize = 123;

const FIN: u8 = 0x80;
const MASKED: u8 = 0x80;
const OPCODE: u8 = 0x0f;
const OPCODE_CLOSE: u8 = 0x8;

/// Follows one direction of a WebSocket connection.
#[derive(Debug, Default)]
pub struct Frames {
    header: [u8; MAX_HEADER],
    header_len: usize,
    payload_left: u64,
    messages: u64,
    closed: bool,
}

impl Frames {
    /// Whether nothing of a frame is under way, so that another frame may start here.
    pub fn at_boundary(&self) -> bool {
        self.header_len == 0 && self.payload_left == 0
    }

    /// Whether a Close frame has passed: nothing may follow it.
    pub fn closed(&self) -> bool {
        self.closed
    }

    /// How many whole messages have passed.
    pub fn messages(&self) -> u64 {
        self.messages
    }

    /// Takes note of `bytes` up to the end of the frame that is under way, or all of them; says how many were taken.
    pub fn advance(&mut self, bytes: &[u8]) -> usize {
        let mut taken = 0;
        if self.payload_left == 0 {
            while taken < bytes.len() {
                self.header[self.header_len] = bytes[taken];
                self.header_len += 1;
                taken += 1;
                if self.header_len == self.header_needed() {
                    self.start_payload();
                    break;
                }
            }
        }
        let payload =
            (bytes.len() - taken).min(usize::try_from(self.payload_left).unwrap_or(usize::MAX));
        self.payload_left -= payload as u64;
        taken + payload
    }

    /// Takes note of all of `bytes`.
    pub fn advance_all(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let taken = self.advance(bytes);
            bytes = &bytes[taken..];
        }
    }

    fn header_needed(&self) -> usize {
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
        let [first, second, ..] = self.header;
        self.payload_left = match second & !MASKED {
            126 => u64::from(u16::from_be_bytes([self.header[2], self.header[3]])),
            127 => u64::from_be_bytes(self.header[2..10].try_into().expect("eight bytes")),
            short => u64::from(short),
        };
        self.header_len = 0;
        let opcode = first & OPCODE;
        if opcode == OPCODE_CLOSE {
            self.closed = true;
        } else if opcode < OPCODE_CLOSE && first & FIN != 0 {
            self.messages += 1;
        }
    }
}

/// Why a connection ends, as its client will read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Close {
    code: u16,
    reason: String,
}

impl Close {
    /// The server is going away (1001).
    pub fn going_away(reason: impl Into<String>) -> Self {
        Self::new(1001, reason)
    }

    /// Something the client needs has failed (1011).
    pub fn failed(reason: impl Into<String>) -> Self {
        Self::new(1011, reason)
    }

    /// The client may connect again soon (1012).
    pub fn restarting(reason: impl Into<String>) -> Self {
        Self::new(1012, reason)
    }

    fn new(code: u16, reason: impl Into<String>) -> Self {
        let mut reason = reason.into();
        reason.truncate(reason.floor_char_boundary(MAX_REASON));
        Self { code, reason }
    }

    /// The frame as a server sends it, which is without a mask.
    pub fn to_frame(&self) -> Vec<u8> {
        let length = u8::try_from(2 + self.reason.len()).expect("a reason is cut to fit");
        let mut frame = vec![FIN | OPCODE_CLOSE, length];
        frame.extend(self.code.to_be_bytes());
        frame.extend(self.reason.as_bytes());
        frame
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
        // A payload full of what looks like Close frames must not be taken for headers.
        out.resize(out.len() + payload, FIN | OPCODE_CLOSE);
        out
    }

    proptest! {
        #[test]
        fn boundaries_are_found_however_the_bytes_are_cut(
            frames in prop::collection::vec((any::<bool>(), prop::sample::select(vec![0usize, 1, 125, 126, 127, 65535, 65536, 70000])), 1..8),
            cut in 1usize..5000,
        ) {
            let encoded: Vec<Vec<u8>> = frames.iter().map(|&(masked, length)| frame(FIN | 2, masked, length)).collect();
            let stream = encoded.concat();
            let mut seen = Frames::default();
            let mut ends = Vec::new();
            let mut offset = 0;
            for chunk in stream.chunks(cut) {
                let mut rest = chunk;
                while !rest.is_empty() {
                    let taken = seen.advance(rest);
                    prop_assert!(taken > 0);
                    offset += taken;
                    rest = &rest[taken..];
                    if seen.at_boundary() {
                        ends.push(offset);
                    }
                }
            }
            let expected: Vec<usize> = encoded.iter().scan(0, |sum, one| { *sum += one.len(); Some(*sum) }).collect();
            prop_assert_eq!(ends, expected);
            prop_assert_eq!(seen.messages(), frames.len() as u64);
            prop_assert!(!seen.closed());
        }
    }

    #[test]
    fn fragments_are_one_message_and_control_frames_none() {
        let mut seen = Frames::default();
        seen.advance_all(&frame(1, false, 10));
        seen.advance_all(&frame(FIN | 9, false, 4));
        seen.advance_all(&frame(FIN, false, 10));
        assert_eq!(seen.messages(), 1);
        assert!(!seen.closed());
        seen.advance_all(&Close::failed("gone").to_frame());
        assert!(seen.closed() && seen.at_boundary());
    }

    #[test]
    fn a_length_of_all_ones_neither_overflows_nor_ends() {
        let mut seen = Frames::default();
        seen.advance_all(&[FIN | 2, 127, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
        seen.advance_all(&[0; 4096]);
        assert!(!seen.at_boundary());
    }

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let encoded = Close::failed("é".repeat(100)).to_frame();
        assert!(encoded.len() <= 2 + 125);
        assert!(std::str::from_utf8(&encoded[4..]).is_ok());
    }
}
