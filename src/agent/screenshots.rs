//! Takes screenshots: of the X server's screen, or of the front page if the browser is headless.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{Mutex, OwnedMutexGuard},
    time::{self, Instant},
};
use tokio_util::task::AbortOnDropHandle;

use super::{
    chromium::{Chromium, NoScreen, front::FrontError},
    cursor::CursorShown,
};
use crate::system::x11::{
    screen::{Image, Rect, Screen, ScreenError, Size, decode_png},
    server::DisplayAccess,
};

/// The time a request waits for the screenshots before it. Each takes some ten milliseconds.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(10);
/// The time after the last screenshot when the connection is closed: it holds memory for the pixels
/// of the screen.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum ScreenshotError {
    #[error(transparent)]
    NoScreen(#[from] NoScreen),
    #[error("must lie within the screen, which has {} × {} pixels", .0.width, .0.height)]
    OutOfBounds(Size),
    #[error("other screenshots are in progress")]
    Busy,
    #[error("cannot capture the screen: {0}")]
    Screen(#[from] ScreenError),
    #[error("cannot capture the page: {0}")]
    Page(#[from] FrontError),
    #[error("cannot decode Chromium's image of the page: {0}")]
    Decode(String),
    #[error("screenshot task panicked: {0}")]
    Panic(String),
}

/// Takes screenshots over one connection that stays open while there are any. Clones share it.
#[derive(Clone)]
pub struct Screenshots {
    chromium: Chromium,
    cursor: CursorShown,
    connection: SharedConnection,
}

type SharedConnection = Arc<Mutex<Option<ScreenConnection>>>;

struct ScreenConnection {
    access: DisplayAccess,
    screen: Screen,
    used_at: Instant,
    /// The task that closes the connection when it is idle.
    _closer: AbortOnDropHandle<()>,
}

impl Screenshots {
    pub fn new(chromium: Chromium, cursor: CursorShown) -> Self {
        Self {
            chromium,
            cursor,
            connection: Arc::default(),
        }
    }

    /// Returns a PNG of the region, or of the complete screen, with the cursor unless it is hidden.
    pub async fn take(&self, region: Option<Rect>) -> Result<Vec<u8>, ScreenshotError> {
        let access = self.chromium.optional_screen()?;
        let lock = time::timeout(QUEUE_TIMEOUT, self.connection.clone().lock_owned());
        let mut connection = lock.await.map_err(|_| ScreenshotError::Busy)?;
        let Some(access) = access else {
            return self.capture_page(region).await;
        };
        let cursor = self.cursor.get();
        // The blocking task keeps the lock if the request is cancelled.
        tokio::task::spawn_blocking(move || capture(&mut connection, access, cursor, region))
            .await
            .map_err(|panic| ScreenshotError::Panic(panic.to_string()))?
    }

    /// Returns a PNG of the front page, for a browser without a screen.
    async fn capture_page(&self, region: Option<Rect>) -> Result<Vec<u8>, ScreenshotError> {
        let page = self.chromium.front_page().await?;
        let png = page.session.screenshot().await.map_err(FrontError::from)?;
        let Some(rect) = region else {
            return Ok(png);
        };
        tokio::task::spawn_blocking(move || crop(&png, rect))
            .await
            .map_err(|panic| ScreenshotError::Panic(panic.to_string()))?
    }
}

/// Closes the connection once it has not been used for [`IDLE_TIMEOUT`].
async fn close_when_idle(connection: SharedConnection) {
    let mut idle_at = Instant::now() + IDLE_TIMEOUT;
    loop {
        time::sleep_until(idle_at).await;
        let mut connection = connection.lock().await;
        match &*connection {
            Some(open) if open.used_at + IDLE_TIMEOUT > Instant::now() => {
                idle_at = open.used_at + IDLE_TIMEOUT;
            }
            _ => {
                *connection = None;
                return;
            }
        }
    }
}

fn crop(png: &[u8], rect: Rect) -> Result<Vec<u8>, ScreenshotError> {
    let decoded = decode_png(png);
    let (size, pixels) = decoded.map_err(|error| ScreenshotError::Decode(error.to_string()))?;
    if !size.contains(rect) {
        return Err(ScreenshotError::OutOfBounds(size));
    }
    let image = Image {
        size,
        pixels: &pixels,
    };
    Ok(image.to_png(rect))
}

fn capture(
    connection: &mut OwnedMutexGuard<Option<ScreenConnection>>,
    access: DisplayAccess,
    cursor: bool,
    region: Option<Rect>,
) -> Result<Vec<u8>, ScreenshotError> {
    // A connection is put back only after success: one that failed is not used again.
    let open = connection.take().filter(|open| open.access == access);
    let mut current = match open {
        Some(open) => open,
        None => ScreenConnection {
            screen: Screen::open(&access)?,
            used_at: Instant::now(),
            _closer: AbortOnDropHandle::new(tokio::spawn(close_when_idle(
                OwnedMutexGuard::mutex(connection).clone(),
            ))),
            access,
        },
    };
    current.used_at = Instant::now();
    let image = current.screen.capture(cursor)?;
    let rect = region.unwrap_or(image.size.to_rect());
    if !image.size.contains(rect) {
        let size = image.size;
        **connection = Some(current);
        return Err(ScreenshotError::OutOfBounds(size));
    }
    let png = image.to_png(rect);
    **connection = Some(current);
    Ok(png)
}
