//! What is seen on an X server's screen: its pixels through shared memory, the cursor over them, and what has changed.

use std::{io, os::fd::AsFd, time::Instant};

use x11rb::{
    connection::{Connection, RequestConnection},
    errors::{ConnectionError, ReplyError},
    protocol::{
        ErrorKind, Event,
        damage::{self, ConnectionExt as _, ReportLevel},
        shm::{self, ConnectionExt as _},
        xfixes::{self, ConnectionExt as _, CursorNotifyMask},
        xproto::{
            ChangeWindowAttributesAux, ConnectionExt as _, EventMask, ImageFormat, ImageOrder,
            Window,
        },
    },
};

use crate::system::{
    sync::poll::readable,
    sync::waker::Waker,
    x11::server::{self, Access, Link, X11Error},
};

mod cursor;
mod geometry;
mod image;
mod segment;

pub(in crate::system) use geometry::bands;
pub use geometry::{Rect, Size};
pub use image::{Image, PIXEL, decode_png};

pub use cursor::PointerImage;

use cursor::{Point, Shape};
use geometry::Band;
use segment::Segment;

/// A screen that changes its size each time it is looked at is given up.
const ATTEMPTS: usize = 5;
/// Beyond this many rectangles the one around them is no worse.
const MAX_RECTS: usize = 64;
/// How pixels are asked for: all their bits.
const ALL_PLANES: u32 = !0;

#[derive(Debug, thiserror::Error)]
pub enum ScreenError {
    #[error(transparent)]
    X11(#[from] X11Error),
    #[error("the screen cannot be waited for: {0}")]
    Wait(#[from] io::Error),
    #[error("the X server lacks {0}")]
    Lacks(&'static str),
    #[error("the screen did not keep its size for long enough to be looked at")]
    Unsteady,
}

impl From<ConnectionError> for ScreenError {
    fn from(error: ConnectionError) -> Self {
        Self::X11(error.into())
    }
}

impl From<ReplyError> for ScreenError {
    fn from(error: ReplyError) -> Self {
        Self::X11(error.into())
    }
}

impl ScreenError {
    /// Whether the screen has become smaller while it was looked at.
    fn is_misfit(&self) -> bool {
        matches!(
            self,
            Self::X11(X11Error::Reply(ReplyError::X11Error(error)))
                if matches!(error.error_kind, ErrorKind::Match | ErrorKind::Value)
        )
    }
}

/// A screen as it is whenever it is looked at. Everything blocks, for milliseconds; where the server answers nobody, for seconds.
pub struct Screen {
    link: Link,
    root: Window,
    size: Size,
    segment: Segment,
}

impl Screen {
    /// # Errors
    /// Where the server does not answer, or cannot share memory.
    pub fn open(access: &Access) -> Result<Self, ScreenError> {
        let link = server::connect(access)?;
        let setup = link.setup();
        let root = setup.roots.first().ok_or(X11Error::NoScreen)?;
        let format = setup
            .pixmap_formats
            .iter()
            .find(|format| format.depth == root.root_depth);
        if setup.image_byte_order != ImageOrder::LSB_FIRST
            || format.is_none_or(|format| format.bits_per_pixel != 32)
        {
            return Err(ScreenError::Lacks("32 bits per pixel"));
        }
        let root = root.root;
        for extension in [shm::X11_EXTENSION_NAME, xfixes::X11_EXTENSION_NAME] {
            require(&link, extension)?;
        }
        let version = link.shm_query_version()?.reply()?;
        if (version.major_version, version.minor_version) < (1, 2) {
            return Err(ScreenError::Lacks("shared memory by descriptor"));
        }
        // Requests of an extension are refused before its version is agreed on.
        link.xfixes_query_version(5, 0)?.reply()?;
        let size = size_of(&link, root)?;
        let segment = segment_for(&link, size)?;
        Ok(Self {
            link,
            root,
            size,
            segment,
        })
    }

    /// The whole screen as it is now, with the cursor over it where that is wanted.
    ///
    /// # Errors
    /// Where the server does not answer.
    pub fn look(&mut self, cursor: bool) -> Result<Image<'_>, ScreenError> {
        for _ in 0..ATTEMPTS {
            match self.try_look(cursor) {
                Ok(()) => return Ok(self.image()),
                Err(error) if error.is_misfit() => {}
                Err(error) => return Err(error),
            }
        }
        Err(ScreenError::Unsteady)
    }

    fn try_look(&mut self, cursor: bool) -> Result<(), ScreenError> {
        self.fit()?;
        let whole = [Band {
            top: 0,
            bottom: self.size.height,
        }];
        self.fetch(&whole)?;
        if cursor {
            let image = self.link.xfixes_get_cursor_image()?.reply()?;
            let pointer = (image.x.into(), image.y.into());
            Shape::from(image).draw(pointer, self.segment.bytes_mut(), self.size, &whole);
        }
        Ok(())
    }

    fn image(&self) -> Image<'_> {
        Image {
            size: self.size,
            pixels: self.segment.bytes(),
        }
    }

    /// Makes room for the size the screen has now.
    fn fit(&mut self) -> Result<(), ScreenError> {
        let size = size_of(&self.link, self.root)?;
        if size == self.size {
            return Ok(());
        }
        let segment = segment_for(&self.link, size)?;
        std::mem::replace(&mut self.segment, segment).detach(&self.link)?;
        self.size = size;
        Ok(())
    }

    /// Has the server write these rows to their place in the memory, and waits until it has.
    fn fetch(&self, bands: &[Band]) -> Result<(), ScreenError> {
        let stride = self.size.width as usize * PIXEL;
        let mut asked = Vec::with_capacity(bands.len());
        for band in bands {
            asked.push(self.link.shm_get_image(
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
        // All of them, so that nothing is written any more after the first that fails.
        let answers: Vec<_> = asked.into_iter().map(|cookie| cookie.reply()).collect();
        for answer in answers {
            answer?;
        }
        Ok(())
    }
}

/// What woke who waited for a screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    Changed,
    Called,
    Timeout,
}

/// What is new on a screen since the last time.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    /// What may look different; nothing else does. A few rectangles, which may overlap.
    pub rects: Vec<Rect>,
}

impl Changes {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rects.is_empty()
    }
}

/// The pointer, for who shows it apart from the image.
pub struct Pointer {
    pub x: u32,
    pub y: u32,
    /// What it looks like, where that is news.
    pub image: Option<PointerImage>,
}

/// A screen that is followed: its image is kept up to date at the cost of what changes (XDamage).
pub struct WatchedScreen {
    screen: Screen,
    damage: damage::Damage,
    region: xfixes::Region,
    waker: Waker,
    /// Something was drawn on since the last update.
    damaged: bool,
    /// All of the image must be fetched.
    stale: bool,
    /// The cursor looks different since the last update.
    reshaped: bool,
    shape: Option<Shape>,
    /// Where the image has the cursor drawn.
    drawn: Option<Rect>,
}

impl WatchedScreen {
    /// # Errors
    /// As [`Screen::open`]; or where the server does not tell changes.
    pub fn open(access: &Access) -> Result<Self, ScreenError> {
        Self::open_woken_by(access, Waker::new()?)
    }

    /// As [`Self::open`]; the calls are those of a waker there is already.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_woken_by(access: &Access, waker: Waker) -> Result<Self, ScreenError> {
        let screen = Screen::open(access)?;
        let link = &screen.link;
        require(link, damage::X11_EXTENSION_NAME)?;
        link.damage_query_version(1, 1)?.reply()?;
        let new_id = || link.generate_id().map_err(X11Error::from);
        let (damage, region) = (new_id()?, new_id()?);
        // Its size is told as well.
        let events = ChangeWindowAttributesAux::new().event_mask(EventMask::STRUCTURE_NOTIFY);
        let root = screen.root;
        link.change_window_attributes(root, &events)?.check()?;
        link.xfixes_select_cursor_input(root, CursorNotifyMask::DISPLAY_CURSOR)?
            .check()?;
        link.xfixes_create_region(region, &[])?.check()?;
        // Told once, until it is taken: nothing piles up while nobody looks.
        link.damage_create(damage, root, ReportLevel::NON_EMPTY)?
            .check()?;
        Ok(Self {
            damage,
            region,
            waker,
            damaged: true,
            stale: true,
            reshaped: true,
            shape: None,
            drawn: None,
            screen,
        })
    }

    /// Ends waits from another thread.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// The whole screen as of the last update.
    pub fn image(&self) -> Image<'_> {
        self.screen.image()
    }

    /// Waits until something has changed or somebody calls, at most until `deadline`. That the pointer has moved is not told: updates find it.
    ///
    /// # Errors
    /// Where the server is gone.
    pub fn wait(&mut self, deadline: Instant) -> Result<Woken, ScreenError> {
        loop {
            if self.waker.take() {
                return Ok(Woken::Called);
            }
            self.hear()?;
            if self.damaged || self.stale || self.reshaped {
                return Ok(Woken::Changed);
            }
            self.screen.link.flush()?;
            let fds = [self.screen.link.stream().as_fd(), self.waker.as_fd()];
            if readable(fds, Some(deadline))? == [false, false] {
                return Ok(Woken::Timeout);
            }
        }
    }

    /// Brings the image up to date, with the cursor over it where that is wanted, and tells what is new in it.
    ///
    /// # Errors
    /// Where the server is gone, or does not answer.
    pub fn update(&mut self, cursor: bool) -> Result<Changes, ScreenError> {
        for _ in 0..ATTEMPTS {
            match self.try_update(cursor) {
                Ok(changes) => return Ok(changes),
                Err(error) => {
                    // What was taken as changed has not been fetched.
                    self.stale = true;
                    if !error.is_misfit() {
                        return Err(error);
                    }
                }
            }
        }
        Err(ScreenError::Unsteady)
    }

    fn try_update(&mut self, cursor: bool) -> Result<Changes, ScreenError> {
        self.hear()?;
        let stale = self.stale;
        if stale {
            self.screen.fit()?;
        }
        let mut rects = self.take_damage()?;
        if stale {
            rects = vec![self.screen.size.whole()];
        }
        let pointer = self.look_at_pointer(cursor)?;
        let size = self.screen.size;
        let place = match (&self.shape, pointer) {
            (Some(shape), Some((pointer, _))) => shape.place(pointer, size),
            _ => None,
        };
        let reshaped = pointer.is_some_and(|(_, reshaped)| reshaped);
        if !stale && (place != self.drawn || reshaped) {
            rects.extend(self.drawn);
            rects.extend(place);
        }
        let bands = bands(&rects);
        self.screen.fetch(&bands)?;
        if let (Some(shape), Some((pointer, _))) = (&self.shape, pointer) {
            shape.draw(pointer, self.screen.segment.bytes_mut(), size, &bands);
        }
        self.drawn = place;
        self.stale = false;
        Ok(Changes { rects })
    }

    /// Where the pointer is and what it looks like, for who shows the image without the cursor over it.
    ///
    /// # Errors
    /// Where the server is gone.
    pub fn pointer(&mut self) -> Result<Pointer, ScreenError> {
        // Who only follows the pointer for a while takes what is told as well, or it would pile up.
        self.hear()?;
        let Some((at, reshaped)) = self.look_at_pointer(true)? else {
            return Err(ScreenError::Lacks("a pointer"));
        };
        let shape = self.shape.as_ref().filter(|_| reshaped);
        let image = shape.and_then(Shape::to_image);
        Ok(Pointer {
            x: at.0.try_into().unwrap_or(0),
            y: at.1.try_into().unwrap_or(0),
            image,
        })
    }

    /// Takes what the server has told meanwhile.
    fn hear(&mut self) -> Result<(), ScreenError> {
        while let Some(event) = self.screen.link.poll_for_event()? {
            match event {
                Event::DamageNotify(_) => self.damaged = true,
                Event::ConfigureNotify(event) if event.window == self.screen.root => {
                    self.stale = true;
                }
                Event::XfixesCursorNotify(_) => self.reshaped = true,
                _ => {}
            }
        }
        Ok(())
    }

    /// Where something was drawn since the last time. From now on the server notes anew.
    fn take_damage(&mut self) -> Result<Vec<Rect>, ScreenError> {
        if !std::mem::take(&mut self.damaged) {
            return Ok(Vec::new());
        }
        let link = &self.screen.link;
        link.damage_subtract(self.damage, x11rb::NONE, self.region)?;
        let region = link.xfixes_fetch_region(self.region)?.reply()?;
        let all = [region.extents];
        let told = match region.rectangles.len() {
            0..=MAX_RECTS => &region.rectangles[..],
            _ => &all[..],
        };
        let on_screen = told.iter().filter_map(|rect| {
            let (width, height) = (rect.width.into(), rect.height.into());
            Rect::clipped(
                rect.x.into(),
                rect.y.into(),
                width,
                height,
                self.screen.size,
            )
        });
        Ok(on_screen.collect())
    }

    /// Where the pointer is, and whether it looks different from before; nothing where no cursor is wanted.
    fn look_at_pointer(&mut self, wanted: bool) -> Result<Option<(Point, bool)>, ScreenError> {
        let link = &self.screen.link;
        if std::mem::take(&mut self.reshaped) {
            self.shape = None;
        }
        if !wanted {
            return Ok(None);
        }
        if self.shape.is_some() {
            let at = link.query_pointer(self.screen.root)?.reply()?;
            return Ok(Some(((at.root_x.into(), at.root_y.into()), false)));
        }
        let image = link.xfixes_get_cursor_image()?.reply()?;
        let pointer = (image.x.into(), image.y.into());
        self.shape = Some(image.into());
        Ok(Some((pointer, true)))
    }
}

fn require(link: &Link, extension: &'static str) -> Result<(), ScreenError> {
    match link.extension_information(extension)? {
        Some(_) => Ok(()),
        None => Err(ScreenError::Lacks(extension)),
    }
}

fn size_of(link: &Link, root: Window) -> Result<Size, ScreenError> {
    let geometry = link.get_geometry(root)?.reply()?;
    Ok(Size {
        width: geometry.width.into(),
        height: geometry.height.into(),
    })
}

fn segment_for(link: &Link, size: Size) -> Result<Segment, ScreenError> {
    let bytes = size.width as usize * size.height as usize * PIXEL;
    Ok(Segment::attach(link, bytes)?)
}
