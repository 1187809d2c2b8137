//! Named executors: one process each that keeps its globals from call to call.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, timeout},
};

use super::{
    ExecuteError, Script, Slots,
    link::{Job, Report, Worker},
    pool::Pool,
};
use crate::{api::automation::ExecutorName, shutdown::Shutdown};

/// Executors at once.
pub const MAX_EXECUTORS: usize = 8;
/// Calls that may wait for one executor.
pub const MAX_QUEUED: usize = 16;

type Reply = oneshot::Sender<Result<Report, ExecuteError>>;

struct Call {
    script: Script,
    reply: Reply,
}

struct Entry {
    calls: mpsc::Sender<Call>,
    /// Calls that run or wait. Changed under the lock of the table only, so that nobody evicts an executor with a call on its way.
    pending: Arc<AtomicUsize>,
    used: Instant,
    /// Tells this executor's task from that of a later one of the same name.
    number: u64,
}

#[derive(Clone)]
pub struct Executors(Arc<Inner>);

struct Inner {
    table: Mutex<Table>,
    pool: Pool,
    slots: Slots,
    patience: Duration,
    idle: Duration,
    shutdown: Shutdown,
}

#[derive(Default)]
struct Table {
    entries: HashMap<ExecutorName, Entry>,
    started: u64,
}

impl Executors {
    pub fn new(
        pool: Pool,
        slots: Slots,
        patience: Duration,
        idle: Duration,
        shutdown: Shutdown,
    ) -> Self {
        Executors(Arc::new(Inner {
            table: Mutex::default(),
            pool,
            slots,
            patience,
            idle,
            shutdown,
        }))
    }

    /// Runs a script in the named executor, after those that were there before.
    pub async fn run(&self, name: ExecutorName, script: Script) -> Result<Report, ExecuteError> {
        let (reply, report) = oneshot::channel();
        let _pending = self.0.submit(name, Call { script, reply })?;
        report.await.unwrap_or(Err(ExecuteError::Stopping))
    }
}

/// A call that runs or waits, until it is dropped.
struct Pending {
    inner: Arc<Inner>,
    count: Arc<AtomicUsize>,
    name: ExecutorName,
    number: u64,
}

impl Drop for Pending {
    fn drop(&mut self) {
        let mut table = self.inner.table();
        self.count.fetch_sub(1, Ordering::Relaxed);
        if let Some(entry) = table.entries.get_mut(&self.name)
            && entry.number == self.number
        {
            entry.used = Instant::now();
        }
    }
}

impl Inner {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock()
    }

    fn submit(self: &Arc<Self>, name: ExecutorName, call: Call) -> Result<Pending, ExecuteError> {
        let mut table = self.table();
        if !table.entries.contains_key(&name) {
            if table.entries.len() >= MAX_EXECUTORS {
                table.evict()?;
            }
            table.started += 1;
            let number = table.started;
            let (calls, waiting) = mpsc::channel(MAX_QUEUED);
            let pending = Arc::new(AtomicUsize::new(0));
            table.entries.insert(
                name.clone(),
                Entry {
                    calls,
                    pending,
                    used: Instant::now(),
                    number,
                },
            );
            let task = self.clone().serve(name.clone(), number, waiting);
            self.shutdown.spawn(task);
        }
        let Some(entry) = table.entries.get_mut(&name) else {
            return Err(ExecuteError::Stopping);
        };
        match entry.calls.try_send(call) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(_)) => {
                return Err(ExecuteError::ExecutorQueueFull(name));
            }
            Err(mpsc::error::TrySendError::Closed(_)) => return Err(ExecuteError::Stopping),
        }
        entry.pending.fetch_add(1, Ordering::Relaxed);
        Ok(Pending {
            inner: self.clone(),
            count: entry.pending.clone(),
            number: entry.number,
            name,
        })
    }

    /// One executor's life.
    async fn serve(
        self: Arc<Self>,
        name: ExecutorName,
        number: u64,
        mut calls: mpsc::Receiver<Call>,
    ) {
        let mut worker: Option<Worker> = None;
        let mut slot = None;
        let stop = self.shutdown.token();
        loop {
            let call = tokio::select! {
                call = timeout(self.idle, calls.recv()) => call,
                () = ended(worker.as_ref()) => {
                    // Nothing is lost that the next call could still find.
                    worker = None;
                    if self.leave(&name, number) { return } else { continue }
                }
                () = stop.cancelled() => break,
            };
            match call {
                Ok(Some(Call { script, mut reply })) => {
                    let outcome = match slot.map_or_else(|| self.slots.take(), Ok) {
                        Ok(taken) => {
                            slot = Some(taken);
                            self.one(&name, &mut worker, script, &mut reply).await
                        }
                        Err(busy) => {
                            slot = None;
                            Err(busy)
                        }
                    };
                    // It is kept for those who have waited in this queue, and free again when the last of them has its answer.
                    if calls.is_empty() {
                        slot = None;
                    }
                    let _ = reply.send(outcome);
                }
                Ok(None) => return,
                Err(_) if self.leave(&name, number) => return,
                Err(_) => {}
            }
            if worker.is_none() && self.leave(&name, number) {
                return;
            }
        }
        self.table().entries.remove(&name);
    }

    /// One call; whoever has gone away gets no answer, of whatever kind it is.
    async fn one(
        &self,
        name: &ExecutorName,
        worker: &mut Option<Worker>,
        script: Script,
        reply: &mut Reply,
    ) -> Result<Report, ExecuteError> {
        if reply.is_closed() {
            return Err(ExecuteError::Stopping);
        }
        let mut held = match worker.take() {
            Some(held) if !held.is_ended() => held,
            _ => self.pool.acquire(self.patience).await?,
        };
        let job = Job {
            code: script.code,
            timeout: script.timeout,
            keep: true,
        };
        let mut report = tokio::select! {
            report = held.run(job) => report.unwrap_or_else(Report::never_began),
            // Dropping the run kills the process: a script never outlives its caller.
            () = reply.closed() => return Err(ExecuteError::Stopping),
        };
        if report.reusable {
            *worker = Some(held);
        } else {
            report.note = Some(format!(
                "the executor `{name}` has ended with this call: its next call starts afresh"
            ));
        }
        Ok(report)
    }

    /// Takes the executor out of the table, unless a call is on its way to it.
    fn leave(&self, name: &ExecutorName, number: u64) -> bool {
        let mut table = self.table();
        match table.entries.get(name) {
            Some(entry) if entry.number == number => {
                if entry.calls.capacity() < MAX_QUEUED {
                    return false;
                }
                table.entries.remove(name);
                true
            }
            _ => true,
        }
    }
}

impl Table {
    /// Ends the executor that has been idle for the longest time.
    fn evict(&mut self) -> Result<(), ExecuteError> {
        let idle = self
            .entries
            .iter()
            .filter(|(_, entry)| entry.pending.load(Ordering::Relaxed) == 0)
            .min_by_key(|(_, entry)| entry.used)
            .map(|(name, _)| name.clone());
        let name = idle.ok_or(ExecuteError::ExecutorsFull)?;
        // Its task sees the closed queue and lets the process go.
        self.entries.remove(&name);
        Ok(())
    }
}

async fn ended(worker: Option<&Worker>) {
    match worker {
        Some(worker) => worker.ended().await,
        None => std::future::pending().await,
    }
}
