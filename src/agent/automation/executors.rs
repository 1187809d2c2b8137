//! Named executors: each is a worker that keeps its globals from call to call.
//!
//! ```text
//! Executors::run --submit--> table (name -> Entry) --Call--> one task per executor
//!                                                            (owns the worker and the slot)
//! task ends: idle timeout | worker gone and no call queued | evicted | shutdown
//! ```
//!
//! The table is shared under a lock; each executor's task owns its worker.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, mpsc, oneshot},
    time::{Instant, timeout},
};

use super::{
    ExecuteError, Script, Slots,
    pool::Pool,
    worker_session::{Job, Report, Worker},
};
use crate::{api::automation::ExecutorName, shutdown::Shutdown};

/// The most executors at once.
pub(super) const MAX_EXECUTORS: usize = 8;
/// The most calls queued for one executor.
pub(super) const MAX_QUEUED_CALLS: usize = 16;

type Reply = oneshot::Sender<Result<Report, ExecuteError>>;

struct Call {
    script: Script,
    reply: Reply,
}

struct Entry {
    calls: mpsc::Sender<Call>,
    /// The number of running and queued calls. It changes only under the lock of the table, so that
    /// an executor with a call on its way is not evicted.
    pending: Arc<AtomicUsize>,
    last_used_at: Instant,
    /// Distinguishes this executor from a later one of the same name.
    number: u64,
}

#[derive(Clone)]
pub(super) struct Executors(Arc<Inner>);

struct Inner {
    table: Mutex<Table>,
    pool: Pool,
    slots: Slots,
    worker_timeout: Duration,
    idle_timeout: Duration,
    shutdown: Shutdown,
}

#[derive(Default)]
struct Table {
    entries: HashMap<ExecutorName, Entry>,
    last_number: u64,
}

impl Executors {
    /// `worker_timeout` bounds the wait for a worker, and `idle_timeout` the life of an executor
    /// without calls.
    pub(super) fn new(
        pool: Pool,
        slots: Slots,
        worker_timeout: Duration,
        idle_timeout: Duration,
        shutdown: Shutdown,
    ) -> Self {
        Executors(Arc::new(Inner {
            table: Mutex::default(),
            pool,
            slots,
            worker_timeout,
            idle_timeout,
            shutdown,
        }))
    }

    pub(super) fn is_any(&self) -> bool {
        !self.0.table.lock().entries.is_empty()
    }

    /// Runs a script in the named executor, after the calls queued before it.
    pub(super) async fn run(
        &self,
        name: ExecutorName,
        script: Script,
    ) -> Result<Report, ExecuteError> {
        let (reply, report) = oneshot::channel();
        let _pending = self.0.submit(name, Call { script, reply })?;
        report.await.unwrap_or(Err(ExecuteError::Stopping))
    }
}

/// Counts a call as pending until it is dropped.
struct PendingCall {
    inner: Arc<Inner>,
    count: Arc<AtomicUsize>,
    name: ExecutorName,
    number: u64,
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        let mut table = self.inner.table.lock();
        self.count.fetch_sub(1, Ordering::Relaxed);
        if let Some(entry) = table.entries.get_mut(&self.name)
            && entry.number == self.number
        {
            entry.last_used_at = Instant::now();
        }
    }
}

impl Inner {
    /// Queues a call, and starts its executor if there is none.
    fn submit(
        self: &Arc<Self>,
        name: ExecutorName,
        call: Call,
    ) -> Result<PendingCall, ExecuteError> {
        let mut table = self.table.lock();
        if !table.entries.contains_key(&name) {
            self.start_executor(&mut table, &name)?;
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
        Ok(PendingCall {
            inner: self.clone(),
            count: entry.pending.clone(),
            number: entry.number,
            name,
        })
    }

    fn start_executor(
        self: &Arc<Self>,
        table: &mut Table,
        name: &ExecutorName,
    ) -> Result<(), ExecuteError> {
        if table.entries.len() >= MAX_EXECUTORS {
            table.evict()?;
        }
        table.last_number += 1;
        let number = table.last_number;
        let (calls, call_queue) = mpsc::channel(MAX_QUEUED_CALLS);
        let entry = Entry {
            calls,
            pending: Arc::default(),
            last_used_at: Instant::now(),
            number,
        };
        table.entries.insert(name.clone(), entry);
        let executor = Executor {
            inner: self.clone(),
            name: name.clone(),
            number,
            worker: None,
            slot: None,
        };
        self.shutdown.spawn(executor.run(call_queue));
        Ok(())
    }
}

/// The task of one executor.
struct Executor {
    inner: Arc<Inner>,
    name: ExecutorName,
    number: u64,
    worker: Option<Worker>,
    /// The right to run scripts, held while calls are queued.
    slot: Option<OwnedSemaphorePermit>,
}

impl Executor {
    async fn run(mut self, mut calls: mpsc::Receiver<Call>) {
        let shutdown = self.inner.shutdown.token();
        loop {
            let call = tokio::select! {
                call = timeout(self.inner.idle_timeout, calls.recv()) => call,
                () = ended(self.worker.as_ref()) => {
                    // The globals are gone, so the next call may as well start a new executor.
                    self.worker = None;
                    if self.remove_if_unused() { return } else { continue }
                }
                () = shutdown.cancelled() => break,
            };
            match call {
                Ok(Some(call)) => self.serve(call, &calls).await,
                Ok(None) => return,
                Err(_) if self.remove_if_unused() => return,
                Err(_) => {}
            }
            if self.worker.is_none() && self.remove_if_unused() {
                return;
            }
        }
        self.inner.table.lock().entries.remove(&self.name);
    }

    async fn serve(&mut self, call: Call, calls: &mpsc::Receiver<Call>) {
        let Call { script, mut reply } = call;
        let outcome = match self.acquire_slot() {
            Ok(()) => self.run_script(script, &mut reply).await,
            Err(busy) => Err(busy),
        };
        // Queued calls inherit the slot. It is free again before the last of them has its reply.
        if calls.is_empty() {
            self.slot = None;
        }
        let _ = reply.send(outcome);
    }

    fn acquire_slot(&mut self) -> Result<(), ExecuteError> {
        if self.slot.is_none() {
            self.slot = Some(self.inner.slots.acquire()?);
        }
        Ok(())
    }

    async fn run_script(
        &mut self,
        script: Script,
        reply: &mut Reply,
    ) -> Result<Report, ExecuteError> {
        // The caller has gone, so the error is dropped.
        if reply.is_closed() {
            return Err(ExecuteError::Stopping);
        }
        let mut worker = match self.worker.take() {
            Some(worker) if !worker.is_ended() => worker,
            _ => self.inner.pool.acquire(self.inner.worker_timeout).await?,
        };
        let job = Job {
            code: script.code,
            timeout: script.timeout,
            keep_worker: true,
        };
        let mut report = tokio::select! {
            report = worker.run(job) => report.unwrap_or_else(Report::not_started),
            // Dropping the run kills the process: a script never outlives its caller.
            () = reply.closed() => return Err(ExecuteError::Stopping),
        };
        if report.reusable {
            self.worker = Some(worker);
        } else {
            report.note = Some(format!(
                "the executor `{}` has ended with this call: its next call starts afresh",
                self.name
            ));
        }
        Ok(report)
    }

    /// Removes the executor from the table, unless a call is on its way to it. Returns whether the
    /// table no longer has it.
    fn remove_if_unused(&self) -> bool {
        let mut table = self.inner.table.lock();
        match table.entries.get(&self.name) {
            Some(entry) if entry.number == self.number => {
                if entry.calls.capacity() < MAX_QUEUED_CALLS {
                    return false;
                }
                table.entries.remove(&self.name);
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
            .min_by_key(|(_, entry)| entry.last_used_at)
            .map(|(name, _)| name.clone());
        let name = idle.ok_or(ExecuteError::ExecutorsFull)?;
        // The executor's task ends when its queue closes.
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
