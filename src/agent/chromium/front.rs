//! The tab in front.

use std::{sync::Arc, time::Duration};

use url::Url;

use super::{Chromium, Devtools, NotReady, RESTART_TIMEOUT, launch::CDP_CALL_TIMEOUT};
use crate::system::cdp::{
    connection::{Cdp, CdpError},
    devtools::{DevtoolsError, DevtoolsHttp, Tab},
    tab::TabSession,
};

/// Why the tab in front cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FrontError {
    #[error(transparent)]
    NotReady(#[from] NotReady),
    #[error("the browser has no tab")]
    NoTab,
    #[error(transparent)]
    Devtools(#[from] DevtoolsError),
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
        let cdp = Cdp::connect(&devtools.browser_url(), CDP_CALL_TIMEOUT).await?;
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
    let tab = tab_in_front(devtools).await.unwrap_or_default();
    let cdp = Cdp::connect(&devtools.browser_url(), CDP_CALL_TIMEOUT).await?;
    match tab {
        Some(tab) => cdp.focus(&tab).await,
        None => Ok(()),
    }
}

/// Navigates the tab in front, or opens a tab if there is none. A navigation that takes longer than
/// `timeout` continues by itself.
pub(super) async fn open_in_front(
    devtools: &Devtools,
    url: &Url,
    timeout: Duration,
) -> Result<(), CdpError> {
    let tab = tab_in_front(devtools).await.unwrap_or_default();
    let cdp = Cdp::connect(&devtools.browser_url(), CDP_CALL_TIMEOUT).await?;
    match tab {
        Some(tab) => cdp.navigate(&tab, url.as_str(), timeout).await,
        None => cdp.open_tab(url.as_str()).await.map(drop),
    }
}

/// Returns the first tab of Chromium's list, which starts with the most recently used one.
async fn tab_in_front(devtools: &Devtools) -> Result<Option<Tab>, DevtoolsError> {
    let tabs = DevtoolsHttp::default().tabs(devtools.addr).await?;
    Ok(tabs.into_iter().next())
}
