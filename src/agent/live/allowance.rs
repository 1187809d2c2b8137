//! How fast one viewer may act: as fast as hands can, and no faster.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// 500 a second in the long run.
const EACH: Duration = Duration::from_millis(2);
/// Of what comes at once, this much of the time that it will take is granted in advance.
const AHEAD: Duration = Duration::from_millis(500);

#[derive(Debug, Default)]
pub struct Allowance {
    /// When what was done so far will be paid for.
    paid: Option<Instant>,
}

impl Allowance {
    /// Waits until one more may be done. What waits is not read: it stays with who sent it.
    pub async fn wait(&mut self) {
        if let Some(time) = self.one_more(Instant::now()) {
            sleep_until(time).await;
        }
    }

    fn one_more(&mut self, now: Instant) -> Option<Instant> {
        let paid = self.paid.map_or(now, |paid| paid.max(now)) + EACH;
        self.paid = Some(paid);
        let may = paid - AHEAD;
        (may > now).then_some(may)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn much_may_come_at_once_but_not_for_long() {
        let (mut allowance, now) = (Allowance::default(), Instant::now());
        let granted = (0..1000).take_while(|_| allowance.one_more(now).is_none());
        assert_eq!(granted.count(), 250);
        let later = now + Duration::from_secs(60);
        assert_eq!(allowance.one_more(later), None);
    }
}
