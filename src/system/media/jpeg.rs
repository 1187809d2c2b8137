//! JPEG images of parts of the screen.

use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

use crate::system::x11::screen::{Image, Rect};

/// How near an image comes to its pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fineness {
    Coarse,
    Medium,
    /// Text is as sharp as it was.
    Fine,
}

impl Fineness {
    #[must_use]
    pub fn coarser(self) -> Self {
        match self {
            Self::Fine => Self::Medium,
            Self::Medium | Self::Coarse => Self::Coarse,
        }
    }

    #[must_use]
    pub fn finer(self) -> Self {
        match self {
            Self::Coarse => Self::Medium,
            Self::Medium | Self::Fine => Self::Fine,
        }
    }

    fn quality(self) -> (u8, SamplingFactor) {
        match self {
            Self::Coarse => (35, SamplingFactor::R_4_2_0),
            Self::Medium => (60, SamplingFactor::R_4_2_0),
            Self::Fine => (88, SamplingFactor::R_4_4_4),
        }
    }
}

/// A JPEG of the rectangle, which must lie within the image and be no longer than 65535 pixels on any side.
#[must_use]
pub fn encode(image: Image, rect: Rect, fineness: Fineness) -> Vec<u8> {
    let rows = (0..rect.height).map(|y| image.row(rect, y));
    let pixels = rows.collect::<Vec<_>>().concat();
    let (quality, sampling) = fineness.quality();
    let mut jpeg = Vec::new();
    let mut encoder = Encoder::new(&mut jpeg, quality);
    encoder.set_sampling_factor(sampling);
    encoder
        .encode(
            &pixels,
            rect.width as u16,
            rect.height as u16,
            ColorType::Bgra,
        )
        .expect("memory can be written to, and the pixels have the size that was told");
    jpeg
}
