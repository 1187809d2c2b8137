//! Watches: how long until a change is told, and how many are told in a second.

use crate::figures::{Figures, Samples};
use crate::parts::{Agent, Result};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use reqwest::{Method, Response};
use serde_json::json;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::time::Instant;
use tempfile::TempDir;
use tokio::sync::mpsc;

const THEIRS_IS: &str = "inotify itself, read by a thread of its own";
const WRITES: usize = 1000;
/// Few enough for the kernel's queue, so that neither side loses any.
const FILES: usize = 10_000;
const ROUNDS: usize = 5;

pub async fn measure(figures: &mut Figures, agent: &Agent) -> Result<()> {
    let (mut ours, mut theirs) = (Samples::default(), Samples::default());
    let folder = TempDir::new()?;
    let mut file = File::create(folder.path().join("file"))?;
    let mut told = Told::open(agent, folder.path()).await?;
    let mut bare = Bare::open(folder.path())?;
    for _ in 0..WRITES {
        let start = Instant::now();
        file.write_all(b"x")?;
        // Each is read to the end, whichever of them is first.
        let (at_ours, at_theirs) = tokio::join!(told.events(1), bare.events(1));
        ours.add_us(at_ours? - start);
        theirs.add_us(at_theirs? - start);
    }
    figures.compare("watch, write to event", "us", ours, THEIRS_IS, theirs);

    let (mut ours, mut theirs) = (Samples::default(), Samples::default());
    for _ in 0..ROUNDS {
        let folder = TempDir::new()?;
        let mut told = Told::open(agent, folder.path()).await?;
        let (start, making) = (Instant::now(), make_files(folder.path()));
        let end = told.events(FILES).await?;
        making.await??;
        ours.add(FILES as f64 / (end - start).as_secs_f64());
        drop(told);

        let folder = TempDir::new()?;
        let mut bare = Bare::open(folder.path())?;
        let (start, making) = (Instant::now(), make_files(folder.path()));
        let end = bare.events(FILES).await?;
        making.await??;
        theirs.add(FILES as f64 / (end - start).as_secs_f64());
    }
    figures.compare(
        format!("watch, {FILES} files made and told"),
        "per s",
        ours,
        THEIRS_IS,
        theirs,
    );
    Ok(())
}

fn make_files(folder: &Path) -> tokio::task::JoinHandle<std::io::Result<()>> {
    let folder = folder.to_owned();
    tokio::task::spawn_blocking(move || {
        for n in 0..FILES {
            fs::File::create(folder.join(n.to_string()))?;
        }
        Ok(())
    })
}

/// A watch of the agent's, and its stream.
struct Told {
    stream: Response,
    line_begins: bool,
    waiting: usize,
}

impl Told {
    async fn open(agent: &Agent, folder: &Path) -> Result<Self> {
        let created = agent
            .http
            .post("/fs/watch", &json!({ "path": folder }))
            .await?;
        let id = created["watch_id"].as_str().ok_or("no watch_id")?;
        let path = format!("/fs/watch/{id}/events");
        let stream = agent.http.request(Method::GET, &path).send().await?;
        Ok(Self {
            stream: stream.error_for_status()?,
            line_begins: true,
            waiting: 0,
        })
    }

    /// When so many events more have been read.
    async fn events(&mut self, count: usize) -> Result<Instant> {
        while self.waiting < count {
            let chunk = self.stream.chunk().await?.ok_or("the stream has ended")?;
            for byte in chunk {
                // Of the lines of an event only its data begins so.
                self.waiting += usize::from(self.line_begins && byte == b'd');
                self.line_begins = byte == b'\n';
            }
        }
        self.waiting -= count;
        Ok(Instant::now())
    }
}

/// The same from the kernel.
struct Bare {
    batches: mpsc::UnboundedReceiver<usize>,
    waiting: usize,
}

impl Bare {
    fn open(folder: &Path) -> Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC)?;
        let flags = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MODIFY;
        // The directory's end is what the thread ends with.
        inotify.add_watch(folder, flags | AddWatchFlags::IN_DELETE_SELF)?;
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
