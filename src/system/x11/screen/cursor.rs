//! The cursor, which is not among the screen's pixels: its image, drawn over them.

use x11rb::protocol::xfixes::GetCursorImageReply;

use super::{
    geometry::{Band, Rect, Size},
    image::to_png,
};

/// Across and down; it may be beside the screen.
pub type Point = (i32, i32);

/// Its look; where it is, is not part of it.
pub struct Shape {
    width: u32,
    height: u32,
    /// The pixel of it that is where the pointer is.
    hot: Point,
    /// ARGB, premultiplied.
    pixels: Vec<u32>,
}

/// A pointer's look by itself.
pub struct PointerImage {
    pub size: Size,
    /// The pixel that points.
    pub hot: (u32, u32),
    /// With its transparency.
    pub png: Vec<u8>,
}

impl From<GetCursorImageReply> for Shape {
    fn from(image: GetCursorImageReply) -> Self {
        Self {
            width: image.width.into(),
            height: image.height.into(),
            hot: (image.xhot.into(), image.yhot.into()),
            pixels: image.cursor_image,
        }
    }
}

impl Shape {
    fn is_visible(&self) -> bool {
        self.pixels.iter().any(|pixel| pixel >> 24 != 0)
    }

    pub fn to_image(&self) -> Option<PointerImage> {
        let size = Size {
            width: self.width,
            height: self.height,
        };
        let is_whole =
            size.contains(size.whole()) && self.pixels.len() == (self.width * self.height) as usize;
        let straight = self.pixels.iter().flat_map(|pixel| straight(*pixel));
        is_whole.then(|| PointerImage {
            size,
            hot: (self.hot.0 as u32, self.hot.1 as u32),
            png: to_png(size, png::ColorType::Rgba, &straight.collect::<Vec<_>>()),
        })
    }

    /// Where it is seen when the pointer is there.
    pub fn place(&self, pointer: Point, size: Size) -> Option<Rect> {
        let (x, y) = (pointer.0 - self.hot.0, pointer.1 - self.hot.1);
        let is_whole = self.pixels.len() == (self.width * self.height) as usize;
        (is_whole && self.is_visible())
            .then(|| Rect::clipped(x, y, self.width, self.height, size))?
    }

    /// Draws it over the rows of the bands, whose pixels (BGRX) must be without it. Nothing of it is drawn beyond them.
    pub fn draw(&self, pointer: Point, pixels: &mut [u8], size: Size, bands: &[Band]) {
        let Some(place) = self.place(pointer, size) else {
            return;
        };
        let origin = (pointer.0 - self.hot.0, pointer.1 - self.hot.1);
        let rows = bands
            .iter()
            .flat_map(|band| band.top.max(place.y)..band.bottom.min(place.bottom()));
        for y in rows {
            let from = (y as i32 - origin.1) as usize * self.width as usize
                + (place.x as i32 - origin.0) as usize;
            let own = &self.pixels[from..from + place.width as usize];
            let to = (y * size.width + place.x) as usize * 4;
            let row = &mut pixels[to..to + place.width as usize * 4];
            for (over, under) in own.iter().zip(row.as_chunks_mut::<4>().0) {
                *under = blend(*over, *under);
            }
        }
    }
}

/// Red, green, blue and alpha, which the colours are not multiplied by any more.
fn straight(pixel: u32) -> [u8; 4] {
    let [blue, green, red, alpha] = pixel.to_le_bytes();
    let divide = |colour: u8| match alpha {
        0 => 0,
        alpha => (u32::from(colour) * 255 / u32::from(alpha)).min(255) as u8,
    };
    [divide(red), divide(green), divide(blue), alpha]
}

fn blend(over: u32, under: [u8; 4]) -> [u8; 4] {
    let [blue, green, red, alpha] = over.to_le_bytes();
    let rest = 255 - u32::from(alpha);
    let mix = |over: u8, under: u8| {
        (u32::from(over) + (u32::from(under) * rest + 127) / 255).min(255) as u8
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

    fn shape(pixels: [u32; 4]) -> Shape {
        Shape {
            width: 2,
            height: 2,
            hot: (1, 0),
            pixels: pixels.into(),
        }
    }

    const OPAQUE: u32 = 0xff11_2233;

    #[test]
    fn it_covers_in_the_measure_of_its_alpha() {
        assert_eq!(blend(OPAQUE, [1, 2, 3, 0]), [0x33, 0x22, 0x11, 0]);
        assert_eq!(blend(0, [1, 2, 3, 0]), [1, 2, 3, 0]);
        // Half of red over white, premultiplied.
        assert_eq!(blend(0x8080_0000, [255, 255, 255, 0]), [127, 127, 255, 0]);
    }

    #[test]
    fn its_image_has_its_transparency() {
        let image = shape([OPAQUE, 0, 0x8040_0000, 0xffff_ffff])
            .to_image()
            .unwrap();
        assert_eq!(
            (image.size.width, image.size.height, image.hot),
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
    fn it_is_drawn_at_the_pointer_and_not_beside_the_screen() {
        let at = |pointer, bands: &[Band]| {
            let mut pixels = vec![0; (SIZE.width * SIZE.height * 4) as usize];
            shape([OPAQUE; 4]).draw(pointer, &mut pixels, SIZE, bands);
            let drawn = pixels.as_chunks::<4>().0.iter().enumerate();
            drawn
                .filter(|(_, pixel)| pixel[0] != 0)
                .map(|(at, _)| (at % 4, at / 4))
                .collect::<Vec<_>>()
        };
        let all = [Band { top: 0, bottom: 3 }];
        assert_eq!(at((2, 1), &all), [(1, 1), (2, 1), (1, 2), (2, 2)]);
        assert_eq!(at((0, 2), &all), [(0, 2)]);
        assert_eq!(at((3, -1), &all), [(2, 0), (3, 0)]);
        assert_eq!(at((2, 1), &[Band { top: 0, bottom: 2 }]), [(1, 1), (2, 1)]);
        assert_eq!(at((9, 9), &all), []);
    }

    #[test]
    fn one_without_a_visible_pixel_is_nowhere() {
        assert_eq!(shape([0; 4]).place((1, 1), SIZE), None);
        assert!(shape([0, 0, 0, OPAQUE]).place((1, 1), SIZE).is_some());
    }
}
