//! The process's Prometheus registry.

use std::sync::OnceLock;
use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use crate::shutdown::Shutdown;

/// Seconds. From a fast route's tenth of a millisecond to a long script's minutes.
const BUCKETS: [f64; 14] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 15.0, 60.0, 300.0,
];

/// How often histograms are folded, so that nobody asking does not mean memory growing.
const UPKEEP: Duration = Duration::from_secs(5);

/// The handle that renders `/metrics`.
#[derive(Clone)]
pub struct Metrics(PrometheusHandle);

impl Metrics {
    /// Installs the process's recorder once; later calls give the same one.
    #[must_use]
    pub fn install() -> Self {
        static HANDLE: OnceLock<PrometheusHandle> = OnceLock::new();
        let handle = HANDLE.get_or_init(|| {
            let builder = PrometheusBuilder::new();
            let builder = match builder
                .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &BUCKETS)
            {
                Ok(builder) => builder,
                Err(error) => unreachable!("the buckets are a constant: {error}"),
            };
            let recorder = builder.build_recorder();
            let handle = recorder.handle();
            // Only a second recorder could fail here, and there is this one place.
            let _ = metrics::set_global_recorder(recorder);
            handle
        });
        Self(handle.clone())
    }

    /// Keeps the registry's memory flat until the stop.
    pub fn keep_up(&self, shutdown: &Shutdown) {
        let (handle, stop) = (self.0.clone(), shutdown.token());
        shutdown.spawn(async move {
            let mut ticks = tokio::time::interval(UPKEEP);
            loop {
                tokio::select! {
                    _ = ticks.tick() => handle.run_upkeep(),
                    () = stop.cancelled() => return,
                }
            }
        });
    }

    #[must_use]
    pub fn render(&self) -> String {
        self.0.render()
    }
}
