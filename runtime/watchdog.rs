//! A thread that stops what does not stop by itself: a script that holds the engine beyond its
//! deadline, and the process once the agent is gone.
//!
//! ```text
//! deadline ── grace period ── interrupt (records the stack, terminates) ── terminate
//! ```

#![allow(unsafe_code, reason = "interrupts the engine from another thread")]

use std::{
    ffi::c_void,
    io,
    os::fd::{AsFd, OwnedFd},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use deno_core::v8;
use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        signal::{Signal, kill},
        time::TimeSpec,
        timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags},
    },
    unistd::Pid,
};
use parking_lot::Mutex;

/// A handle on the watchdog thread.
pub(crate) struct Watchdog {
    shared: Arc<Shared>,
}

struct Shared {
    fired: AtomicBool,
    /// Expires [`LOOP_GRACE_PERIOD`] after the deadline. Setting it does not wake the thread, which
    /// would take a core from the script.
    timer: TimerFd,
    /// The stack of the script when it was stopped.
    frames: Mutex<Vec<Frame>>,
    handle: v8::IsolateHandle,
    context: ContextHandle,
    /// The number of interrupts since the script was stopped.
    #[cfg(feature = "quickjs")]
    interrupts: std::sync::atomic::AtomicU32,
}

/// The realm that scripts run in. Only the engine's thread may use it.
struct ContextHandle(v8::Global<v8::Context>);

// SAFETY: only interrupt handlers read it, which the engine calls on its own thread, and it is
// never dropped: the watchdog thread, which holds the last reference, runs as long as the process.
unsafe impl Send for ContextHandle {}
// SAFETY: as above.
unsafe impl Sync for ContextHandle {}

/// A stack frame, with line numbers of the JavaScript code.
#[derive(Debug, Clone)]
pub(crate) struct Frame {
    pub(crate) function: String,
    pub(crate) file: String,
    pub(crate) line: u32,
    pub(crate) column: u32,
}

/// The time after a deadline for the worker's own loop to handle it. The loop is free if the script
/// waits, and can then report for what.
const LOOP_GRACE_PERIOD: Duration = Duration::from_millis(30);
/// The maximum number of stack frames that are recorded.
const MAX_FRAMES: usize = 30;
/// The time for the engine to handle the interrupt, which records the stack, before it is
/// terminated without.
const INTERRUPT_TIMEOUT: Duration = Duration::from_millis(100);

impl Watchdog {
    /// Starts the thread. It watches `socket` for the end of the agent, and stops the engine of
    /// `handle` at its deadline.
    pub(crate) fn start(
        socket: OwnedFd,
        handle: v8::IsolateHandle,
        context: v8::Global<v8::Context>,
    ) -> io::Result<Watchdog> {
        let shared = Arc::new(Shared {
            fired: AtomicBool::new(false),
            timer: TimerFd::new(
                ClockId::CLOCK_MONOTONIC,
                TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK,
            )?,
            frames: Mutex::default(),
            handle,
            context: ContextHandle(context),
            #[cfg(feature = "quickjs")]
            interrupts: std::sync::atomic::AtomicU32::new(1),
        });
        let thread_shared = shared.clone();
        std::thread::Builder::new()
            .name("watchdog".into())
            .stack_size(64 << 10)
            .spawn(move || run(&socket, &thread_shared))?;
        Ok(Watchdog { shared })
    }

    /// Sets the deadline of the running script, or removes it.
    pub(crate) fn set_deadline(&self, deadline: Option<Instant>) -> io::Result<()> {
        let timer = &self.shared.timer;
        let Some(deadline) = deadline else {
            return Ok(timer.unset()?);
        };
        let remaining = (deadline + LOOP_GRACE_PERIOD).saturating_duration_since(Instant::now());
        // Zero would stop the timer.
        let remaining = TimeSpec::from_duration(remaining.max(Duration::from_nanos(1)));
        Ok(timer.set(Expiration::OneShot(remaining), TimerSetTimeFlags::empty())?)
    }

    /// Returns the stack of the script when it was stopped; empty if it was waiting.
    pub(crate) fn frames(&self) -> Vec<Frame> {
        self.shared.frames.lock().clone()
    }

    /// Whether the deadline passed while the engine was busy.
    pub(crate) fn has_fired(&self) -> bool {
        self.shared.fired.load(Ordering::Acquire)
    }
}

/// Records the stack and terminates the script. Runs on the engine's thread, between two
/// instructions of the script.
unsafe extern "C" fn handle_interrupt(isolate: v8::UnsafeRawIsolatePtr, shared: *mut c_void) {
    // SAFETY: made by `Arc::into_raw` for this one call.
    let shared = unsafe { Arc::from_raw(shared.cast_const().cast::<Shared>()) };
    // SAFETY: the engine hands out its own pointer for the length of this call, on its own thread.
    let mut isolate = unsafe { v8::Isolate::from_raw_isolate_ptr(isolate) };
    *shared.frames.lock() = frames_of(&mut isolate, &shared.context);
    shared.handle.terminate_execution();
    #[cfg(feature = "quickjs")]
    stop_every_job(&shared);
}

/// Interrupts the engine again and again, until its job queue is empty.
///
/// QuickJS terminates only the current job of its queue and continues with the next. It checks for
/// interrupts after a fixed number of calls. If a loop of the script fits into that number, each
/// check happens at the same position, where ending the job may not end the loop. So every
/// interrupt moves the position a little further.
#[cfg(feature = "quickjs")]
fn stop_every_job(shared: &Arc<Shared>) {
    unsafe extern "C" fn shift_position(isolate: v8::UnsafeRawIsolatePtr, shared: *mut c_void) {
        // SAFETY: made by `Arc::into_raw` for this one call.
        let shared = unsafe { Arc::from_raw(shared.cast_const().cast::<Shared>()) };
        // SAFETY: the engine hands out its own pointer for the length of this call, on its own
        // thread.
        let mut isolate = unsafe { v8::Isolate::from_raw_isolate_ptr(isolate) };
        let iterations = shared.interrupts.fetch_add(1, Ordering::Relaxed);
        run_loop(&mut isolate, &shared.context, iterations);
        stop_every_job(&shared);
    }
    // Leaks if the engine handles no more interrupts; the process is about to end then.
    let argument = Arc::into_raw(shared.clone()).cast_mut().cast();
    shared.handle.request_interrupt(shift_position, argument);
}

/// Runs an empty loop with the given number of iterations in the engine.
#[cfg(feature = "quickjs")]
fn run_loop(isolate: &mut v8::Isolate, context: &ContextHandle, iterations: u32) {
    v8::scope!(let scope, isolate);
    let context = v8::Local::new(scope, &context.0);
    let scope = &v8::ContextScope::new(scope, context);
    let code = format!("for (let i = 0; i < {iterations}; i++);");
    if let Some(script) =
        v8::String::new(scope, &code).and_then(|code| v8::Script::compile(scope, code, None))
    {
        script.run(scope);
    }
}

fn frames_of(isolate: &mut v8::Isolate, context: &ContextHandle) -> Vec<Frame> {
    v8::scope!(let scope, isolate);
    let context = v8::Local::new(scope, &context.0);
    let scope = &v8::ContextScope::new(scope, context);
    let Some(stack) = v8::StackTrace::current_stack_trace(scope, MAX_FRAMES) else {
        return Vec::new();
    };
    let text = |value: Option<v8::Local<v8::String>>, scope: &v8::PinScope| {
        value
            .map(|value| value.to_rust_string_lossy(scope))
            .unwrap_or_default()
    };
    (0..stack.get_frame_count())
        .filter_map(|index| stack.get_frame(scope, index))
        .map(|frame| Frame {
            function: text(frame.get_function_name(scope), scope),
            file: text(frame.get_script_name(scope), scope),
            line: u32::try_from(frame.get_line_number()).unwrap_or_default(),
            column: u32::try_from(frame.get_column()).unwrap_or_default(),
        })
        .collect()
}

/// The body of the thread.
#[expect(clippy::disallowed_methods, reason = "runs on the watchdog thread")]
fn run(socket: &OwnedFd, shared: &Arc<Shared>) {
    loop {
        let mut watched = [
            PollFd::new(
                socket.as_fd(),
                PollFlags::from_bits_retain(nix::libc::POLLRDHUP),
            ),
            PollFd::new(shared.timer.as_fd(), PollFlags::POLLIN),
        ];
        if poll(&mut watched, PollTimeout::NONE).is_err() {
            continue;
        }
        if watched[0].any().unwrap_or(true) {
            // The agent is gone, and the engine may never return control to the loop.
            let _ = kill(Pid::this(), Signal::SIGKILL);
        }
        // The wait fails if the deadline was changed after `poll` had returned.
        if watched[1].any().unwrap_or(false) && shared.timer.wait().is_ok() {
            shared.fired.store(true, Ordering::Release);
            // Leaks if the engine never handles it; the process is about to end then.
            let argument = Arc::into_raw(shared.clone()).cast_mut().cast();
            shared.handle.request_interrupt(handle_interrupt, argument);
            std::thread::sleep(INTERRUPT_TIMEOUT);
            shared.handle.terminate_execution();
        }
    }
}
