//! Whether a running Chromium still answers.

use std::time::Duration;

use tokio::time;

use super::{Devtools, launch::TERMINATE_GRACE_PERIOD};

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
        failed = match devtools.cdp.version().await {
            Ok(_) => 0,
            Err(_) => failed + 1,
        };
    }
    format!("Chromium failed {failed} health checks in a row")
}
