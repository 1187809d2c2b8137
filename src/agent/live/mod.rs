//! The live view: the screen as it is now, for those who look at it, and the hands of those who may use it.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch},
    time::{Instant, sleep_until},
};

use super::{
    chromium::{BrowserState, Chromium, NoScreen},
    clipboard::Clipboard,
    computer::Computer,
    cursor::CursorShown,
};
use crate::api::live::AgentMessage;

mod allowance;
mod camera;
mod dirty;
mod frame;
mod hands;
mod keyboard;
mod pace;
mod said;
mod wheel;

use camera::{Camera, Drawn};
use hands::Controls;

pub use camera::Shot;
pub use hands::{Ears, Hands};

/// Each has a thread that looks and encodes while something changes.
pub const MAX_VIEWERS: usize = 8;
/// Before a screen that could not be looked at is tried again.
const RETRY: Duration = Duration::from_millis(500);
/// Messages that wait to be sent to one viewer.
const MESSAGES: usize = 16;

#[derive(Debug, thiserror::Error)]
pub enum EnterError {
    #[error(transparent)]
    NoScreen(#[from] NoScreen),
    #[error("{MAX_VIEWERS} live views are open, which is the limit")]
    Full,
}

/// Where viewers come in.
#[derive(Clone)]
pub struct Live {
    chromium: Chromium,
    computer: Computer,
    clipboard: Clipboard,
    cursor: CursorShown,
    places: Arc<Semaphore>,
}

impl Live {
    pub fn new(
        chromium: Chromium,
        computer: Computer,
        clipboard: Clipboard,
        cursor: CursorShown,
    ) -> Self {
        Self {
            chromium,
            computer,
            clipboard,
            cursor,
            places: Arc::new(Semaphore::new(MAX_VIEWERS)),
        }
    }

    /// Refuses what will never have anything to show.
    pub fn is_possible(&self) -> Result<(), EnterError> {
        match self.chromium.screen() {
            Err(error @ NoScreen::Headless) => Err(error.into()),
            Ok(_) | Err(NoScreen::Down) => Ok(()),
        }
    }

    /// Gives a place; whether the viewer may control the browser as well.
    pub fn enter(&self, control: bool) -> Result<(Show, Ears, Hands), EnterError> {
        self.is_possible()?;
        let place = self.places.clone().try_acquire_owned();
        let place = Place::taken(place.map_err(|_| EnterError::Full)?);
        let drawn = Arc::<Drawn>::default();
        let (tell, told) = mpsc::channel(MESSAGES);
        let (teller, controls) = if control {
            let controls = Controls::new(self.computer.clone(), self.clipboard.clone(), tell);
            let (teller, doer) = said::said();
            (Some(teller), Some((doer, controls)))
        } else {
            (None, None)
        };
        let mut state = self.chromium.watch();
        state.mark_changed();
        let show = Show {
            chromium: self.chromium.clone(),
            cursor: self.cursor.clone(),
            hello: Some(AgentMessage::Hello { control }),
            told,
            state,
            camera: None,
            drawn: drawn.clone(),
            retry: None,
            _place: place,
        };
        Ok((show, Ears::new(drawn, teller), Hands::new(controls)))
    }
}

/// One viewer's place; it is free again when this is dropped.
struct Place(#[expect(dead_code, reason = "it is held")] OwnedSemaphorePermit);

impl Place {
    fn taken(permit: OwnedSemaphorePermit) -> Self {
        metrics::gauge!("berth_live_viewers").increment(1.0);
        Self(permit)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        metrics::gauge!("berth_live_viewers").decrement(1.0);
    }
}

/// What a viewer gets to see.
pub struct Show {
    chromium: Chromium,
    cursor: CursorShown,
    hello: Option<AgentMessage>,
    told: mpsc::Receiver<AgentMessage>,
    state: watch::Receiver<BrowserState>,
    camera: Option<Camera>,
    drawn: Arc<Drawn>,
    /// When the screen, which there should be, is tried again.
    retry: Option<Instant>,
    _place: Place,
}

impl Show {
    /// The next there is to be shown or told. It is whole or not at all: to stop waiting loses nothing.
    pub async fn next(&mut self) -> Shot {
        if let Some(hello) = self.hello.take() {
            return Shot::Message(hello);
        }
        loop {
            tokio::select! {
                Ok(()) = self.state.changed() => return Shot::Message(self.browser()),
                Some(message) = self.told.recv() => return Shot::Message(message),
                shot = film(&mut self.camera) => match shot {
                    Some(shot) => return shot,
                    None => self.lost(),
                },
                () = at(self.retry) => self.film(),
            }
        }
    }

    fn browser(&mut self) -> AgentMessage {
        let state = self.state.borrow_and_update().clone();
        // What it shows while it is away is its last picture, or black.
        self.camera = None;
        self.retry = None;
        if state.devtools().is_some() {
            self.film();
        }
        AgentMessage::Browser {
            state: state.name(),
            reason: match &state {
                BrowserState::Restarting { reason } => Some(reason.to_string()),
                _ => None,
            },
        }
    }

    fn film(&mut self) {
        self.retry = None;
        let access = self.chromium.screen();
        let camera = access.map(|access| {
            Camera::start(access, self.cursor.clone(), self.drawn.clone())
                .inspect_err(|error| tracing::warn!(%error, "no thread for a live view"))
        });
        match camera {
            Ok(Ok(camera)) => self.camera = Some(camera),
            Ok(Err(_)) | Err(_) => self.lost(),
        }
    }

    fn lost(&mut self) {
        self.camera = None;
        self.retry = Some(Instant::now() + RETRY);
    }
}

async fn film(camera: &mut Option<Camera>) -> Option<Shot> {
    match camera {
        Some(camera) => camera.next().await,
        None => std::future::pending().await,
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
