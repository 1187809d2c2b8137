//! Encodes frames: the changed areas of the screen as images with their positions.

use crate::{
    api::live::{Codec, ImageHeader},
    system::{
        media::jpeg::{self, JpegQuality},
        x11::screen::{Image, PointerImage, Rect, Size},
    },
};

/// The largest image. Larger areas are cut into strips, so that the page draws the first one while
/// the next is encoded, and none exceeds the message size limit.
const MAX_PIXELS: u32 = 1 << 19;
/// Flatness from which on a PNG is used: it takes a third of the time of a high-quality JPEG, is
/// lossless and not much larger.
const MIN_FLATNESS: usize = 75;
/// Flatness from which on a PNG is smaller than a JPEG as well, which matters on slow connections.
const MIN_FLATNESS_SLOW: usize = 95;
/// Flatness is sampled from every `FLATNESS_ROW_STEP`th row.
const FLATNESS_ROW_STEP: u32 = 8;

pub(super) struct Frame<'a> {
    pub(super) image: Image<'a>,
    pub(super) sequence: u32,
    pub(super) quality: JpegQuality,
}

impl Frame<'_> {
    /// Returns the messages that show the rectangles. The last one is flagged as such.
    pub(super) fn messages(&self, rects: &[Rect]) -> impl Iterator<Item = Vec<u8>> {
        let strips = rects.iter().flat_map(|rect| rect.strips(MAX_PIXELS));
        let mut strips = strips.peekable();
        std::iter::from_fn(move || {
            let rect = strips.next()?;
            Some(self.message(rect, strips.peek().is_none()))
        })
    }

    fn message(&self, rect: Rect, last: bool) -> Vec<u8> {
        let min_flatness = match self.quality {
            JpegQuality::High => MIN_FLATNESS,
            JpegQuality::Medium | JpegQuality::Low => MIN_FLATNESS_SLOW,
        };
        let (codec, encoded) = if flatness(self.image, rect) >= min_flatness {
            (Codec::Png, self.image.to_png(rect))
        } else {
            (Codec::Jpeg, jpeg::encode(self.image, rect, self.quality))
        };
        let header = ImageHeader {
            codec,
            last,
            x: rect.x as u16,
            y: rect.y as u16,
            width: rect.width as u16,
            height: rect.height as u16,
            screen_width: self.image.size.width as u16,
            screen_height: self.image.size.height as u16,
            sequence: self.sequence,
        };
        [&header.to_bytes()[..], &encoded].concat()
    }
}

/// Returns the percentage of pixels that equal their right neighbour: high for text and most
/// pages, low for photographs.
fn flatness(image: Image, rect: Rect) -> usize {
    let (mut equal, mut total) = (0, 0);
    for y in (0..rect.height).step_by(FLATNESS_ROW_STEP as usize) {
        let pixels = image.row(rect, y).as_chunks::<4>().0;
        equal += pixels
            .windows(2)
            .filter(|pair| pair[0][..3] == pair[1][..3])
            .count();
        total += pixels.len().saturating_sub(1);
    }
    // Columns one pixel wide have no neighbours.
    (equal * 100).checked_div(total).unwrap_or(100)
}

/// Returns the message with the pointer's image.
pub(super) fn pointer_message(image: &PointerImage, screen: Size) -> Vec<u8> {
    let header = ImageHeader {
        codec: Codec::Pointer,
        last: false,
        x: image.hotspot.0 as u16,
        y: image.hotspot.1 as u16,
        width: image.size.width as u16,
        height: image.size.height as u16,
        screen_width: screen.width as u16,
        screen_height: screen.height as u16,
        sequence: 0,
    };
    [&header.to_bytes()[..], &image.png].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(pixels: &[u8], width: u32, height: u32, quality: JpegQuality) -> Frame<'_> {
        let size = Size { width, height };
        Frame {
            image: Image { size, pixels },
            sequence: 7,
            quality,
        }
    }

    #[test]
    fn flat_areas_are_lossless_and_the_last_message_is_flagged() {
        let flat = vec![200; 2000 * 1000 * 4];
        let frame = frame(&flat, 2000, 1000, JpegQuality::Low);
        let messages: Vec<_> = frame.messages(&[frame.image.size.to_rect()]).collect();
        assert_eq!(messages.len(), 4, "each has at most MAX_PIXELS");
        for (index, message) in messages.iter().enumerate() {
            assert_eq!(message[0], Codec::Png as u8);
            assert_eq!(message[1], u8::from(index == 3));
            assert_eq!(message[14..18], [0, 0, 0, 7]);
        }
    }

    #[test]
    fn noise_is_encoded_smaller_at_lower_quality() {
        let noise: Vec<u8> = (0u32..400 * 300 * 4)
            .map(|index| (index.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        let qualities = [JpegQuality::High, JpegQuality::Medium, JpegQuality::Low];
        let sizes = qualities.map(|quality| {
            let frame = frame(&noise, 400, 300, quality);
            let messages: Vec<_> = frame.messages(&[frame.image.size.to_rect()]).collect();
            assert_eq!((messages.len(), messages[0][0]), (1, Codec::Jpeg as u8));
            messages[0].len()
        });
        assert!(
            sizes.is_sorted_by(|higher, lower| higher > lower),
            "{sizes:?}"
        );
    }
}
