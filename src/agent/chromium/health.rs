//! Whether a running Chromium still answers.

use std::time::Duration;

use tokio::time;

use super::{Devtools, launch::TERMINATE_GRACE_PERIOD};
use crate::system::cdp::multiplexer::Multiplexer;

/// The interval of the watchdog's health checks, and the consecutive failures that count as a hang.
const HEALTH_CHECK_INTERVAL: Duration = Duration::from_secs(10);
const MAX_FAILED_HEALTH_CHECKS: u32 = 3;

/// Waits until Chromium has closed its pipe and had the time to end, and returns the reason.
pub(super) async fn wait_for_disconnection(devtools: &Devtools) -> String {
    devtools.multiplexer.ended().await;
    time::sleep(TERMINATE_GRACE_PERIOD).await;
    "Chromium closed its DevTools connection".to_owned()
}

/// Waits until Chromium fails several health checks in a row, and returns the reason.
pub(super) async fn wait_for_hang(devtools: &Devtools) -> String {
    let mut failed = 0;
    while failed < MAX_FAILED_HEALTH_CHECKS {
        time::sleep(HEALTH_CHECK_INTERVAL).await;
        let answer = async { devtools.cdp.version().await.is_ok() };
        failed = match responds(&devtools.multiplexer, answer).await {
            true => 0,
            false => failed + 1,
        };
    }
    format!("Chromium failed {failed} health checks in a row")
}

/// Whether Chromium answers, or sends anything else meanwhile: its answer may come after hundreds
/// of MiB for a client.
async fn responds(multiplexer: &Multiplexer, answer: impl Future<Output = bool>) -> bool {
    let receipts = multiplexer.receipts();
    answer.await || multiplexer.receipts() != receipts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::cdp::multiplexer::tests::FakeChromium;

    #[tokio::test]
    async fn chromium_that_sends_something_else_than_the_answer_is_healthy() {
        let (multiplexer, mut chromium) = FakeChromium::start();
        assert!(!responds(&multiplexer, async { false }).await);
        assert!(responds(&multiplexer, async { true }).await);
        let no_answer = async {
            chromium.send(r#"{"method":"Any.event"}"#).await;
            while multiplexer.receipts() == 0 {
                tokio::task::yield_now().await;
            }
            false
        };
        assert!(responds(&multiplexer, no_answer).await);
    }
}
