//! Samples, their percentiles, and the table they end in.

use serde_json::{Value, json};
use std::time::Duration;

#[derive(Clone, Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    pub fn add(&mut self, value: f64) {
        self.0.push(value);
    }

    pub fn add_ms(&mut self, took: Duration) {
        self.add(took.as_secs_f64() * 1e3);
    }

    pub fn add_us(&mut self, took: Duration) {
        self.add(took.as_secs_f64() * 1e6);
    }

    /// Nearest rank, so that every percentile is a value that was measured.
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
    theirs_is: String,
    ours: Samples,
    theirs: Option<Samples>,
}

#[derive(Default)]
pub struct Figures(Vec<Figure>);

impl Figures {
    pub fn compare(
        &mut self,
        name: impl Into<String>,
        unit: &'static str,
        ours: Samples,
        theirs_is: impl Into<String>,
        theirs: Samples,
    ) {
        self.0.push(Figure {
            name: name.into(),
            unit,
            theirs_is: theirs_is.into(),
            ours,
            theirs: Some(theirs),
        });
    }

    pub fn alone(&mut self, name: impl Into<String>, unit: &'static str, ours: Samples) {
        self.0.push(Figure {
            name: name.into(),
            unit,
            theirs_is: String::new(),
            ours,
            theirs: None,
        });
    }

    pub fn print(&self) {
        println!(
            "\n{:<44}{:>8} {:>20} {:>20} {:>7}  theirs is",
            "", "unit", "ours p50 / p99", "theirs p50 / p99", "ratio"
        );
        for figure in &self.0 {
            let pair = |samples: &Samples| {
                format!(
                    "{:.2} / {:.2}",
                    samples.percentile(0.5),
                    samples.percentile(0.99)
                )
            };
            let theirs = figure.theirs.as_ref().map_or_else(|| "-".into(), pair);
            let ratio = figure
                .ratio()
                .map_or_else(|| "-".into(), |ratio| format!("{ratio:.3}"));
            println!(
                "{:<44}{:>8} {:>20} {:>20} {:>7}  {}",
                figure.name,
                figure.unit,
                pair(&figure.ours),
                theirs,
                ratio,
                figure.theirs_is
            );
        }
    }

    pub fn write(&self, path: &str) -> std::io::Result<()> {
        let list: Vec<Value> = self.0.iter().map(Figure::json).collect();
        std::fs::write(path, format!("{:#}\n", Value::from(list)))
    }
}

impl Figure {
    /// Ours over theirs, at the median.
    fn ratio(&self) -> Option<f64> {
        Some(self.ours.percentile(0.5) / self.theirs.as_ref()?.percentile(0.5))
    }

    fn json(&self) -> Value {
        let pair = |samples: &Samples| json!({ "p50": round(samples.percentile(0.5)), "p99": round(samples.percentile(0.99)) });
        json!({
            "name": self.name,
            "unit": self.unit,
            "ours": pair(&self.ours),
            "theirs": self.theirs.as_ref().map(pair),
            "ratio": self.ratio().map(round),
            "theirs_is": self.theirs_is,
            "samples": self.ours.0.len(),
        })
    }
}

fn round(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}
