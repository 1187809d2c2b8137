//! Images of the screen and their encoding as PNG.

use std::io::Cursor;

use super::geometry::{Rect, Size};

/// The bytes of a pixel: blue, green, red and one unused byte.
pub const BYTES_PER_PIXEL: usize = 4;

/// Borrowed pixels: rows from top to bottom without padding.
#[derive(Clone, Copy)]
pub struct Image<'a> {
    pub size: Size,
    /// BGRX.
    pub pixels: &'a [u8],
}

impl<'a> Image<'a> {
    /// Returns the bytes per row.
    #[must_use]
    pub fn stride(&self) -> usize {
        self.size.width as usize * BYTES_PER_PIXEL
    }

    /// Returns the pixels of one row of the rectangle, which must lie within the image.
    #[must_use]
    pub fn row(&self, rect: Rect, y: u32) -> &'a [u8] {
        let start = (rect.y + y) as usize * self.stride() + rect.x as usize * BYTES_PER_PIXEL;
        &self.pixels[start..start + rect.width as usize * BYTES_PER_PIXEL]
    }

    /// Encodes the rectangle, which must lie within the image. Optimized for speed over size.
    #[must_use]
    pub fn to_png(&self, rect: Rect) -> Vec<u8> {
        let mut rgb = vec![0; (rect.width * rect.height) as usize * 3];
        for (y, row) in rgb.chunks_exact_mut(rect.width as usize * 3).enumerate() {
            let source = self.row(rect, y as u32).as_chunks::<BYTES_PER_PIXEL>().0;
            for (to, [blue, green, red, _]) in row.as_chunks_mut::<3>().0.iter_mut().zip(source) {
                *to = [*red, *green, *blue];
            }
        }
        let size = Size {
            width: rect.width,
            height: rect.height,
        };
        encode_png(size, png::ColorType::Rgb, &rgb)
    }
}

/// Encodes raw samples of eight bits per channel, which must match the size and the color type.
#[expect(
    clippy::expect_used,
    reason = "writing to a Vec cannot fail, and the data matches the size"
)]
pub(super) fn encode_png(size: Size, color: png::ColorType, data: &[u8]) -> Vec<u8> {
    let mut png = Vec::new();
    let mut encoder = png::Encoder::new(&mut png, size.width, size.height);
    encoder.set_color(color);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::Fast);
    encoder
        .write_header()
        .and_then(|mut writer| {
            writer.write_image_data(data)?;
            writer.finish()
        })
        .expect("the data matches the size");
    png
}

/// Decodes a PNG of eight bits per channel to its size and BGRX pixels.
pub fn decode_png(png: &[u8]) -> Result<(Size, Vec<u8>), png::DecodingError> {
    let mut decoder = png::Decoder::new(Cursor::new(png));
    decoder.set_transformations(png::Transformations::normalize_to_color8());
    let mut reader = decoder.read_info()?;
    let mut decoded = vec![0; reader.output_buffer_size().unwrap_or_default()];
    let info = reader.next_frame(&mut decoded)?;
    let bgrx = |pixel: &[u8]| match *pixel {
        [red, green, blue, ..] => [blue, green, red, 0],
        [grey, ..] => [grey, grey, grey, 0],
        [] => [0; BYTES_PER_PIXEL],
    };
    let pixels = decoded.chunks_exact(info.color_type.samples());
    let size = Size {
        width: info.width,
        height: info.height,
    };
    Ok((size, pixels.flat_map(bgrx).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn png_contains_the_pixels_of_its_rectangle() {
        let size = Size {
            width: 4,
            height: 3,
        };
        let pixels: Vec<u8> = (0..48).collect();
        let image = Image {
            size,
            pixels: &pixels,
        };
        let rect = Rect {
            x: 1,
            y: 1,
            width: 2,
            height: 2,
        };
        let png = image.to_png(rect);
        let mut reader = png::Decoder::new(Cursor::new(&png)).read_info().unwrap();
        let mut decoded = vec![0; reader.output_buffer_size().unwrap()];
        let info = reader.next_frame(&mut decoded).unwrap();
        assert_eq!((info.width, info.height), (2, 2));
        assert_eq!(info.color_type, png::ColorType::Rgb);
        assert_eq!(decode_png(&png).unwrap().1[..4], [20, 21, 22, 0]);
        assert_eq!(decoded, [22, 21, 20, 26, 25, 24, 38, 37, 36, 42, 41, 40]);
    }
}
