#![allow(
    unsafe_code,
    reason = "asks the engine, from another thread, where it is"
)]

//! A thread that ends what does not end by itself: a script that is over its time while it holds the engine, and the whole
//! process once the agent is gone.

use std::{
    ffi::c_void,
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
        eventfd::{EfdFlags, EventFd},
        signal::{Signal, kill},
    },
    unistd::Pid,
};
use parking_lot::Mutex;

pub struct Stopper {
    shared: Arc<Shared>,
}

struct Shared {
    deadline: Mutex<Option<Instant>>,
    fired: AtomicBool,
    changed: EventFd,
    /// Where the script was when it was stopped.
    frames: Mutex<Vec<Frame>>,
    handle: v8::IsolateHandle,
    context: ContextHandle,
    /// How often the engine has looked since it was stopped.
    #[cfg(feature = "quickjs")]
    looks: std::sync::atomic::AtomicU32,
}

/// The realm that scripts run in, for the engine's thread alone to look at.
struct ContextHandle(v8::Global<v8::Context>);

// SAFETY: only `stop_here` reads it, which the engine calls on its own thread, and nothing drops it: the watching thread, which
// holds the last reference, runs for as long as the process.
unsafe impl Send for ContextHandle {}
// SAFETY: as above.
unsafe impl Sync for ContextHandle {}

/// One level of a script's stack, in the lines of the code that the engine runs.
#[derive(Debug, Clone)]
pub struct Frame {
    pub function: String,
    pub file: String,
    pub line: u32,
    pub column: u32,
}

/// How long the worker's own loop has to notice that a script is over its time. It does where the script waits for something, and
/// can say for what.
const FIRST_CHANCE: Duration = Duration::from_millis(30);
/// How many levels of a stack are kept.
const MAX_FRAMES: usize = 30;
/// How long the engine may take to say where it is before it is stopped all the same.
const FRAMES_PATIENCE: Duration = Duration::from_millis(100);

impl Stopper {
    /// Watches `socket` for the agent's end and the engine behind `handle` for its deadline.
    pub fn start(
        socket: OwnedFd,
        handle: v8::IsolateHandle,
        context: v8::Global<v8::Context>,
    ) -> std::io::Result<Stopper> {
        let shared = Arc::new(Shared {
            deadline: Mutex::new(None),
            fired: AtomicBool::new(false),
            changed: EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?,
            frames: Mutex::default(),
            handle,
            context: ContextHandle(context),
            #[cfg(feature = "quickjs")]
            looks: std::sync::atomic::AtomicU32::new(1),
        });
        let watched = shared.clone();
        std::thread::Builder::new()
            .name("stop".into())
            .stack_size(64 << 10)
            .spawn(move || watch(&socket, &watched))?;
        Ok(Stopper { shared })
    }

    pub fn set_deadline(&self, deadline: Option<Instant>) {
        *lock(&self.shared.deadline) = deadline.map(|deadline| deadline + FIRST_CHANCE);
        // Only fails when the counter is full, and then the thread is awake.
        let _ = self.shared.changed.write(1);
    }

    /// Where the script was when it was stopped; empty where it was not running.
    pub fn frames(&self) -> Vec<Frame> {
        lock(&self.shared.frames).clone()
    }

    /// Whether the deadline has passed while the engine was busy.
    pub fn has_fired(&self) -> bool {
        self.shared.fired.load(Ordering::Acquire)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> parking_lot::MutexGuard<'_, T> {
    mutex.lock()
}

/// Runs on the engine's thread, between two instructions of the script.
unsafe extern "C" fn stop_here(isolate: v8::UnsafeRawIsolatePtr, shared: *mut c_void) {
    // SAFETY: made by `Arc::into_raw` for this one call.
    let shared = unsafe { Arc::from_raw(shared.cast_const().cast::<Shared>()) };
    // SAFETY: the engine hands out its own pointer for the length of this call, on its own thread.
    let mut isolate = unsafe { v8::Isolate::from_raw_isolate_ptr(isolate) };
    *lock(&shared.frames) = frames_of(&mut isolate, &shared.context);
    shared.handle.terminate_execution();
    #[cfg(feature = "quickjs")]
    stop_every_job(&shared);
}

/// QuickJS ends the one job of its queue that it is at and goes on with the next. It looks at every so many calls, and where a
/// script's own round fits into that number, it looks at the same place each time, where the end of the job may be no end of
/// the round. So the place is moved, a little further each time, until the queue is empty.
#[cfg(feature = "quickjs")]
fn stop_every_job(shared: &Arc<Shared>) {
    unsafe extern "C" fn move_on(isolate: v8::UnsafeRawIsolatePtr, shared: *mut c_void) {
        // SAFETY: made by `Arc::into_raw` for this one call.
        let shared = unsafe { Arc::from_raw(shared.cast_const().cast::<Shared>()) };
        // SAFETY: the engine hands out its own pointer for the length of this call, on its own thread.
        let mut isolate = unsafe { v8::Isolate::from_raw_isolate_ptr(isolate) };
        let turns = shared.looks.fetch_add(1, Ordering::Relaxed);
        turn(&mut isolate, &shared.context, turns);
        stop_every_job(&shared);
    }
    // Leaked where the engine looks no more; the process is about to end then.
    let asked = Arc::into_raw(shared.clone()).cast_mut().cast();
    shared.handle.request_interrupt(move_on, asked);
}

/// Has the engine count `turns` of a loop.
#[cfg(feature = "quickjs")]
fn turn(isolate: &mut v8::Isolate, context: &ContextHandle, turns: u32) {
    v8::scope!(let scope, isolate);
    let context = v8::Local::new(scope, &context.0);
    let scope = &v8::ContextScope::new(scope, context);
    let code = format!("for (let i = 0; i < {turns}; i++);");
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

fn watch(socket: &OwnedFd, shared: &Arc<Shared>) {
    loop {
        let remaining = lock(&shared.deadline)
            .map(|deadline| deadline.saturating_duration_since(Instant::now()));
        if remaining.is_some_and(|remaining| remaining.is_zero()) {
            *lock(&shared.deadline) = None;
            shared.fired.store(true, Ordering::Release);
            // Leaked where the engine never gets to it; the process is about to end then.
            let asked = Arc::into_raw(shared.clone()).cast_mut().cast();
            shared.handle.request_interrupt(stop_here, asked);
            std::thread::sleep(FRAMES_PATIENCE);
            shared.handle.terminate_execution();
            continue;
        }
        let timeout = match remaining {
            // Up to the next millisecond, so that it is over when this returns.
            Some(remaining) => {
                PollTimeout::try_from(remaining.as_millis() + 1).unwrap_or(PollTimeout::MAX)
            }
            None => PollTimeout::NONE,
        };
        let mut watched = [
            PollFd::new(
                socket.as_fd(),
                PollFlags::from_bits_retain(nix::libc::POLLRDHUP),
            ),
            PollFd::new(shared.changed.as_fd(), PollFlags::POLLIN),
        ];
        if poll(&mut watched, timeout).is_err() {
            continue;
        }
        if watched[0].any().unwrap_or(true) {
            // Nobody is left to answer to, and the engine may never come back to notice.
            let _ = kill(Pid::this(), Signal::SIGKILL);
        }
        if watched[1].any().unwrap_or(false) {
            let _ = shared.changed.read();
        }
    }
}
