//! Running a program to completion and capturing its output.

use std::{sync::Arc, time::Duration};

use tokio::time;

use super::{
    Inner, Processes, ProgramPermit, SpawnError,
    capture::{CapturedOutput, CapturedStreams, OutputSink},
    deadline,
    handle::Process,
    launch::DisplayAccess,
    lifecycle::{EXIT_TIMED_OUT, Exit, Lifecycle, OUTPUT_GRACE_PERIOD},
    memory_budget::MemoryReservation,
    output::{OutputReader, ProcessOutput},
};
use crate::{
    api::{ids::ProcessId, process::Launch},
    system::process::session::{StartError, StdioMode},
};

/// The result of a program that ran to completion.
#[derive(Debug)]
pub struct Execution {
    pub exit_code: i32,
    pub stdout: CapturedOutput,
    pub stderr: CapturedOutput,
    /// Whether a process that escaped the kill still has an output open.
    pub is_output_open: bool,
    pub duration: Duration,
    /// The memory that the output occupies.
    pub memory: MemoryReservation,
}

/// The work of running one program. It outlives the request if the client disconnects.
struct ExecWork {
    inner: Arc<Inner>,
    process: Process,
    output: ProcessOutput,
    sink: OutputSink,
    lifecycle: Lifecycle,
    permit: ProgramPermit,
}

struct Outcome {
    exit: Exit,
    streams: CapturedStreams,
    is_output_open: bool,
}

impl Processes {
    /// Runs a program to completion, and then kills everything it started. Dropping the future
    /// terminates the program.
    ///
    /// # Errors
    /// Fails if the program cannot be started; nothing runs then.
    pub async fn exec(
        &self,
        launch: Launch,
        display: Option<DisplayAccess>,
    ) -> Result<Execution, SpawnError> {
        let started_at = time::Instant::now();
        let deadline = deadline(&launch);
        let started = self.start(launch, StdioMode::NoInput, display).await?;
        self.inner.update_metrics();
        let memory = self.inner.exec_memory.reserve_none();
        let sink = OutputSink::capture(self.inner.options.exec_output_bytes, memory);
        // Executed programs have no log that clients could read.
        let (_, log) = OutputSink::log(0);
        let id = ProcessId::generate();
        let (process, output) = Process::new(id, started.mark, started.session, log);
        let cancel = self.inner.shutdown.token().child_token();
        let work = ExecWork {
            inner: self.inner.clone(),
            process,
            output,
            sink,
            lifecycle: Lifecycle {
                deadline,
                cancel: cancel.clone(),
                shutdown: self.inner.shutdown.clone(),
            },
            permit: started.permit,
        };
        let work = self.inner.shutdown.run_to_completion(work.run());
        let _cancel_on_drop = cancel.drop_guard();
        let outcome = work.await?;
        Ok(outcome.into_execution(started_at.elapsed()))
    }
}

impl ExecWork {
    async fn run(self) -> Result<Outcome, StartError> {
        let ExecWork {
            inner,
            process,
            output,
            sink,
            lifecycle,
            permit,
        } = self;
        let mut reader = OutputReader::new(output, &sink);
        let exit = reader.read_during(lifecycle.supervise(&process)).await;
        let is_executed = exit.code == 0 || !process.leader.was_killed_before_exec();
        reader.drain(OUTPUT_GRACE_PERIOD).await;
        let kill_and_reap = lifecycle.kill_and_reap(&process);
        let is_reaped = reader.read_during(kill_and_reap).await;
        // The killed processes can write no more, so the output is complete now.
        reader.drain(OUTPUT_GRACE_PERIOD).await;
        let is_output_open = reader.finish().await;
        // The permit is free before the client has its response, unless processes survived.
        let permit = (!is_reaped).then_some(permit);
        inner.update_metrics();
        if let Some(permit) = permit {
            let shutdown = inner.shutdown.clone();
            shutdown.spawn(async move {
                lifecycle.reap(&process).await;
                drop(permit);
                inner.update_metrics();
            });
        }
        if !is_executed {
            return Err(StartError::Killed);
        }
        Ok(Outcome {
            exit,
            streams: sink.take_captured(),
            is_output_open,
        })
    }
}

impl Outcome {
    fn into_execution(self, duration: Duration) -> Execution {
        let CapturedStreams {
            stdout,
            stderr,
            memory,
        } = self.streams;
        Execution {
            exit_code: match self.exit.is_timed_out {
                true => EXIT_TIMED_OUT,
                false => self.exit.code,
            },
            stdout,
            stderr,
            is_output_open: self.is_output_open,
            duration,
            memory,
        }
    }
}
