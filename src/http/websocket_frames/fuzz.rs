//! Fuzz targets of the frame tracker: streams of any frames and of any bytes in chunks of any size,
//! against tungstenite's parser of headers.

use std::io::Cursor;

use proptest::{prelude::*, sample::Index};
use tokio_tungstenite::tungstenite::protocol::frame::{
    FrameHeader,
    coding::{Control, OpCode},
};

use super::*;
use crate::http::CloseCode;

/// A frame with any opcode and flags, and any of the encodings that its length allows.
fn frame() -> impl Strategy<Value = Vec<u8>> {
    let length = prop_oneof![30 => 0..300_usize, 1 => 65_530..65_540_usize];
    let mask = any::<Option<[u8; 4]>>();
    let encoding = any::<Index>();
    (any::<u8>(), length, mask, encoding, any::<u8>()).prop_map(
        |(first, length, mask, encoding, payload)| {
            let mut frame = header(first, length as u64, mask, encoding);
            frame.resize(frame.len() + length, payload);
            frame
        },
    )
}

/// Encodes a header. The length takes the shortest form or a longer one.
fn header(first: u8, length: u64, mask: Option<[u8; 4]>, encoding: Index) -> Vec<u8> {
    let mut forms = vec![[&[127][..], &length.to_be_bytes()].concat()];
    if let Ok(length) = u16::try_from(length) {
        forms.push([&[126][..], &length.to_be_bytes()].concat());
    }
    if let Ok(length @ 0..=125) = u8::try_from(length) {
        forms.push(vec![length]);
    }
    let mut length = forms.swap_remove(encoding.index(forms.len()));
    if mask.is_some() {
        length[0] |= MASKED;
    }
    [&[first][..], &length, &mask.map_or(Vec::new(), Vec::from)].concat()
}

/// Any bytes, among them headers that announce any length.
fn hostile_stream() -> impl Strategy<Value = Vec<u8>> {
    let bytes = prop::collection::vec(any::<u8>(), 0..200);
    let length = prop_oneof![0..300_u64, any::<u64>(), u64::MAX - 20..=u64::MAX];
    let announced = (
        any::<u8>(),
        length,
        any::<Option<[u8; 4]>>(),
        any::<Index>(),
    )
        .prop_map(|(first, length, mask, encoding)| header(first, length, mask, encoding));
    let part = prop_oneof![2 => bytes, 1 => announced, 4 => frame()];
    prop::collection::vec(part, 0..8).prop_map(|parts| parts.concat())
}

fn cuts() -> impl Strategy<Value = Vec<Index>> {
    prop::collection::vec(any::<Index>(), 0..24)
}

/// The ends of the complete frames of a stream, and the content of its headers.
#[derive(Debug, Default, PartialEq, Eq)]
struct Frames {
    ends: Vec<usize>,
    messages: u64,
    is_closed: bool,
}

/// Reads the complete stream with tungstenite's parser.
fn parse(stream: &[u8]) -> Frames {
    let mut frames = Frames::default();
    let mut start = 0;
    while start < stream.len() {
        // Tungstenite rejects reserved opcodes, which a tunnel passes on.
        let mut header = stream[start..].to_vec();
        header.truncate(MAX_HEADER);
        header[0] = match header[0] & OPCODE {
            3..=7 => header[0] & FIN | 2,
            0xb..=0xf => header[0] & FIN | 9,
            _ => header[0],
        };
        let mut cursor = Cursor::new(header);
        let parsed = FrameHeader::parse(&mut cursor).expect("an opcode that is not reserved");
        let Some((header, length)) = parsed else {
            break;
        };
        match header.opcode {
            OpCode::Control(Control::Close) => frames.is_closed = true,
            OpCode::Data(_) if header.is_final => frames.messages += 1,
            OpCode::Data(_) | OpCode::Control(_) => {}
        }
        let end = (start as u64 + cursor.position()).checked_add(length);
        let end = end.and_then(|end| usize::try_from(end).ok());
        let Some(end) = end.filter(|end| *end <= stream.len()) else {
            break;
        };
        frames.ends.push(end);
        start = end;
    }
    frames
}

/// Passes the stream to a tracker in chunks.
fn track(stream: &[u8], cuts: &[Index]) -> Result<Frames, TestCaseError> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
    cuts.push(stream.len());
    cuts.sort_unstable();
    let mut tracker = FrameTracker::default();
    let mut ends = Vec::new();
    let mut offset = 0;
    for cut in cuts {
        while offset < cut {
            let consumed = tracker.advance(&stream[offset..cut]);
            prop_assert!(consumed > 0);
            offset += consumed;
            if tracker.is_at_boundary() {
                ends.push(offset);
            }
        }
        prop_assert_eq!(offset, cut);
    }
    Ok(Frames {
        ends,
        messages: tracker.messages(),
        is_closed: tracker.is_closed(),
    })
}

proptest! {
    #[test]
    fn every_frame_ends_where_it_was_encoded_to_end(
        frames in prop::collection::vec(frame(), 0..8),
        cuts in cuts(),
    ) {
        let found = track(&frames.concat(), &cuts)?;
        let ends = frames.iter().scan(0, |end, frame| {
            *end += frame.len();
            Some(*end)
        });
        prop_assert_eq!(&found.ends, &ends.collect::<Vec<_>>());
        prop_assert_eq!(found, parse(&frames.concat()));
    }

    #[test]
    fn any_bytes_are_tracked_as_tungstenite_parses_them(
        stream in hostile_stream(),
        cuts in cuts(),
    ) {
        prop_assert_eq!(track(&stream, &cuts)?, parse(&stream));
    }

    #[test]
    fn close_frame_is_valid_for_any_reason(reason in "\\PC{0,200}") {
        let frame = CloseReason::new(CloseCode::Failed, &*reason).to_frame();
        let mut cursor = Cursor::new(&frame);
        let (header, length) = FrameHeader::parse(&mut cursor).unwrap().unwrap();
        prop_assert_eq!(header, FrameHeader::default());
        let payload = &frame[cursor.position() as usize..];
        prop_assert_eq!(payload.len() as u64, length);
        prop_assert!(length <= 125);
        let text = std::str::from_utf8(&payload[2..]);
        prop_assert!(text.is_ok_and(|text| reason.starts_with(text)));
    }
}
