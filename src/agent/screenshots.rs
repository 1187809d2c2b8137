//! What the screen looks like now.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{Mutex, OwnedMutexGuard},
    time,
};

use super::{
    chromium::{Chromium, NoScreen, front::FrontError},
    cursor::CursorShown,
};
use crate::system::{
    x11::screen::{Image, Rect, Screen, ScreenError, Size, decode_png},
    x11::server::Access,
};

/// For those before, each of which takes some ten milliseconds.
const TURN_DEADLINE: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum ScreenshotError {
    #[error(transparent)]
    NoScreen(#[from] NoScreen),
    #[error("must lie within the screen, which has {} × {} pixels", .0.width, .0.height)]
    BeyondScreen(Size),
    #[error("others are being taken")]
    Busy,
    #[error("the screen could not be looked at: {0}")]
    Screen(#[from] ScreenError),
    #[error("the page could not be looked at: {0}")]
    Page(#[from] FrontError),
    #[error("Chromium's picture of the page cannot be read: {0}")]
    Picture(String),
    #[error("a screenshot failed: {0}")]
    Panic(String),
}

/// Takes screenshots over one connection that stays open; clones share it.
#[derive(Clone)]
pub struct Screenshots {
    chromium: Chromium,
    cursor: CursorShown,
    kept: Arc<Mutex<Option<Kept>>>,
}

struct Kept {
    access: Access,
    screen: Screen,
}

impl Screenshots {
    pub fn new(chromium: Chromium, cursor: CursorShown) -> Self {
        Self {
            chromium,
            cursor,
            kept: Arc::default(),
        }
    }

    /// A PNG of the region, or of the whole screen, with the cursor unless that is hidden.
    pub async fn take(&self, region: Option<Rect>) -> Result<Vec<u8>, ScreenshotError> {
        let access = self.chromium.screen_if_any()?;
        let turn = time::timeout(TURN_DEADLINE, self.kept.clone().lock_owned());
        let mut kept = turn.await.map_err(|_| ScreenshotError::Busy)?;
        let Some(access) = access else {
            return self.page(region).await;
        };
        let cursor = self.cursor.get();
        // Whoever asked may leave: the connection stays with who looks.
        let looking = tokio::task::spawn_blocking(move || look(&mut kept, access, cursor, region));
        let looked = looking.await;
        looked.map_err(|panic| ScreenshotError::Panic(panic.to_string()))?
    }

    /// Without a screen it is what the page in front shows.
    async fn page(&self, region: Option<Rect>) -> Result<Vec<u8>, ScreenshotError> {
        let page = self.chromium.front_page().await?;
        let whole = page.session.screenshot().await.map_err(FrontError::from)?;
        let Some(rect) = region else {
            return Ok(whole);
        };
        let cutting = tokio::task::spawn_blocking(move || cut(&whole, rect));
        let cut = cutting.await;
        cut.map_err(|panic| ScreenshotError::Panic(panic.to_string()))?
    }
}

fn cut(png: &[u8], rect: Rect) -> Result<Vec<u8>, ScreenshotError> {
    let decoded = decode_png(png);
    let (size, pixels) = decoded.map_err(|error| ScreenshotError::Picture(error.to_string()))?;
    if !size.contains(rect) {
        return Err(ScreenshotError::BeyondScreen(size));
    }
    let image = Image {
        size,
        pixels: &pixels,
    };
    Ok(image.to_png(rect))
}

fn look(
    kept: &mut OwnedMutexGuard<Option<Kept>>,
    access: Access,
    cursor: bool,
    region: Option<Rect>,
) -> Result<Vec<u8>, ScreenshotError> {
    // One that fails is not used again.
    let known = kept.take().filter(|known| known.access == access);
    let mut current = match known {
        Some(known) => known,
        None => Kept {
            screen: Screen::open(&access)?,
            access,
        },
    };
    let image = current.screen.look(cursor)?;
    let rect = region.unwrap_or(image.size.whole());
    if !image.size.contains(rect) {
        let size = image.size;
        **kept = Some(current);
        return Err(ScreenshotError::BeyondScreen(size));
    }
    let png = image.to_png(rect);
    **kept = Some(current);
    Ok(png)
}
