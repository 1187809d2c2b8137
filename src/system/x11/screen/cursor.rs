//! The cursor, which is not part of the screen's pixels: its image, drawn over them.

use x11rb::protocol::xfixes::GetCursorImageReply;

use super::{
    geometry::{Band, Point, Rect, Size},
    image::encode_png,
};

/// The cursor's appearance, without its position.
pub(super) struct CursorShape {
    width: u32,
    height: u32,
    /// The pixel that marks the pointer's position.
    hotspot: Point,
    /// ARGB, premultiplied.
    pixels: Vec<u32>,
}

/// An image of the pointer.
pub struct PointerImage {
    pub size: Size,
    /// The pixel that marks the pointer's position.
    pub hotspot: (u32, u32),
    /// A PNG with an alpha channel.
    pub png: Vec<u8>,
}

impl From<GetCursorImageReply> for CursorShape {
    fn from(image: GetCursorImageReply) -> Self {
        Self {
            width: image.width.into(),
            height: image.height.into(),
            hotspot: Point {
                x: image.xhot.into(),
                y: image.yhot.into(),
            },
            pixels: image.cursor_image,
        }
    }
}

impl CursorShape {
    fn is_visible(&self) -> bool {
        self.pixels.iter().any(|pixel| pixel >> 24 != 0)
    }

    /// Returns `None` if the size is zero or does not match the pixels.
    pub(super) fn to_image(&self) -> Option<PointerImage> {
        let size = Size {
            width: self.width,
            height: self.height,
        };
        let is_complete = size.contains(size.to_rect()) && self.has_all_pixels();
        let rgba = self
            .pixels
            .iter()
            .flat_map(|pixel| to_straight_rgba(*pixel));
        is_complete.then(|| PointerImage {
            size,
            hotspot: (self.hotspot.x as u32, self.hotspot.y as u32),
            png: encode_png(size, png::ColorType::Rgba, &rgba.collect::<Vec<_>>()),
        })
    }

    /// Returns the area of a screen that the cursor covers with the pointer at this position.
    pub(super) fn visible_rect(&self, pointer: Point, size: Size) -> Option<Rect> {
        let origin = self.origin(pointer);
        (self.has_all_pixels() && self.is_visible())
            .then(|| Rect::clipped(origin.x, origin.y, self.width, self.height, size))?
    }

    fn has_all_pixels(&self) -> bool {
        self.pixels.len() == (self.width * self.height) as usize
    }

    /// Returns the position of the top left pixel.
    fn origin(&self, pointer: Point) -> Point {
        Point {
            x: pointer.x - self.hotspot.x,
            y: pointer.y - self.hotspot.y,
        }
    }

    /// Draws the cursor over BGRX pixels, within the rows of `bands` only. These rows must not
    /// include the cursor yet.
    pub(super) fn draw(&self, pointer: Point, pixels: &mut [u8], size: Size, bands: &[Band]) {
        let Some(rect) = self.visible_rect(pointer, size) else {
            return;
        };
        let origin = self.origin(pointer);
        let rows = bands
            .iter()
            .flat_map(|band| band.top.max(rect.y)..band.bottom.min(rect.bottom()));
        for y in rows {
            let start = (y as i32 - origin.y) as usize * self.width as usize
                + (rect.x as i32 - origin.x) as usize;
            let cursor_row = &self.pixels[start..start + rect.width as usize];
            let start = (y * size.width + rect.x) as usize * 4;
            let row = &mut pixels[start..start + rect.width as usize * 4];
            for (over, under) in cursor_row.iter().zip(row.as_chunks_mut::<4>().0) {
                *under = blend(*over, *under);
            }
        }
    }
}

/// Converts a premultiplied ARGB pixel to RGBA with straight alpha.
fn to_straight_rgba(pixel: u32) -> [u8; 4] {
    let [blue, green, red, alpha] = pixel.to_le_bytes();
    let unmultiply = |colour: u8| match alpha {
        0 => 0,
        alpha => (u32::from(colour) * 255 / u32::from(alpha)).min(255) as u8,
    };
    [unmultiply(red), unmultiply(green), unmultiply(blue), alpha]
}

/// Blends a premultiplied ARGB pixel over a BGRX pixel.
fn blend(over: u32, under: [u8; 4]) -> [u8; 4] {
    let [blue, green, red, alpha] = over.to_le_bytes();
    let transparency = 255 - u32::from(alpha);
    let mix = |over: u8, under: u8| {
        (u32::from(over) + (u32::from(under) * transparency + 127) / 255).min(255) as u8
    };
    [
        mix(blue, under[0]),
        mix(green, under[1]),
        mix(red, under[2]),
        under[3],
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: Size = Size {
        width: 4,
        height: 3,
    };

    fn shape(pixels: [u32; 4]) -> CursorShape {
        CursorShape {
            width: 2,
            height: 2,
            hotspot: Point { x: 1, y: 0 },
            pixels: pixels.into(),
        }
    }

    const OPAQUE: u32 = 0xff11_2233;

    #[test]
    fn blend_weights_pixels_by_alpha() {
        assert_eq!(blend(OPAQUE, [1, 2, 3, 0]), [0x33, 0x22, 0x11, 0]);
        assert_eq!(blend(0, [1, 2, 3, 0]), [1, 2, 3, 0]);
        // Half of red over white, premultiplied.
        assert_eq!(blend(0x8080_0000, [255, 255, 255, 0]), [127, 127, 255, 0]);
    }

    #[test]
    fn image_keeps_transparency() {
        let image = shape([OPAQUE, 0, 0x8040_0000, 0xffff_ffff])
            .to_image()
            .unwrap();
        assert_eq!(
            (image.size.width, image.size.height, image.hotspot),
            (2, 2, (1, 0))
        );
        let mut reader = png::Decoder::new(std::io::Cursor::new(image.png))
            .read_info()
            .unwrap();
        let mut decoded = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut decoded).unwrap();
        let expected = [
            [0x11, 0x22, 0x33, 255],
            [0, 0, 0, 0],
            [127, 0, 0, 128],
            [255; 4],
        ];
        assert_eq!(decoded, expected.concat());
    }

    #[test]
    fn cursor_is_drawn_at_the_pointer_and_clipped_to_the_screen() {
        let drawn_at = |(x, y), bands: &[Band]| {
            let mut pixels = vec![0; (SIZE.width * SIZE.height * 4) as usize];
            shape([OPAQUE; 4]).draw(Point { x, y }, &mut pixels, SIZE, bands);
            let drawn = pixels.as_chunks::<4>().0.iter().enumerate();
            drawn
                .filter(|(_, pixel)| pixel[0] != 0)
                .map(|(index, _)| (index % 4, index / 4))
                .collect::<Vec<_>>()
        };
        let all = [Band { top: 0, bottom: 3 }];
        assert_eq!(drawn_at((2, 1), &all), [(1, 1), (2, 1), (1, 2), (2, 2)]);
        assert_eq!(drawn_at((0, 2), &all), [(0, 2)]);
        assert_eq!(drawn_at((3, -1), &all), [(2, 0), (3, 0)]);
        assert_eq!(
            drawn_at((2, 1), &[Band { top: 0, bottom: 2 }]),
            [(1, 1), (2, 1)]
        );
        assert_eq!(drawn_at((9, 9), &all), []);
    }

    #[test]
    fn transparent_cursor_has_no_visible_rect() {
        let position = Point { x: 1, y: 1 };
        assert_eq!(shape([0; 4]).visible_rect(position, SIZE), None);
        let visible = shape([0, 0, 0, OPAQUE]).visible_rect(position, SIZE);
        assert!(visible.is_some());
    }
}
