//! Profiles of 100 MB: a browser that starts with one, and saves of one, compared with the system's
//! own programs on a copy of the same directory.

use std::{
    fs,
    time::{Duration, Instant},
};

use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    archive::{grow, shell, size_of, unpack},
    cdp::Client,
    figures::{Figures, Samples},
    fixtures::{Agent, Dev, Result, text},
};

const ROUNDS: usize = 10;
/// Files of 1 MiB that a new profile gets in addition: a part that compresses and a part that does
/// not.
const TEXT_FILES: usize = 72;
const NOISE_FILES: usize = 24;
const PACK: &str = "tar -C \"$1\" -cf - . | zstd -q -f -3 -T0 -c > \"$2\"";
const MIB: f64 = (1 << 20) as f64;
/// The pause between two pings of a browser that is being saved.
const PING_INTERVAL: Duration = Duration::from_millis(1);

/// Times in ms, those of archives and saves per 100 MiB of the profile.
#[derive(Default)]
struct Measured {
    with_profile: Samples,
    without_profile: Samples,
    live_archive: Samples,
    closed_archive: Samples,
    running_save: Samples,
    ending_save: Samples,
    end_with_save: Samples,
    packed: Samples,
    frozen: Samples,
}

pub async fn measure(figures: &mut Figures, agent: &Agent) -> Result<()> {
    let scratch = TempDir::new()?;
    let profile = LargeProfile::create(&scratch, agent).await?;
    let dev = Dev::start().await?;
    let mut measured = Measured::default();
    for name in ["large", "saved"] {
        dev.http.post("/profiles", &json!({ "name": name })).await?;
    }
    let upload = dev.http.request(Method::PUT, "/profiles/large/upload");
    let upload = upload.body(fs::read(&profile.archive)?);
    upload.send().await?.error_for_status()?;
    let upload = agent.http.request(Method::PUT, "/user_data");
    let upload = upload.body(fs::read(&profile.archive)?);
    upload.send().await?.error_for_status()?;
    agent.http.get("/json/version").await?;
    for _ in 0..ROUNDS {
        measured.browsers(&dev, &profile).await?;
        measured.archives(agent, &profile).await?;
        let start = Instant::now();
        shell(PACK, &[&profile.directory, &profile.packed]).await?;
        measured.packed.add(profile.per_100_mib(start));
    }
    dev.stop().await?;
    measured.report(figures);
    Ok(())
}

/// A profile of about 100 MB, as a directory and as an archive.
struct LargeProfile {
    directory: std::path::PathBuf,
    archive: std::path::PathBuf,
    /// The target of the baseline.
    packed: std::path::PathBuf,
    mib: f64,
}

impl LargeProfile {
    async fn create(scratch: &TempDir, agent: &Agent) -> Result<Self> {
        let path = |name: &str| scratch.path().join(name);
        let (directory, archive, packed) = (path("profile"), path("archive"), path("packed"));
        fs::write(&archive, agent.http.get("/user_data").await?)?;
        agent.http.get("/json/version").await?;
        unpack(&archive, &directory).await?;
        grow(&directory.join("Default/Grown"), TEXT_FILES, NOISE_FILES)?;
        shell(PACK, &[&directory, &archive]).await?;
        let mib = size_of(&directory)? as f64 / MIB;
        Ok(Self {
            directory,
            archive,
            packed,
            mib,
        })
    }

    /// Returns the milliseconds since `start` for each 100 MiB.
    fn per_100_mib(&self, start: Instant) -> f64 {
        start.elapsed().as_secs_f64() * 1e3 * 100.0 / self.mib
    }
}

impl Measured {
    /// Measures the start of a browser with and without the profile, and both saves of it.
    async fn browsers(&mut self, dev: &Dev, profile: &LargeProfile) -> Result<()> {
        let start = Instant::now();
        let plain = dev.create_browser().await?;
        self.without_profile.add_ms(start.elapsed());
        dev.delete_browser(&plain).await?;

        let large = json!({ "name": "large", "save_changes": true });
        let request = json!({ "timeout_seconds": 600, "profile": large });
        let start = Instant::now();
        let browser = dev.http.post("/browsers", &request).await?;
        self.with_profile.add_ms(start.elapsed());

        let path = format!("/browsers/{}", text(&browser, "session_id")?);
        let saved = json!({ "name": "saved" });
        let start = Instant::now();
        dev.http.post(&format!("{path}/profiles"), &saved).await?;
        self.running_save.add(profile.per_100_mib(start));

        let saved_before = save_seconds(dev).await?;
        let start = Instant::now();
        let ended = dev.http.request(Method::DELETE, &path).send().await?;
        ended.error_for_status()?;
        self.end_with_save.add_ms(start.elapsed());
        let seconds = save_seconds(dev).await? - saved_before;
        self.ending_save.add(seconds * 1e3 * 100.0 / profile.mib);
        let saved = dev.http.get("/profiles/large").await?;
        let saved: Value = serde_json::from_slice(&saved)?;
        match saved.get("last_save_error") {
            None => Ok(()),
            Some(error) => Err(format!("the browser was not saved: {error}").into()),
        }
    }

    /// Measures the archives that an agent makes for the saves, and how long its Chromium stands
    /// still for the first.
    async fn archives(&mut self, agent: &Agent, profile: &LargeProfile) -> Result<()> {
        let (url, token) = agent.cdp_request();
        let mut client = Client::connect(&url, token.as_deref()).await?;
        let start = Instant::now();
        let archiving = agent.http.get("/user_data?live=true");
        tokio::pin!(archiving);
        let mut longest = Duration::ZERO;
        let mut id = 0;
        loop {
            id += 1;
            let ping = async {
                tokio::time::sleep(PING_INTERVAL).await;
                client.round_trip(id).await
            };
            tokio::select! {
                biased;
                round_trip = ping => longest = longest.max(round_trip?),
                archived = &mut archiving => {
                    archived?;
                    break;
                }
            }
        }
        self.live_archive.add(profile.per_100_mib(start));
        self.frozen.add_ms(longest);
        drop(client);
        let start = Instant::now();
        agent.http.get("/user_data").await?;
        self.closed_archive.add(profile.per_100_mib(start));
        agent.http.get("/json/version").await?;
        Ok(())
    }

    fn report(self, figures: &mut Figures) {
        figures.compare(
            "browser create with a profile of 100 MB",
            "ms",
            self.with_profile,
            "without a profile",
            self.without_profile,
        );
        for (name, times) in [
            ("live archive, per 100 MiB", self.live_archive),
            ("closed archive, per 100 MiB", self.closed_archive),
            ("save of a running browser, per 100 MiB", self.running_save),
            ("save of an ending browser, per 100 MiB", self.ending_save),
        ] {
            figures.compare(name, "ms", times, "tar | zstd -3 -T0", self.packed.clone());
        }
        figures.alone(
            "browser delete with a save of 100 MB",
            "ms",
            self.end_with_save,
        );
        figures.alone("Chromium stands still in a live archive", "ms", self.frozen);
    }
}

/// Returns the time that all saves have taken, as control measures it.
async fn save_seconds(dev: &Dev) -> Result<f64> {
    let metrics = dev.http.get("/metrics").await?;
    let metrics = std::str::from_utf8(&metrics)?;
    let sum = metrics
        .lines()
        .find_map(|line| line.strip_prefix("berth_profile_save_seconds_sum "));
    Ok(sum.ok_or("no save was measured")?.parse()?)
}
