//! Captures complete images of the screen through shared memory.

use x11rb::{
    connection::{Connection, RequestConnection},
    protocol::{
        shm::{self, ConnectionExt as _},
        xfixes::{self, ConnectionExt as _},
        xproto::{ConnectionExt as _, ImageFormat, ImageOrder, Window},
    },
};

use super::{
    MAX_CAPTURE_ATTEMPTS, ScreenError,
    cursor::CursorShape,
    geometry::{Band, Point, Size},
    image::{BYTES_PER_PIXEL, Image},
    segment::Segment,
};
use crate::system::x11::server::{self, DisplayAccess, X11Error, XConnection};

/// Selects all bits of each pixel.
const ALL_PLANES: u32 = !0;

/// A screen whose image is captured on demand. All methods block, for milliseconds normally and
/// for seconds if the server does not respond.
pub struct Screen {
    pub(super) x: XConnection,
    pub(super) root: Window,
    pub(super) size: Size,
    pub(super) segment: Segment,
}

impl Screen {
    /// Connects to the server and attaches shared memory.
    ///
    /// # Errors
    /// If the server does not respond or cannot share memory.
    pub fn open(access: &DisplayAccess) -> Result<Self, ScreenError> {
        let x = server::connect(access)?;
        let setup = x.setup();
        let root = setup.roots.first().ok_or(X11Error::NoScreen)?;
        let format = setup
            .pixmap_formats
            .iter()
            .find(|format| format.depth == root.root_depth);
        if setup.image_byte_order != ImageOrder::LSB_FIRST
            || format.is_none_or(|format| format.bits_per_pixel != 32)
        {
            return Err(ScreenError::Unsupported("32 bits per pixel"));
        }
        let root = root.root;
        for extension in [shm::X11_EXTENSION_NAME, xfixes::X11_EXTENSION_NAME] {
            require_extension(&x, extension)?;
        }
        let version = x.shm_query_version()?.reply()?;
        if (version.major_version, version.minor_version) < (1, 2) {
            return Err(ScreenError::Unsupported("shared memory by file descriptor"));
        }
        // A server rejects XFIXES requests until the version is negotiated.
        x.xfixes_query_version(5, 0)?.reply()?;
        let size = screen_size(&x, root)?;
        let segment = attach_segment(&x, size)?;
        Ok(Self {
            x,
            root,
            size,
            segment,
        })
    }

    /// Captures the screen, with the cursor if `with_cursor` is set.
    ///
    /// # Errors
    /// If the server does not respond.
    pub fn capture(&mut self, with_cursor: bool) -> Result<Image<'_>, ScreenError> {
        for _ in 0..MAX_CAPTURE_ATTEMPTS {
            match self.try_capture(with_cursor) {
                Ok(()) => return Ok(self.image()),
                Err(error) if error.is_out_of_bounds() => {}
                Err(error) => return Err(error),
            }
        }
        Err(ScreenError::Resizing)
    }

    fn try_capture(&mut self, with_cursor: bool) -> Result<(), ScreenError> {
        self.update_size()?;
        let all_rows = [Band {
            top: 0,
            bottom: self.size.height,
        }];
        self.fetch(&all_rows)?;
        if with_cursor {
            let image = self.x.xfixes_get_cursor_image()?.reply()?;
            let pointer = Point {
                x: image.x.into(),
                y: image.y.into(),
            };
            CursorShape::from(image).draw(pointer, self.segment.bytes_mut(), self.size, &all_rows);
        }
        Ok(())
    }

    pub(super) fn image(&self) -> Image<'_> {
        Image {
            size: self.size,
            pixels: self.segment.bytes(),
        }
    }

    /// Reallocates the shared memory if the screen has another size now.
    pub(super) fn update_size(&mut self) -> Result<(), ScreenError> {
        let size = screen_size(&self.x, self.root)?;
        if size == self.size {
            return Ok(());
        }
        let segment = attach_segment(&self.x, size)?;
        std::mem::replace(&mut self.segment, segment).detach(&self.x)?;
        self.size = size;
        Ok(())
    }

    /// Fetches these rows into the shared memory and waits for completion.
    pub(super) fn fetch(&self, bands: &[Band]) -> Result<(), ScreenError> {
        let stride = self.size.width as usize * BYTES_PER_PIXEL;
        let mut requests = Vec::with_capacity(bands.len());
        for band in bands {
            requests.push(self.x.shm_get_image(
                self.root,
                0,
                band.top as i16,
                self.size.width as u16,
                (band.bottom - band.top) as u16,
                ALL_PLANES,
                ImageFormat::Z_PIXMAP.into(),
                self.segment.id(),
                (band.top as usize * stride) as u32,
            )?);
        }
        // Waits for all replies even if one fails: the server must not write after the return.
        let replies: Vec<_> = requests.into_iter().map(|cookie| cookie.reply()).collect();
        for reply in replies {
            reply?;
        }
        Ok(())
    }
}

pub(super) fn require_extension(
    x: &XConnection,
    extension: &'static str,
) -> Result<(), ScreenError> {
    match x.extension_information(extension)? {
        Some(_) => Ok(()),
        None => Err(ScreenError::Unsupported(extension)),
    }
}

fn screen_size(x: &XConnection, root: Window) -> Result<Size, ScreenError> {
    let geometry = x.get_geometry(root)?.reply()?;
    Ok(Size {
        width: geometry.width.into(),
        height: geometry.height.into(),
    })
}

fn attach_segment(x: &XConnection, size: Size) -> Result<Segment, ScreenError> {
    let bytes = size.width as usize * size.height as usize * BYTES_PER_PIXEL;
    Ok(Segment::attach(x, bytes)?)
}
