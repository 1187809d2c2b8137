//! The latency and the throughput of file watches.

use std::{
    fs::{self, File},
    io::Write,
    path::Path,
    time::Instant,
};

use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use reqwest::{Method, Response};
use serde_json::json;
use tempfile::TempDir;
use tokio::sync::mpsc;

use crate::{
    figures::{Figures, Samples},
    fixtures::{Agent, Result},
};

const BASELINE: &str = "inotify, read by a dedicated thread";
const WRITES: usize = 1000;
/// Few enough for the kernel's queue, so that no event is lost.
const FILES: usize = 10_000;
const ROUNDS: usize = 5;

pub async fn measure(figures: &mut Figures, agent: &Agent) -> Result<()> {
    let (mut berth, mut baseline) = (Samples::default(), Samples::default());
    let directory = TempDir::new()?;
    let mut file = File::create(directory.path().join("file"))?;
    let mut watch = AgentWatch::open(agent, directory.path()).await?;
    let mut bare = DirectWatch::open(directory.path())?;
    for _ in 0..WRITES {
        let start = Instant::now();
        file.write_all(b"x")?;
        // Both are awaited, in either order.
        let (berth_time, baseline_time) = tokio::join!(watch.events(1), bare.events(1));
        berth.add_us(berth_time? - start);
        baseline.add_us(baseline_time? - start);
    }
    figures.compare("watch, write to event", "us", berth, BASELINE, baseline);

    let (mut berth, mut baseline) = (Samples::default(), Samples::default());
    for _ in 0..ROUNDS {
        let directory = TempDir::new()?;
        let mut watch = AgentWatch::open(agent, directory.path()).await?;
        let (start, making) = (Instant::now(), make_files(directory.path()));
        let end = watch.events(FILES).await?;
        making.await??;
        berth.add(FILES as f64 / (end - start).as_secs_f64());
        drop(watch);

        let directory = TempDir::new()?;
        let mut bare = DirectWatch::open(directory.path())?;
        let (start, making) = (Instant::now(), make_files(directory.path()));
        let end = bare.events(FILES).await?;
        making.await??;
        baseline.add(FILES as f64 / (end - start).as_secs_f64());
    }
    figures.compare(
        format!("watch, {FILES} files created and reported"),
        "per s",
        berth,
        BASELINE,
        baseline,
    );
    Ok(())
}

fn make_files(directory: &Path) -> tokio::task::JoinHandle<std::io::Result<()>> {
    let directory = directory.to_owned();
    tokio::task::spawn_blocking(move || {
        for n in 0..FILES {
            fs::File::create(directory.join(n.to_string()))?;
        }
        Ok(())
    })
}

/// A watch of the agent and its event stream.
struct AgentWatch {
    stream: Response,
    at_line_start: bool,
    waiting: usize,
}

impl AgentWatch {
    async fn open(agent: &Agent, directory: &Path) -> Result<Self> {
        let created = agent
            .http
            .post("/fs/watch", &json!({ "path": directory }))
            .await?;
        let id = created["watch_id"].as_str().ok_or("no watch_id")?;
        let path = format!("/fs/watch/{id}/events");
        let stream = agent.http.request(Method::GET, &path).send().await?;
        Ok(Self {
            stream: stream.error_for_status()?,
            at_line_start: true,
            waiting: 0,
        })
    }

    /// Reads this many events; returns when they were complete.
    async fn events(&mut self, count: usize) -> Result<Instant> {
        while self.waiting < count {
            let chunk = self.stream.chunk().await?.ok_or("the stream has ended")?;
            for byte in chunk {
                // Only the data line of an event starts with this letter.
                self.waiting += usize::from(self.at_line_start && byte == b'd');
                self.at_line_start = byte == b'\n';
            }
        }
        self.waiting -= count;
        Ok(Instant::now())
    }
}

/// A direct inotify watch.
struct DirectWatch {
    batches: mpsc::UnboundedReceiver<usize>,
    waiting: usize,
}

impl DirectWatch {
    fn open(directory: &Path) -> Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC)?;
        let flags = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MODIFY;
        // The thread ends when the directory is removed.
        inotify.add_watch(directory, flags | AddWatchFlags::IN_DELETE_SELF)?;
        let (sender, batches) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            while let Ok(events) = inotify.read_events() {
                let counted = flags | AddWatchFlags::IN_Q_OVERFLOW;
                let count = events.iter().filter(|e| e.mask.intersects(counted)).count();
                let gone = events
                    .iter()
                    .any(|e| e.mask.contains(AddWatchFlags::IN_IGNORED));
                if sender.send(count).is_err() || gone {
                    break;
                }
            }
        });
        Ok(Self {
            batches,
            waiting: 0,
        })
    }

    async fn events(&mut self, count: usize) -> Result<Instant> {
        while self.waiting < count {
            self.waiting += self.batches.recv().await.ok_or("the watch has ended")?;
        }
        self.waiting -= count;
        Ok(Instant::now())
    }
}
