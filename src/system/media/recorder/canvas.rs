//! The recorded frame: the screen as I420 pixels, converted only where it has changed.
//!
//! A recording keeps its initial size. A screen that is resized meanwhile is centred in it, and
//! scaled down if it is larger.

use fast_image_resize::{
    FilterType, PixelType, ResizeAlg, ResizeOptions, Resizer,
    images::{Image as Resized, ImageRef},
};
use yuv::{
    YuvChromaSubsampling, YuvConversionMode, YuvPlanarImageMut, YuvRange, YuvStandardMatrix,
    bgra_to_yuv420,
};

use crate::system::x11::screen::{Image, Rect, Size, bands};

/// The luma sample of black.
const BLACK: u8 = 16;
/// The chroma sample of grey.
const GREY: u8 = 128;

/// The pixels of the recorded frame.
pub(super) struct Canvas {
    /// Both sides are even: each chroma sample covers four pixels.
    size: Size,
    /// The luma plane, then both chroma planes.
    planes: Vec<u8>,
    /// The screen's size when it was last painted.
    screen: Option<Size>,
    resizer: Resizer,
}

impl Canvas {
    /// Returns a black canvas for a screen of that size.
    pub(super) fn new(screen: Size) -> Self {
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

    pub(super) fn size(&self) -> Size {
        self.size
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.planes
    }

    /// Updates the canvas with the changed areas of the screen.
    pub(super) fn paint(&mut self, image: Image<'_>, changed: &[Rect]) {
        let everything = [image.size.to_rect()];
        let resized = self.screen.replace(image.size) != Some(image.size);
        if resized {
            self.clear();
        }
        let rects = if resized { &everything[..] } else { changed };
        if rects.is_empty() {
            return;
        }
        let fitted = fit_size(image.size, self.size);
        let offset = (
            round_down_to_even((self.size.width - fitted.width) / 2),
            round_down_to_even((self.size.height - fitted.height) / 2),
        );
        if fitted == image.size {
            let rects: Vec<_> = rects
                .iter()
                .map(|rect| rect.aligned_to_even(image.size))
                .collect();
            self.convert(image, &rects, offset);
        } else {
            let pixels = self.resize(image, fitted);
            let resized = Image {
                size: fitted,
                pixels: &pixels,
            };
            self.convert(resized, &[fitted.to_rect()], offset);
        }
    }

    fn clear(&mut self) {
        let (luma, chroma) = self
            .planes
            .split_at_mut((self.size.width * self.size.height) as usize);
        luma.fill(BLACK);
        chroma.fill(GREY);
    }

    /// Converts rectangles of an image that is placed at `offset`. They must start at even pixels.
    #[expect(
        clippy::expect_used,
        reason = "the buffers are allocated for the rows they receive"
    )]
    fn convert(&mut self, image: Image<'_>, rects: &[Rect], offset: (u32, u32)) {
        for band in bands(rects) {
            // The library converts complete rows only.
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
            .expect("both buffers hold the rows of the band");
            let in_band = |rect: &&Rect| band.top <= rect.y && rect.bottom() <= band.bottom;
            for rect in rects.iter().filter(in_band) {
                self.copy_rect(&converted, band.top, *rect, offset);
            }
        }
    }

    /// Copies a rectangle from converted rows, the first of which is row `top` of the image.
    fn copy_rect(
        &mut self,
        rows: &YuvPlanarImageMut<'_, u8>,
        top: u32,
        rect: Rect,
        offset: (u32, u32),
    ) {
        let pixels = (self.size.width * self.size.height) as usize;
        let (luma, chroma) = self.planes.split_at_mut(pixels);
        let (blue, red) = chroma.split_at_mut(pixels / 4);
        let source = Rect {
            y: rect.y - top,
            ..rect
        };
        let target = (offset.0 + rect.x, offset.1 + rect.y);
        Plane {
            samples: luma,
            stride: self.size.width,
        }
        .copy_from(rows.y_plane.borrow(), rows.y_stride, source, target);
        let source = source.halved();
        let target = (target.0 / 2, target.1 / 2);
        for (samples, plane, stride) in [
            (blue, &rows.u_plane, rows.u_stride),
            (red, &rows.v_plane, rows.v_stride),
        ] {
            Plane {
                samples,
                stride: self.size.width / 2,
            }
            .copy_from(plane.borrow(), stride, source, target);
        }
    }

    #[expect(
        clippy::expect_used,
        reason = "an image has all its pixels, and both have the same pixel type"
    )]
    fn resize(&mut self, image: Image<'_>, target: Size) -> Vec<u8> {
        let Size { width, height } = image.size;
        let source = ImageRef::new(width, height, image.pixels, PixelType::U8x4)
            .expect("an image has all its pixels");
        let mut resized = Resized::new(target.width, target.height, PixelType::U8x4);
        let options = ResizeOptions::new()
            .resize_alg(ResizeAlg::Convolution(FilterType::Hamming))
            .use_alpha(false);
        self.resizer
            .resize(&source, &mut resized, &options)
            .expect("both have the same pixel type");
        resized.into_vec()
    }
}

/// A plane of samples of the canvas.
struct Plane<'a> {
    samples: &'a mut [u8],
    stride: u32,
}

impl Plane<'_> {
    /// Copies the area `source` of rows of `stride` samples to the position `target`.
    fn copy_from(self, rows: &[u8], stride: u32, source: Rect, target: (u32, u32)) {
        let columns = source.x as usize..source.right() as usize;
        let left = target.0 as usize;
        let old_rows = self.samples.chunks_exact_mut(self.stride as usize);
        let new_rows = rows
            .chunks_exact(stride as usize)
            .skip(source.y as usize)
            .take(source.height as usize);
        for (old, new) in old_rows.skip(target.1 as usize).zip(new_rows) {
            old[left..left + columns.len()].copy_from_slice(&new[columns.clone()]);
        }
    }
}

/// Returns the size at which a screen is shown: its own, or the largest that fits the canvas.
fn fit_size(screen: Size, canvas: Size) -> Size {
    if screen.width <= canvas.width && screen.height <= canvas.height {
        return screen;
    }
    let scaled = |side: u32, numerator: u32, denominator: u32| {
        let scaled = u64::from(side) * u64::from(numerator) / u64::from(denominator);
        round_down_to_even(scaled as u32).max(2)
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

fn round_down_to_even(number: u32) -> u32 {
    number & !1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size(width: u32, height: u32) -> Size {
        Size { width, height }
    }

    fn paint(canvas: &mut Canvas, screen: Size, color: [u8; 4], rects: Vec<Rect>) {
        let pixels = color.repeat((screen.width * screen.height) as usize);
        let image = Image {
            size: screen,
            pixels: &pixels,
        };
        canvas.paint(image, &rects);
    }

    fn luma(canvas: &Canvas, x: u32, y: u32) -> u8 {
        canvas.bytes()[(y * canvas.size().width + x) as usize]
    }

    const WHITE: [u8; 4] = [255; 4];

    #[test]
    fn only_changed_areas_are_converted() {
        let screen = size(64, 48);
        let mut canvas = Canvas::new(screen);
        paint(&mut canvas, screen, WHITE, vec![screen.to_rect()]);
        assert!(luma(&canvas, 63, 47) > 230);
        let rect = Rect {
            x: 11,
            y: 21,
            width: 2,
            height: 3,
        };
        paint(&mut canvas, screen, [0; 4], vec![rect]);
        for (x, y, dark) in [
            (11, 21, true),
            (12, 23, true),
            (9, 21, false),
            (14, 21, false),
            (11, 19, false),
            (11, 24, false),
        ] {
            assert_eq!(luma(&canvas, x, y) < 20, dark, "{x} {y}");
        }
        paint(&mut canvas, screen, [0; 4], Vec::new());
        assert!(luma(&canvas, 0, 0) > 230);
    }

    #[test]
    fn screen_with_odd_sides_is_complete() {
        let screen = size(33, 35);
        let mut canvas = Canvas::new(screen);
        assert_eq!(canvas.size(), size(34, 36));
        paint(&mut canvas, screen, WHITE, vec![screen.to_rect()]);
        assert!(luma(&canvas, 32, 34) > 230);
        assert_eq!(luma(&canvas, 33, 34), BLACK);
        let corner = Rect {
            x: 32,
            y: 34,
            width: 1,
            height: 1,
        };
        paint(&mut canvas, screen, [0; 4], vec![corner]);
        assert!(luma(&canvas, 32, 34) < 20);
    }

    #[test]
    fn changes_at_the_bottom_edge_are_converted() {
        let screen = size(64, 48);
        let mut canvas = Canvas::new(screen);
        paint(&mut canvas, screen, WHITE, vec![screen.to_rect()]);
        let rect = Rect {
            x: 30,
            y: 44,
            width: 4,
            height: 4,
        };
        paint(&mut canvas, screen, [0; 4], vec![rect]);
        for y in 44..48 {
            assert!(luma(&canvas, 31, y) < 20, "{y}");
        }
        assert!(luma(&canvas, 34, 47) > 230);
    }

    #[test]
    fn resized_screen_is_centred() {
        let mut canvas = Canvas::new(size(64, 48));
        paint(&mut canvas, size(32, 24), WHITE, Vec::new());
        for (x, y, black) in [
            (15, 20, true),
            (16, 12, false),
            (47, 35, false),
            (48, 35, true),
            (20, 36, true),
        ] {
            assert_eq!(luma(&canvas, x, y) == BLACK, black, "{x} {y}");
        }
        // Twice as wide as high: black above and below.
        paint(&mut canvas, size(256, 128), WHITE, Vec::new());
        for (x, y, black) in [(0, 7, true), (0, 8, false), (63, 39, false), (63, 40, true)] {
            assert_eq!(luma(&canvas, x, y) == BLACK, black, "{x} {y}");
        }
        // Narrow: black on both sides.
        paint(&mut canvas, size(10, 3840), WHITE, Vec::new());
        assert_eq!(luma(&canvas, 20, 20), BLACK);
        assert!(luma(&canvas, 31, 20) > 230);
    }
}
