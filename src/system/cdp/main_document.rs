//! The document that a tab shows, and the machines that it is from.

use std::time::Duration;

use chromiumoxide::cdp::browser_protocol::{
    network::EnableParams,
    page::{GetFrameTreeParams, NavigateParams},
};
use tokio::time::sleep;

use super::{
    connection::{CdpError, CookieName, DocumentResponse},
    tab::TabSession,
};

/// The interval at which the beginning of a navigation is polled.
const NAVIGATION_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The document that a tab shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MainDocument {
    /// Identifies the document: another one of the same address has another id.
    pub id: String,
    /// With its fragment. Of an error page of Chromium, the address that failed.
    pub url: String,
    /// Whether Chromium shows an error page in its place.
    pub has_failed: bool,
    /// Known only of documents that were requested while the tab was observed.
    pub response: DocumentResponse,
}

impl TabSession {
    /// Observes from now on, while this connection is open, which documents the tab requests.
    pub async fn observe_documents(&self) -> Result<(), CdpError> {
        // The frame of a tab has the id of the tab.
        let frame = &self.tab().id;
        self.cdp.with_documents(|loads| loads.observe(frame));
        // Chromium would otherwise keep the bodies of responses for this session.
        let enable = EnableParams::builder()
            .max_total_buffer_size(0)
            .max_resource_buffer_size(0)
            .build();
        self.cdp.call(enable, Some(self.id.clone())).await.map(drop)
    }

    /// Whether the tab waits for the response with another document, if it is observed. Until then
    /// Chromium holds back the commands to the document that it shows.
    #[must_use]
    pub fn is_navigating(&self) -> bool {
        let frame = &self.tab().id;
        self.cdp.with_documents(|loads| loads.is_navigating(frame))
    }

    /// Begins a navigation of a tab that is observed, and returns when it waits for the response,
    /// or sooner if there is an error. The error is shown by the tab.
    pub async fn begin_navigation(&self, url: &str) -> Result<(), CdpError> {
        let navigation = self
            .cdp
            .call(NavigateParams::new(url), Some(self.id.clone()));
        let begun = async {
            while !self.is_navigating() {
                sleep(NAVIGATION_POLL_INTERVAL).await;
            }
        };
        tokio::select! {
            biased;
            navigated = navigation => navigated.map(drop),
            () = begun => Ok(()),
        }
    }

    /// Returns the document that the tab shows.
    pub async fn main_document(&self) -> Result<MainDocument, CdpError> {
        let session = Some(self.id.clone());
        let tree = self
            .cdp
            .call(GetFrameTreeParams::default(), session)
            .await?;
        let frame = &tree.frame_tree.frame;
        let id = frame.loader_id.inner();
        let fragment = frame.url_fragment.as_deref().unwrap_or_default();
        let failed = frame.unreachable_url.as_ref();
        Ok(MainDocument {
            id: id.clone(),
            url: format!("{}{fragment}", failed.unwrap_or(&frame.url)),
            has_failed: failed.is_some(),
            response: self.cdp.with_documents(|loads| loads.response(id)),
        })
    }

    /// Returns the cookies of the browser without their values.
    pub async fn cookie_names(&self) -> Result<Vec<CookieName>, CdpError> {
        self.cdp.cookie_names().await
    }
}
