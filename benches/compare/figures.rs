//! Samples, their percentiles, and the tables of results.

use std::time::Duration;

use serde_json::{Value, json};

#[derive(Clone, Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    pub fn add(&mut self, value: f64) {
        self.0.push(value);
    }

    pub fn add_ms(&mut self, duration: Duration) {
        self.add(duration.as_secs_f64() * 1e3);
    }

    pub fn add_us(&mut self, duration: Duration) {
        self.add(duration.as_secs_f64() * 1e6);
    }

    /// Returns the percentile by nearest rank, so that it is a measured value.
    fn percentile(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let rank = (share * sorted.len() as f64).ceil() as usize;
        sorted[rank.clamp(1, sorted.len()) - 1]
    }
}

struct Figure {
    name: String,
    unit: &'static str,
    baseline_name: String,
    berth: Samples,
    baseline: Option<Samples>,
}

#[derive(Default)]
pub struct Figures(Vec<Figure>);

impl Figures {
    pub fn compare(
        &mut self,
        name: impl Into<String>,
        unit: &'static str,
        berth: Samples,
        baseline_name: impl Into<String>,
        baseline: Samples,
    ) {
        self.0.push(Figure {
            name: name.into(),
            unit,
            baseline_name: baseline_name.into(),
            berth,
            baseline: Some(baseline),
        });
    }

    pub fn alone(&mut self, name: impl Into<String>, unit: &'static str, berth: Samples) {
        self.0.push(Figure {
            name: name.into(),
            unit,
            baseline_name: String::new(),
            berth,
            baseline: None,
        });
    }

    pub fn print(&self) {
        println!(
            "\n{:<44}{:>8} {:>20} {:>20} {:>7}  baseline",
            "", "unit", "Berth p50 / p99", "baseline p50 / p99", "ratio"
        );
        for figure in &self.0 {
            let pair = |samples: &Samples| {
                format!(
                    "{:.2} / {:.2}",
                    samples.percentile(0.5),
                    samples.percentile(0.99)
                )
            };
            let baseline = figure.baseline.as_ref().map_or_else(|| "-".into(), pair);
            let ratio = figure
                .ratio()
                .map_or_else(|| "-".into(), |ratio| format!("{ratio:.3}"));
            println!(
                "{:<44}{:>8} {:>20} {:>20} {:>7}  {}",
                figure.name,
                figure.unit,
                pair(&figure.berth),
                baseline,
                ratio,
                figure.baseline_name
            );
        }
    }

    pub fn write(&self, path: &str) -> std::io::Result<()> {
        let list: Vec<Value> = self.0.iter().map(Figure::json).collect();
        std::fs::write(path, format!("{:#}\n", Value::from(list)))
    }
}

impl Figure {
    /// Returns Berth's median divided by the baseline's, unless that is 0.
    fn ratio(&self) -> Option<f64> {
        let ratio = self.berth.percentile(0.5) / self.baseline.as_ref()?.percentile(0.5);
        ratio.is_finite().then_some(ratio)
    }

    fn json(&self) -> Value {
        let pair = |samples: &Samples| json!({ "p50": round(samples.percentile(0.5)), "p99": round(samples.percentile(0.99)) });
        json!({
            "name": self.name,
            "unit": self.unit,
            "berth": pair(&self.berth),
            "baseline": self.baseline.as_ref().map(pair),
            "ratio": self.ratio().map(round),
            "baseline_name": self.baseline_name,
            "samples": self.berth.0.len(),
        })
    }
}

fn round(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}
