//! The order of the tabs by use.
//!
//! Chromium reports whether a tab is visible, but not which one was selected last, so the order is
//! remembered from one list to the next.

use parking_lot::Mutex;

use super::{Devtools, launch::CDP_CALL_TIMEOUT};
use crate::system::cdp::{
    connection::{BrowserVersion, Cdp, CdpError, Target},
    tab::Tab,
};

/// The ids of the tabs, the most recently selected one first.
#[derive(Debug, Default)]
pub(super) struct TabOrder(Mutex<Vec<String>>);

impl TabOrder {
    /// Sorts tabs: visible ones first, and among them and the others those that became visible
    /// last, then those that were opened last.
    fn sort(&self, tabs: Vec<(Tab, bool)>) -> Vec<Tab> {
        let mut order = self.0.lock();
        order.retain(|id| tabs.iter().any(|(tab, _)| tab.id == *id));
        for (tab, _) in &tabs {
            if !order.contains(&tab.id) {
                order.insert(0, tab.id.clone());
            }
        }
        let is_visible = |id: &String| tabs.iter().any(|(tab, visible)| tab.id == *id && *visible);
        // A stable sort keeps the earlier order among the visible tabs and among the others.
        order.sort_by_key(|id| !is_visible(id));
        let mut sorted: Vec<Tab> = tabs.into_iter().map(|(tab, _)| tab).collect();
        sorted.sort_by_key(|tab| order.iter().position(|id| *id == tab.id));
        sorted
    }
}

impl Devtools {
    /// Returns the tabs, the most recently used one first.
    pub async fn tabs(&self) -> Result<Vec<Tab>, CdpError> {
        let tabs = self.cdp.tabs().await?;
        self.sorted(tabs).await
    }

    async fn sorted(&self, tabs: Vec<Tab>) -> Result<Vec<Tab>, CdpError> {
        let are_visible = match tabs.len() {
            0 | 1 => vec![true; tabs.len()],
            _ => self.connect().await?.are_visible(&tabs).await,
        };
        let tabs = tabs.into_iter().zip(are_visible).collect();
        Ok(self.tab_order.sort(tabs))
    }

    /// Returns the tabs, the most recently used one first, and then the other targets.
    pub async fn targets(&self) -> Result<Vec<Target>, CdpError> {
        let mut targets = self.cdp.targets().await?;
        let tabs = targets.iter().filter_map(Target::as_tab).collect();
        let tabs = self.sorted(tabs).await?;
        let position = |target: &Target| tabs.iter().position(|tab| tab.id == target.id);
        targets.sort_by_key(|target| position(target).unwrap_or(usize::MAX));
        Ok(targets)
    }

    /// Connects for commands that attach to tabs: what is attached ends with the connection, also
    /// if the caller stops waiting.
    pub(super) async fn connect(&self) -> Result<Cdp, CdpError> {
        Cdp::connect(&self.multiplexer, CDP_CALL_TIMEOUT).await
    }

    /// Asks Chromium for its version, which shows that it answers.
    pub async fn current_version(&self) -> Result<BrowserVersion, CdpError> {
        self.cdp.version().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(order: &TabOrder, tabs: &[(&str, bool)]) -> String {
        let tab = |id: &str| Tab {
            id: id.to_owned(),
            url: String::new(),
        };
        let tabs = tabs.iter().map(|(id, visible)| (tab(id), *visible));
        let sorted = order.sort(tabs.collect());
        sorted.iter().map(|tab| tab.id.as_str()).collect()
    }

    #[test]
    fn tabs_are_sorted_by_their_last_selection() {
        let order = TabOrder::default();
        assert_eq!(sorted(&order, &[("a", true)]), "a");
        // Opened in the background, then selected.
        assert_eq!(sorted(&order, &[("a", true), ("b", false)]), "ab");
        assert_eq!(sorted(&order, &[("a", false), ("b", true)]), "ba");
        assert_eq!(
            sorted(&order, &[("c", false), ("a", false), ("b", true)]),
            "bca"
        );
        assert_eq!(
            sorted(&order, &[("c", false), ("a", true), ("b", false)]),
            "abc"
        );
        // A second window shows another tab: the newer one is in front.
        assert_eq!(
            sorted(
                &order,
                &[("c", false), ("a", true), ("d", true), ("b", false)]
            ),
            "dabc"
        );
        // Closing the tab in front shows the one before.
        assert_eq!(
            sorted(&order, &[("c", false), ("a", true), ("b", false)]),
            "abc"
        );
        assert_eq!(sorted(&order, &[]), "");
    }
}
