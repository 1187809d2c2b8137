//! The page in front.

use std::{sync::Arc, time::Duration};

use url::Url;

use super::{BACK_LIMIT, Chromium, Devtools, NotReady, launch::CALL_DEADLINE};
use crate::system::{
    cdp::connection::{Cdp, CdpError},
    cdp::devtools::{DevtoolsError, DevtoolsHttp, Tab},
    cdp::tab::TabSession,
};

#[derive(Debug, thiserror::Error)]
pub enum FrontError {
    #[error(transparent)]
    NotReady(#[from] NotReady),
    #[error("there is no tab")]
    NoTab,
    #[error(transparent)]
    Devtools(#[from] DevtoolsError),
    #[error(transparent)]
    Cdp(#[from] CdpError),
}

/// A connection to the tab that was in front when it was made.
pub struct FrontPage {
    /// Of Chromium's starts.
    generation: u64,
    pub session: TabSession,
}

impl Chromium {
    /// The page in front, once Chromium answers.
    pub async fn front_page(&self) -> Result<FrontPage, FrontError> {
        let (devtools, tab) = self.front_tab().await?;
        let cdp = Cdp::connect(&devtools.browser_url(), CALL_DEADLINE).await?;
        Ok(FrontPage {
            generation: devtools.generation,
            session: cdp.attach(tab).await?,
        })
    }

    /// Whether that page is in front still, or again.
    pub async fn is_in_front(&self, page: &FrontPage) -> Result<bool, FrontError> {
        let (devtools, tab) = self.front_tab().await?;
        Ok(devtools.generation == page.generation && tab.id == page.session.tab().id)
    }

    async fn front_tab(&self) -> Result<(Arc<Devtools>, Tab), FrontError> {
        let devtools = self.ready(BACK_LIMIT).await?;
        let tab = tab_in_front(&devtools).await?;
        Ok((devtools, tab.ok_or(FrontError::NoTab)?))
    }
}

/// Gives the keyboard to the page, and resolves once it has it: on a blank one Chromium starts in its address bar.
pub async fn focus_page(devtools: &Devtools) -> Result<(), CdpError> {
    let tab = tab_in_front(devtools).await.unwrap_or_default();
    let cdp = Cdp::connect(&devtools.browser_url(), CALL_DEADLINE).await?;
    match tab {
        Some(tab) => cdp.focus(&tab).await,
        None => Ok(()),
    }
}

/// Navigates the tab in front, or opens one where there is none. A navigation that takes longer than `patience` goes on by itself.
pub async fn open_in_front(
    devtools: &Devtools,
    url: &Url,
    patience: Duration,
) -> Result<(), CdpError> {
    let tab = tab_in_front(devtools).await.unwrap_or_default();
    let cdp = Cdp::connect(&devtools.browser_url(), CALL_DEADLINE).await?;
    match tab {
        Some(tab) => cdp.navigate(&tab, url.as_str(), patience).await,
        None => cdp.open_tab(url.as_str()).await.map(drop),
    }
}

/// Chromium's list begins with the tab used last.
async fn tab_in_front(devtools: &Devtools) -> Result<Option<Tab>, DevtoolsError> {
    let tabs = DevtoolsHttp::default().tabs(devtools.addr).await?;
    Ok(tabs.into_iter().next())
}
