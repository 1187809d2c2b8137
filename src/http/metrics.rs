//! The process's Prometheus registry.

use std::{sync::OnceLock, time::Duration};

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use crate::shutdown::Shutdown;

/// Histogram buckets in seconds: from a fast route's half millisecond to a long script's minutes.
const BUCKETS: [f64; 14] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 15.0, 60.0, 300.0,
];

/// Interval at which histogram samples are folded into buckets. Without it, memory grows until the
/// next scrape.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

/// The handle that renders `/metrics`.
#[derive(Clone)]
pub struct Metrics(PrometheusHandle);

impl Metrics {
    /// Installs the process's recorder; later calls return the same one.
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
            // Fails only if another recorder is installed, and this is the only place that does.
            let _ = metrics::set_global_recorder(recorder);
            handle
        });
        Self(handle.clone())
    }

    /// Starts the task that bounds the registry's memory until shutdown.
    pub fn spawn_upkeep(&self, shutdown: &Shutdown) {
        let (handle, stop) = (self.0.clone(), shutdown.token());
        shutdown.spawn(async move {
            let mut ticks = tokio::time::interval(UPKEEP_INTERVAL);
            loop {
                tokio::select! {
                    _ = ticks.tick() => handle.run_upkeep(),
                    () = stop.cancelled() => return,
                }
            }
        });
    }

    /// Returns all metrics in Prometheus's text format.
    #[must_use]
    pub fn render(&self) -> String {
        self.0.render()
    }
}
