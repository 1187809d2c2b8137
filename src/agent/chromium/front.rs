//! The page in front.

use std::time::Duration;

use super::{Chromium, NotReady, launch::CALL_DEADLINE};
use crate::system::{
    cdp::{Cdp, CdpError},
    cdp_tab::TabSession,
    devtools::{DevtoolsError, DevtoolsHttp, Tab},
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
    pub async fn front_page(&self, limit: Duration) -> Result<FrontPage, FrontError> {
        let (devtools, tab) = self.front_tab(limit).await?;
        let cdp = Cdp::connect(&devtools.browser_url(), CALL_DEADLINE).await?;
        Ok(FrontPage {
            generation: devtools.generation,
            session: cdp.attach(tab).await?,
        })
    }

    /// Whether that page is in front still, or again.
    pub async fn is_in_front(&self, page: &FrontPage, limit: Duration) -> Result<bool, FrontError> {
        let (devtools, tab) = self.front_tab(limit).await?;
        Ok(devtools.generation == page.generation && tab.id == page.session.tab().id)
    }

    async fn front_tab(
        &self,
        limit: Duration,
    ) -> Result<(std::sync::Arc<super::Devtools>, Tab), FrontError> {
        let devtools = self.ready(limit).await?;
        // Chromium's list begins with the tab used last.
        let tabs = DevtoolsHttp::default().tabs(devtools.addr).await?;
        let tab = tabs.into_iter().next().ok_or(FrontError::NoTab)?;
        Ok((devtools, tab))
    }
}
