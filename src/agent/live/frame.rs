//! A frame: what has changed, as images with their places.

use super::dirty::strips;
use crate::{
    api::live::{Codec, PictureHeader},
    system::{
        media::jpeg::{self, Fineness},
        x11::screen::{Image, PointerImage, Rect, Size},
    },
};

/// Larger ones are cut, so that the first is drawn while the next is made, and none is larger than a message may be.
const MAX_PIXELS: u32 = 1 << 19;
/// Where so many per cent of the pixels are as their neighbours, a PNG takes a third of a fine JPEG's time, loses nothing, and is not much larger.
const FLAT: usize = 75;
/// Where so many are, it is smaller as well, which is what counts on a slow line.
const FLATTER: usize = 95;
/// Every so many rows are looked at.
const STEP: u32 = 8;

pub struct Frame<'a> {
    pub image: Image<'a>,
    pub sequence: u32,
    pub fineness: Fineness,
}

impl Frame<'_> {
    /// The messages that show it; the last says that it is.
    pub fn pictures(&self, rects: &[Rect]) -> impl Iterator<Item = Vec<u8>> {
        let strips = rects.iter().flat_map(|rect| strips(*rect, MAX_PIXELS));
        let mut strips = strips.peekable();
        std::iter::from_fn(move || {
            let rect = strips.next()?;
            Some(self.picture(rect, strips.peek().is_none()))
        })
    }

    fn picture(&self, rect: Rect, last: bool) -> Vec<u8> {
        let flat = match self.fineness {
            Fineness::Fine => FLAT,
            Fineness::Medium | Fineness::Coarse => FLATTER,
        };
        let (codec, encoded) = if flatness(self.image, rect) >= flat {
            (Codec::Png, self.image.to_png(rect))
        } else {
            (Codec::Jpeg, jpeg::encode(self.image, rect, self.fineness))
        };
        let header = PictureHeader {
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

/// How many per cent of the pixels are as their neighbours: most of them in text and in most pages, few in photographs.
fn flatness(image: Image, rect: Rect) -> usize {
    let (mut alike, mut all) = (0, 0);
    for y in (0..rect.height).step_by(STEP as usize) {
        let pixels = image.row(rect, y).as_chunks::<4>().0;
        alike += pixels
            .windows(2)
            .filter(|pair| pair[0][..3] == pair[1][..3])
            .count();
        all += pixels.len().saturating_sub(1);
    }
    // A line one pixel wide has no neighbours.
    (alike * 100).checked_div(all).unwrap_or(100)
}

/// The message that shows what the pointer looks like.
pub fn pointer(image: &PointerImage, screen: Size) -> Vec<u8> {
    let header = PictureHeader {
        codec: Codec::Pointer,
        last: false,
        x: image.hot.0 as u16,
        y: image.hot.1 as u16,
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

    fn frame(pixels: &[u8], width: u32, height: u32, fineness: Fineness) -> Frame<'_> {
        let size = Size { width, height };
        Frame {
            image: Image { size, pixels },
            sequence: 7,
            fineness,
        }
    }

    #[test]
    fn plain_areas_lose_nothing_and_the_last_picture_says_that_it_is() {
        let plain = vec![200; 2000 * 1000 * 4];
        let frame = frame(&plain, 2000, 1000, Fineness::Coarse);
        let pictures: Vec<_> = frame.pictures(&[frame.image.size.whole()]).collect();
        assert_eq!(
            pictures.len(),
            4,
            "none has more than half a million pixels"
        );
        for (index, picture) in pictures.iter().enumerate() {
            assert_eq!(picture[0], Codec::Png as u8);
            assert_eq!(picture[1], u8::from(index == 3));
            assert_eq!(picture[14..18], [0, 0, 0, 7]);
        }
    }

    #[test]
    fn what_is_not_plain_is_small() {
        let noise: Vec<u8> = (0u32..400 * 300 * 4)
            .map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8)
            .collect();
        let sizes = [Fineness::Fine, Fineness::Medium, Fineness::Coarse].map(|fineness| {
            let frame = frame(&noise, 400, 300, fineness);
            let pictures: Vec<_> = frame.pictures(&[frame.image.size.whole()]).collect();
            assert_eq!((pictures.len(), pictures[0][0]), (1, Codec::Jpeg as u8));
            pictures[0].len()
        });
        assert!(
            sizes.is_sorted_by(|finer, coarser| finer > coarser),
            "{sizes:?}"
        );
    }
}
