//! The tab in front.

use std::{sync::Arc, time::Duration};

use url::Url;

use super::{Chromium, Devtools, NotReady, RESTART_TIMEOUT};
use crate::system::cdp::{
    connection::CdpError,
    tab::{Tab, TabSession},
};

/// The longest wait for the start page. A slower page continues to load afterwards.
const START_URL_TIMEOUT: Duration = Duration::from_secs(2);

/// Why the tab in front cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FrontError {
    #[error(transparent)]
    NotReady(#[from] NotReady),
    #[error("the browser has no tab")]
    NoTab,
    #[error(transparent)]
    Cdp(#[from] CdpError),
}

/// A connection to the tab that was in front when the connection was made.
pub struct FrontPage {
    /// The generation of its Chromium.
    generation: u64,
    pub session: TabSession,
}

impl Chromium {
    /// Waits until Chromium answers, and connects to the tab in front.
    pub async fn front_page(&self) -> Result<FrontPage, FrontError> {
        let (devtools, tab) = self.front_tab().await?;
        let cdp = devtools.connect().await?;
        Ok(FrontPage {
            generation: devtools.generation,
            session: cdp.attach(tab).await?,
        })
    }

    /// Whether the page is in front now.
    pub async fn is_in_front(&self, page: &FrontPage) -> Result<bool, FrontError> {
        let (devtools, tab) = self.front_tab().await?;
        Ok(devtools.generation == page.generation && tab.id == page.session.tab().id)
    }

    async fn front_tab(&self) -> Result<(Arc<Devtools>, Tab), FrontError> {
        let devtools = self.ready(RESTART_TIMEOUT).await?;
        let tab = tab_in_front(&devtools).await?;
        Ok((devtools, tab.ok_or(FrontError::NoTab)?))
    }
}

/// Gives the page in front the keyboard focus. (With a blank page, Chromium starts with the focus
/// in its address bar.)
pub(super) async fn focus_page(devtools: &Devtools) -> Result<(), CdpError> {
    match tab_in_front(devtools).await? {
        Some(tab) => devtools.connect().await?.focus(&tab).await,
        None => Ok(()),
    }
}

/// Navigates the tab in front, or opens a tab if there is none. A navigation that takes longer than
/// [`START_URL_TIMEOUT`] continues by itself.
pub(super) async fn open_in_front(devtools: &Devtools, url: &Url) -> Result<(), CdpError> {
    match tab_in_front(devtools).await? {
        Some(tab) => {
            let cdp = devtools.connect().await?;
            let opening = cdp.navigate(&tab, url.as_str(), START_URL_TIMEOUT);
            opening.await
        }
        None => devtools.cdp.open_tab(url.as_str()).await.map(drop),
    }
}

async fn tab_in_front(devtools: &Devtools) -> Result<Option<Tab>, CdpError> {
    Ok(devtools.tabs().await?.into_iter().next())
}
