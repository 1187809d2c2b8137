//! Follows a screen: keeps its image up to date at the cost of what changes (XDamage).

use std::{os::fd::AsFd, time::Instant};

use x11rb::{
    connection::Connection,
    protocol::{
        Event,
        damage::{self, ConnectionExt as _, ReportLevel},
        xfixes::{self, ConnectionExt as _, CursorNotifyMask},
        xproto::{ChangeWindowAttributesAux, ConnectionExt as _, EventMask},
    },
};

use super::{
    MAX_CAPTURE_ATTEMPTS, ScreenError,
    capture::{Screen, require_extension},
    cursor::{CursorShape, PointerImage},
    geometry::{Point, Rect, bands},
    image::Image,
};
use crate::system::{
    sync::{poll::readable, waker::Waker},
    x11::server::{DisplayAccess, X11Error},
};

/// Reported rectangles above which only the rectangle around all of them is used.
const MAX_RECTS: usize = 64;

/// Why [`WatchedScreen::wait`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitResult {
    Changed,
    /// The waker was used.
    Woken,
    Timeout,
}

/// The pointer, for consumers that show it separately from the image.
pub struct Pointer {
    pub x: u32,
    pub y: u32,
    /// The pointer's image, if it has changed since the last call.
    pub image: Option<PointerImage>,
}

/// A screen whose image is updated incrementally.
pub struct WatchedScreen {
    screen: Screen,
    damage: damage::Damage,
    region: xfixes::Region,
    waker: Waker,
    /// Whether something was drawn since the last update.
    damaged: bool,
    /// The complete image must be fetched.
    stale: bool,
    /// The cursor's shape has changed since the last update.
    cursor_changed: bool,
    shape: Option<CursorShape>,
    /// The area where the image includes the cursor.
    drawn_cursor: Option<Rect>,
}

impl WatchedScreen {
    /// Opens the screen and subscribes to its changes.
    ///
    /// # Errors
    /// As [`Screen::open`], or if the server does not support damage events.
    pub fn open(access: &DisplayAccess) -> Result<Self, ScreenError> {
        Self::open_with_waker(access, Waker::new()?)
    }

    /// Opens the screen as [`Self::open`]; `waker` interrupts its waits.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn open_with_waker(access: &DisplayAccess, waker: Waker) -> Result<Self, ScreenError> {
        let screen = Screen::open(access)?;
        let x = &screen.x;
        require_extension(x, damage::X11_EXTENSION_NAME)?;
        x.damage_query_version(1, 1)?.reply()?;
        let new_id = || x.generate_id().map_err(X11Error::from);
        let (damage, region) = (new_id()?, new_id()?);
        // Includes changes of the root window's size.
        let events = ChangeWindowAttributesAux::new().event_mask(EventMask::STRUCTURE_NOTIFY);
        let root = screen.root;
        x.change_window_attributes(root, &events)?.check()?;
        x.xfixes_select_cursor_input(root, CursorNotifyMask::DISPLAY_CURSOR)?
            .check()?;
        x.xfixes_create_region(region, &[])?.check()?;
        // Reports damage once until it is subtracted, so that events do not accumulate.
        x.damage_create(damage, root, ReportLevel::NON_EMPTY)?
            .check()?;
        Ok(Self {
            damage,
            region,
            waker,
            damaged: true,
            stale: true,
            cursor_changed: true,
            shape: None,
            drawn_cursor: None,
            screen,
        })
    }

    /// Returns the waker that interrupts [`Self::wait`] from another thread.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Returns the complete image as of the last update.
    pub fn image(&self) -> Image<'_> {
        self.screen.image()
    }

    /// Waits until the screen has changed or the waker is used, at most until `deadline`. Pointer
    /// movement does not end the wait; updates detect it.
    ///
    /// # Errors
    /// If the connection is lost.
    pub fn wait(&mut self, deadline: Instant) -> Result<WaitResult, ScreenError> {
        loop {
            if self.waker.take() {
                return Ok(WaitResult::Woken);
            }
            self.drain_events()?;
            if self.damaged || self.stale || self.cursor_changed {
                return Ok(WaitResult::Changed);
            }
            self.screen.x.flush()?;
            let fds = [self.screen.x.stream().as_fd(), self.waker.as_fd()];
            if readable(fds, Some(deadline))? == [false, false] {
                return Ok(WaitResult::Timeout);
            }
        }
    }

    /// Brings the image up to date, with the cursor if `with_cursor` is set, and returns the areas
    /// that may have changed. These are few and may overlap.
    ///
    /// # Errors
    /// If the connection is lost or the server does not respond.
    pub fn update(&mut self, with_cursor: bool) -> Result<Vec<Rect>, ScreenError> {
        for _ in 0..MAX_CAPTURE_ATTEMPTS {
            match self.try_update(with_cursor) {
                Ok(rects) => return Ok(rects),
                Err(error) => {
                    // The damage was subtracted but its pixels have not been fetched.
                    self.stale = true;
                    if !error.is_out_of_bounds() {
                        return Err(error);
                    }
                }
            }
        }
        Err(ScreenError::Resizing)
    }

    fn try_update(&mut self, with_cursor: bool) -> Result<Vec<Rect>, ScreenError> {
        self.drain_events()?;
        let stale = self.stale;
        if stale {
            self.screen.update_size()?;
        }
        let mut rects = self.take_damage()?;
        if stale {
            rects = vec![self.screen.size.to_rect()];
        }
        let pointer = if with_cursor {
            Some(self.query_pointer()?)
        } else {
            self.discard_changed_cursor();
            None
        };
        let size = self.screen.size;
        let cursor = match (&self.shape, pointer) {
            (Some(shape), Some((position, _))) => shape.visible_rect(position, size),
            _ => None,
        };
        let cursor_changed = pointer.is_some_and(|(_, changed)| changed);
        if !stale && (cursor != self.drawn_cursor || cursor_changed) {
            rects.extend(self.drawn_cursor);
            rects.extend(cursor);
        }
        let bands = bands(&rects);
        self.screen.fetch(&bands)?;
        if let (Some(shape), Some((position, _))) = (&self.shape, pointer) {
            shape.draw(position, self.screen.segment.bytes_mut(), size, &bands);
        }
        self.drawn_cursor = cursor;
        self.stale = false;
        Ok(rects)
    }

    /// Returns the pointer's position and, if it has changed, its image.
    ///
    /// # Errors
    /// If the connection is lost.
    pub fn pointer(&mut self) -> Result<Pointer, ScreenError> {
        // Events accumulate if a consumer polls only the pointer for a while.
        self.drain_events()?;
        let (position, changed) = self.query_pointer()?;
        let shape = self.shape.as_ref().filter(|_| changed);
        let image = shape.and_then(CursorShape::to_image);
        Ok(Pointer {
            x: position.x.try_into().unwrap_or(0),
            y: position.y.try_into().unwrap_or(0),
            image,
        })
    }

    /// Records the events received so far.
    fn drain_events(&mut self) -> Result<(), ScreenError> {
        while let Some(event) = self.screen.x.poll_for_event()? {
            match event {
                Event::DamageNotify(_) => self.damaged = true,
                Event::ConfigureNotify(event) if event.window == self.screen.root => {
                    self.stale = true;
                }
                Event::XfixesCursorNotify(_) => self.cursor_changed = true,
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the damaged rectangles and resets the damage, so that the server reports the next.
    fn take_damage(&mut self) -> Result<Vec<Rect>, ScreenError> {
        if !std::mem::take(&mut self.damaged) {
            return Ok(Vec::new());
        }
        let x = &self.screen.x;
        x.damage_subtract(self.damage, x11rb::NONE, self.region)?;
        let region = x.xfixes_fetch_region(self.region)?.reply()?;
        let extents = [region.extents];
        let rects = match region.rectangles.len() {
            0..=MAX_RECTS => &region.rectangles[..],
            _ => &extents[..],
        };
        let clipped = rects.iter().filter_map(|rect| {
            let (width, height) = (rect.width.into(), rect.height.into());
            let size = self.screen.size;
            Rect::clipped(rect.x.into(), rect.y.into(), width, height, size)
        });
        Ok(clipped.collect())
    }

    /// Returns the pointer's position, and whether its shape was fetched anew.
    fn query_pointer(&mut self) -> Result<(Point, bool), ScreenError> {
        self.discard_changed_cursor();
        let x = &self.screen.x;
        if self.shape.is_some() {
            let pointer = x.query_pointer(self.screen.root)?.reply()?;
            let position = Point {
                x: pointer.root_x.into(),
                y: pointer.root_y.into(),
            };
            return Ok((position, false));
        }
        let image = x.xfixes_get_cursor_image()?.reply()?;
        let position = Point {
            x: image.x.into(),
            y: image.y.into(),
        };
        self.shape = Some(image.into());
        Ok((position, true))
    }

    fn discard_changed_cursor(&mut self) {
        if std::mem::take(&mut self.cursor_changed) {
            self.shape = None;
        }
    }
}
