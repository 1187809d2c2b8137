//! The order of the tabs by use.
//!
//! Chromium reports whether a tab is visible, but not which one was selected last, so the order is
//! remembered from one list to the next.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use super::{Devtools, launch::CDP_CALL_TIMEOUT};
use crate::system::cdp::{
    connection::{BrowserVersion, Cdp, CdpError, Target},
    tab::Tab,
};

/// The longest time in which tabs are asked again after one of them seems to be hidden. Less than
/// the timeout of callers that list tabs.
const CONFIRMATION_TIMEOUT: Duration = Duration::from_millis(300);
const CONFIRMATION_DELAY: Duration = Duration::from_millis(50);

/// A tab as it was listed last.
#[derive(Debug)]
struct ListedTab {
    id: String,
    is_visible: bool,
}

/// The tabs, the most recently selected one first.
#[derive(Debug, Default)]
pub(super) struct TabOrder(Mutex<Vec<ListedTab>>);

impl TabOrder {
    /// Returns whether a tab that was visible is hidden, and no other one has become visible. Then
    /// it may be navigating: a new document is hidden until it replaces the one before.
    fn may_be_navigating(&self, tabs: &[Tab], are_visible: &[bool]) -> bool {
        let order = self.0.lock();
        let was_visible = |tab: &Tab| {
            let mut order = order.iter();
            order.any(|listed| listed.id == tab.id && listed.is_visible)
        };
        let mut has_lost = false;
        for (tab, &is_visible) in tabs.iter().zip(are_visible) {
            match (was_visible(tab), is_visible) {
                (false, true) => return false,
                (true, false) => has_lost = true,
                _ => {}
            }
        }
        has_lost
    }

    /// Sorts tabs: visible ones first, and among them and the others those that became visible
    /// last, then those that were opened last.
    fn sort(&self, tabs: Vec<(Tab, bool)>) -> Vec<Tab> {
        let mut order = self.0.lock();
        order.retain(|listed| tabs.iter().any(|(tab, _)| tab.id == listed.id));
        for (tab, is_visible) in &tabs {
            let position = order.iter().position(|listed| listed.id == tab.id);
            match position {
                Some(position) if order[position].is_visible || !is_visible => {
                    order[position].is_visible = *is_visible;
                    continue;
                }
                Some(position) => drop(order.remove(position)),
                None => {}
            }
            let listed = ListedTab {
                id: tab.id.clone(),
                is_visible: *is_visible,
            };
            order.insert(0, listed);
        }
        // A stable sort keeps the earlier order among the visible tabs and among the others.
        order.sort_by_key(|listed| !listed.is_visible);
        let mut sorted: Vec<Tab> = tabs.into_iter().map(|(tab, _)| tab).collect();
        sorted.sort_by_key(|tab| order.iter().position(|listed| listed.id == tab.id));
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
            _ => self.are_visible(&tabs).await?,
        };
        let tabs = tabs.into_iter().zip(are_visible).collect();
        Ok(self.tab_order.sort(tabs))
    }

    /// Returns for each tab whether it is visible. Asks again while a tab may be hidden only
    /// because it navigates: otherwise one in another window would take its place.
    async fn are_visible(&self, tabs: &[Tab]) -> Result<Vec<bool>, CdpError> {
        let cdp = self.connect().await?;
        let deadline = Instant::now() + CONFIRMATION_TIMEOUT;
        let mut are_visible = cdp.are_visible(tabs).await;
        while self.tab_order.may_be_navigating(tabs, &are_visible) && Instant::now() < deadline {
            sleep(CONFIRMATION_DELAY).await;
            are_visible = cdp.are_visible(tabs).await;
        }
        Ok(are_visible)
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

    #[test]
    fn tab_that_becomes_visible_again_is_in_front_of_other_windows() {
        let order = TabOrder::default();
        sorted(&order, &[("opener", true)]);
        let both = [("opener", true), ("popup", true)];
        assert_eq!(sorted(&order, &both), "popupopener");
        let hidden = [("opener", true), ("popup", false)];
        assert_eq!(sorted(&order, &hidden), "openerpopup");
        assert_eq!(sorted(&order, &both), "popupopener");
    }

    #[test]
    fn hidden_tab_may_be_navigating_unless_another_one_has_become_visible() {
        let order = TabOrder::default();
        sorted(&order, &[("a", true), ("b", true), ("c", false)]);
        let tabs = ["a", "b", "c"].map(|id| Tab {
            id: id.to_owned(),
            url: String::new(),
        });
        for (are_visible, expected) in [
            ([true, true, false], false),
            ([true, false, false], true),
            ([true, false, true], false),
        ] {
            let found = order.may_be_navigating(&tabs, &are_visible);
            assert_eq!(found, expected, "{are_visible:?}");
        }
        // It was found to be hidden, and is not asked about again.
        sorted(&order, &[("a", true), ("b", false), ("c", false)]);
        assert!(!order.may_be_navigating(&tabs, &[true, false, false]));
    }
}
