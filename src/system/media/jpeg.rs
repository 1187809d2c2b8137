//! JPEG encoding of parts of the screen.

use jpeg_encoder::{ColorType, Encoder, SamplingFactor};

use crate::system::x11::screen::{Image, Rect};

/// The quality of an encoded image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum JpegQuality {
    Low,
    Medium,
    /// Keeps text sharp.
    High,
}

impl JpegQuality {
    #[must_use]
    pub fn lower(self) -> Self {
        match self {
            Self::High => Self::Medium,
            Self::Medium | Self::Low => Self::Low,
        }
    }

    #[must_use]
    pub fn higher(self) -> Self {
        match self {
            Self::Low => Self::Medium,
            Self::Medium | Self::High => Self::High,
        }
    }

    fn parameters(self) -> (u8, SamplingFactor) {
        match self {
            Self::Low => (35, SamplingFactor::R_4_2_0),
            Self::Medium => (60, SamplingFactor::R_4_2_0),
            Self::High => (88, SamplingFactor::R_4_4_4),
        }
    }
}

/// Encodes a rectangle, which must lie within the image and have sides of at most 65535 pixels.
#[must_use]
#[expect(
    clippy::expect_used,
    reason = "writing to a Vec cannot fail, and the pixels match the size"
)]
pub fn encode(image: Image, rect: Rect, quality: JpegQuality) -> Vec<u8> {
    let rows = (0..rect.height).map(|y| image.row(rect, y));
    let pixels = rows.collect::<Vec<_>>().concat();
    let (quality, sampling) = quality.parameters();
    let mut jpeg = Vec::new();
    let mut encoder = Encoder::new(&mut jpeg, quality);
    encoder.set_sampling_factor(sampling);
    let (width, height) = (rect.width as u16, rect.height as u16);
    encoder
        .encode(&pixels, width, height, ColorType::Bgra)
        .expect("the pixels match the size");
    jpeg
}
