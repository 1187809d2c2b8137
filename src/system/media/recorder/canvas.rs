//! What the encoder gets to see: the screen as I420, converted where it has changed.
//!
//! A recording keeps the size it began with. A screen that has another one meanwhile is seen in the middle of it, made smaller where it has to be.

use fast_image_resize::{
    FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer,
    images::{Image as Resized, ImageRef},
};
use yuv::{
    YuvChromaSubsampling, YuvConversionMode, YuvPlanarImageMut, YuvRange, YuvStandardMatrix,
    bgra_to_yuv420,
};

use crate::system::x11::screen::{Changes, Image, Rect, Size, bands};

const BLACK: u8 = 16;
const GREY: u8 = 128;

pub struct Canvas {
    /// Both sides are even: the colours are those of four pixels each.
    size: Size,
    /// Brightness of every pixel, then both colours.
    planes: Vec<u8>,
    /// What the screen was like when it was last painted.
    screen: Option<Size>,
    resizer: Resizer,
}

impl Canvas {
    /// For a screen of that size.
    pub fn new(screen: Size) -> Self {
        let size = Size {
            width: screen.width.next_multiple_of(2),
            height: screen.height.next_multiple_of(2),
        };
        let mut canvas = Self {
            size,
            planes: vec![0; (size.width * size.height) as usize * 3 / 2],
            screen: None,
            resizer: Resizer::new(),
        };
        canvas.clear();
        canvas
    }

    pub fn size(&self) -> Size {
        self.size
    }

    pub fn bytes(&self) -> &[u8] {
        &self.planes
    }

    /// Takes over what has changed of the screen.
    pub fn paint(&mut self, image: Image<'_>, changes: &Changes) {
        let whole = [image.size.whole()];
        let anew = self.screen.replace(image.size) != Some(image.size);
        if anew {
            self.clear();
        }
        let rects = if anew { &whole[..] } else { &changes.rects };
        if rects.is_empty() {
            return;
        }
        let fitted = fitted(image.size, self.size);
        let at = (
            even_below((self.size.width - fitted.width) / 2),
            even_below((self.size.height - fitted.height) / 2),
        );
        if fitted == image.size {
            let rects: Vec<_> = rects.iter().map(|rect| even(*rect, image.size)).collect();
            self.convert(image, &rects, at);
        } else {
            let pixels = self.resize(image, fitted);
            let small = Image {
                size: fitted,
                pixels: &pixels,
            };
            self.convert(small, &[fitted.whole()], at);
        }
    }

    fn clear(&mut self) {
        let (brightness, colours) = self
            .planes
            .split_at_mut((self.size.width * self.size.height) as usize);
        brightness.fill(BLACK);
        colours.fill(GREY);
    }

    /// Converts rectangles of an image that is seen from `at` on. All begin at even pixels.
    fn convert(&mut self, image: Image<'_>, rects: &[Rect], at: (u32, u32)) {
        for band in bands(rects) {
            // The library converts whole rows, all there are: it gets those of the band, and a place of their own.
            let rows = band.top as usize * image.stride()..band.bottom as usize * image.stride();
            let (width, height) = (image.size.width, band.bottom - band.top);
            let mut converted =
                YuvPlanarImageMut::alloc(width, height, YuvChromaSubsampling::Yuv420);
            bgra_to_yuv420(
                &mut converted,
                &image.pixels[rows],
                image.stride() as u32,
                YuvRange::Limited,
                YuvStandardMatrix::Bt709,
                YuvConversionMode::Balanced,
            )
            .expect("both hold these rows");
            let within = |rect: &&Rect| band.top <= rect.y && rect.bottom() <= band.bottom;
            for rect in rects.iter().filter(within) {
                self.take(&converted, band.top, *rect, at);
            }
        }
    }

    /// Takes a rectangle over from the converted rows that begin at `top`.
    fn take(&mut self, rows: &YuvPlanarImageMut<'_, u8>, top: u32, rect: Rect, at: (u32, u32)) {
        let pixels = (self.size.width * self.size.height) as usize;
        let (brightness, colours) = self.planes.split_at_mut(pixels);
        let (blue, red) = colours.split_at_mut(pixels / 4);
        let from = Rect {
            y: rect.y - top,
            ..rect
        };
        let to = (at.0 + rect.x, at.1 + rect.y);
        Plane {
            samples: brightness,
            stride: self.size.width,
        }
        .take(rows.y_plane.borrow(), rows.y_stride, from, to);
        let from = halved(from);
        let to = (to.0 / 2, to.1 / 2);
        for (samples, colour, stride) in [
            (blue, &rows.u_plane, rows.u_stride),
            (red, &rows.v_plane, rows.v_stride),
        ] {
            Plane {
                samples,
                stride: self.size.width / 2,
            }
            .take(colour.borrow(), stride, from, to);
        }
    }

    fn resize(&mut self, image: Image<'_>, to: Size) -> Vec<u8> {
        let Size { width, height } = image.size;
        let from = ImageRef::new(width, height, image.pixels, PixelType::U8x4)
            .expect("an image has all its pixels");
        let mut resized = Resized::new(to.width, to.height, PixelType::U8x4);
        let options = ResizeOptions::new()
            .resize_alg(ResizeAlg::Convolution(FilterType::Hamming))
            .use_alpha(false);
        self.resizer
            .resize(&from, &mut resized, &options)
            .expect("both are of one kind");
        resized.into_vec()
    }
}

/// Brightness, or a colour, of the whole canvas.
struct Plane<'a> {
    samples: &'a mut [u8],
    stride: u32,
}

impl Plane<'_> {
    /// Takes over what lies at `from` in rows of `stride`, to be seen from `to` on.
    fn take(self, rows: &[u8], stride: u32, from: Rect, to: (u32, u32)) {
        let columns = from.x as usize..from.right() as usize;
        let left = to.0 as usize;
        let old = self.samples.chunks_exact_mut(self.stride as usize);
        let new = rows.chunks_exact(stride as usize);
        let new = new.skip(from.y as usize).take(from.height as usize);
        for (row, new) in old.skip(to.1 as usize).zip(new) {
            row[left..left + columns.len()].copy_from_slice(&new[columns.clone()]);
        }
    }
}

/// The size that a screen is seen in: its own, or as large as there is room for.
fn fitted(screen: Size, canvas: Size) -> Size {
    if screen.width <= canvas.width && screen.height <= canvas.height {
        return screen;
    }
    let scaled = |side: u32, numerator: u32, denominator: u32| {
        let scaled = u64::from(side) * u64::from(numerator) / u64::from(denominator);
        even_below(scaled as u32).max(2)
    };
    let by_width = u64::from(canvas.width) * u64::from(screen.height)
        <= u64::from(canvas.height) * u64::from(screen.width);
    if by_width {
        Size {
            width: canvas.width,
            height: scaled(screen.height, canvas.width, screen.width),
        }
    } else {
        Size {
            width: scaled(screen.width, canvas.height, screen.height),
            height: canvas.height,
        }
    }
}

fn even_below(number: u32) -> u32 {
    number & !1
}

/// A little larger, so that it begins and ends at even pixels, or at the edge.
fn even(rect: Rect, size: Size) -> Rect {
    let (x, y) = (even_below(rect.x), even_below(rect.y));
    Rect {
        x,
        y,
        width: rect.right().next_multiple_of(2).min(size.width) - x,
        height: rect.bottom().next_multiple_of(2).min(size.height) - y,
    }
}

/// The same in a colour's plane.
fn halved(rect: Rect) -> Rect {
    let (x, y) = (rect.x / 2, rect.y / 2);
    Rect {
        x,
        y,
        width: rect.right().div_ceil(2) - x,
        height: rect.bottom().div_ceil(2) - y,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(width: u32, height: u32) -> Size {
        Size { width, height }
    }

    fn painted(canvas: &mut Canvas, screen: Size, color: [u8; 4], rects: Vec<Rect>) {
        let pixels = color.repeat((screen.width * screen.height) as usize);
        let image = Image {
            size: screen,
            pixels: &pixels,
        };
        canvas.paint(image, &Changes { rects });
    }

    fn brightness(canvas: &Canvas, x: u32, y: u32) -> u8 {
        canvas.bytes()[(y * canvas.size().width + x) as usize]
    }

    const WHITE: [u8; 4] = [255; 4];

    #[test]
    fn only_what_has_changed_is_converted() {
        let screen = size(64, 48);
        let mut canvas = Canvas::new(screen);
        painted(&mut canvas, screen, WHITE, vec![screen.whole()]);
        assert!(brightness(&canvas, 63, 47) > 230);
        let rect = Rect {
            x: 11,
            y: 21,
            width: 2,
            height: 3,
        };
        painted(&mut canvas, screen, [0; 4], vec![rect]);
        for (x, y, dark) in [
            (11, 21, true),
            (12, 23, true),
            (9, 21, false),
            (14, 21, false),
            (11, 19, false),
            (11, 24, false),
        ] {
            assert_eq!(brightness(&canvas, x, y) < 20, dark, "{x} {y}");
        }
        painted(&mut canvas, screen, [0; 4], Vec::new());
        assert!(brightness(&canvas, 0, 0) > 230);
    }

    #[test]
    fn a_screen_with_odd_sides_is_all_there() {
        let screen = size(33, 35);
        let mut canvas = Canvas::new(screen);
        assert_eq!(canvas.size(), size(34, 36));
        painted(&mut canvas, screen, WHITE, vec![screen.whole()]);
        assert!(brightness(&canvas, 32, 34) > 230);
        assert_eq!(brightness(&canvas, 33, 34), BLACK);
        let corner = Rect {
            x: 32,
            y: 34,
            width: 1,
            height: 1,
        };
        painted(&mut canvas, screen, [0; 4], vec![corner]);
        assert!(brightness(&canvas, 32, 34) < 20);
    }

    #[test]
    fn what_changes_at_the_lower_edge_is_converted() {
        let screen = size(64, 48);
        let mut canvas = Canvas::new(screen);
        painted(&mut canvas, screen, WHITE, vec![screen.whole()]);
        let rect = Rect {
            x: 30,
            y: 44,
            width: 4,
            height: 4,
        };
        painted(&mut canvas, screen, [0; 4], vec![rect]);
        for y in 44..48 {
            assert!(brightness(&canvas, 31, y) < 20, "{y}");
        }
        assert!(brightness(&canvas, 34, 47) > 230);
    }

    #[test]
    fn a_screen_of_another_size_is_in_the_middle() {
        let mut canvas = Canvas::new(size(64, 48));
        painted(&mut canvas, size(32, 24), WHITE, Vec::new());
        for (x, y, black) in [
            (15, 20, true),
            (16, 12, false),
            (47, 35, false),
            (48, 35, true),
            (20, 36, true),
        ] {
            assert_eq!(brightness(&canvas, x, y) == BLACK, black, "{x} {y}");
        }
        // Twice as wide as it is high: black above and below.
        painted(&mut canvas, size(256, 128), WHITE, Vec::new());
        for (x, y, black) in [(0, 7, true), (0, 8, false), (63, 39, false), (63, 40, true)] {
            assert_eq!(brightness(&canvas, x, y) == BLACK, black, "{x} {y}");
        }
        // And narrow.
        painted(&mut canvas, size(10, 3840), WHITE, Vec::new());
        assert_eq!(brightness(&canvas, 20, 20), BLACK);
        assert!(brightness(&canvas, 31, 20) > 230);
    }
}
