//! The JavaScript engine, with Playwright restored from a snapshot.

use std::{
    borrow::Cow,
    cell::RefCell,
    collections::HashMap,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use deno_core::{
    JsRuntime, JsRuntimeForSnapshot, ModuleLoadOptions, ModuleLoadReferrer, ModuleLoadResponse,
    ModuleLoader, ModuleResolveResponse, ModuleSpecifier, PollEventLoopOptions, ResolutionKind,
    RuntimeOptions, SourceMapApplication, error::ModuleLoaderError, v8,
};
use deno_error::JsErrorBox;

use crate::{
    ops::{self, Host},
    script_protocol::Page,
    typescript::CompiledScript,
    watchdog::Frame,
};

/// The bundle's file name in stack traces. Playwright recognizes its own frames by this directory.
const BUNDLE_NAME: &str = "/playwright-core/lib/playwright.js";

/// Runs right after the snapshot is restored. Returns the bundle's functions and removes everything
/// that refers to the engine's internals, so that scripts run in a plain JavaScript realm. Also
/// removes functions that block the thread without an interrupt, or run code that the watchdog
/// cannot stop.
const BOOTSTRAP_JS: &str = r#"(() => {
    // Loads the time zone file, which is out of reach later.
    new Date().getTimezoneOffset();
    const { start, attach, run, pendingCalls, scope } = globalThis.__berth;
    // QuickJS's Intl looks this function up by name. It only computes local times.
    const kept = "__v8xTemporalTimeZone";
    const hidden = ["Deno", "gc", "Atomics", "SharedArrayBuffer", "WebAssembly", "ShadowRealm"];
    for (const name of Object.getOwnPropertyNames(globalThis)) {
        if ((name.startsWith("__") && name !== kept) || hidden.includes(name)) delete globalThis[name];
    }
    return [start, attach, run, pendingCalls, scope.join()];
})()"#;

/// Loads the bundle and returns a snapshot of the heap.
pub(crate) fn snapshot(bundle: String) -> Result<Box<[u8]>, String> {
    let mut runtime = JsRuntimeForSnapshot::new(RuntimeOptions {
        extensions: ops::extensions(),
        ..RuntimeOptions::default()
    });
    runtime
        .execute_script(BUNDLE_NAME, bundle)
        .map_err(|err| err.to_string())?;
    // Runs all pending jobs: the snapshot would contain the queue, but not the engine's records.
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|err| err.to_string())?
        .block_on(runtime.run_event_loop(PollEventLoopOptions::default()))
        .map_err(|err| err.to_string())?;
    Ok(runtime.snapshot())
}

/// A JavaScript runtime with Playwright.
pub(crate) struct Engine {
    runtime: JsRuntime,
    sources: Rc<SourceMaps>,
    start: v8::Global<v8::Function>,
    attach: v8::Global<v8::Function>,
    run: v8::Global<v8::Function>,
    pending_calls: v8::Global<v8::Function>,
    heap_is_full: Arc<AtomicBool>,
    /// The names that are in scope of a script.
    pub(crate) scope: Vec<String>,
    /// Has tasks of V8, such as finalizers.
    #[cfg(feature = "v8")]
    platform: v8::SharedRef<v8::Platform>,
}

/// A script that the engine has loaded.
#[derive(Debug)]
pub(crate) struct Function(v8::Global<v8::Value>);

/// An error of the engine, after which it must not be used again.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct EngineError(String);

impl EngineError {
    pub(crate) fn new(err: impl std::fmt::Display) -> Self {
        EngineError(err.to_string())
    }
}

impl Engine {
    /// Starts the engine from the snapshot `heap`, with at most `heap_mb` MiB of heap. It needs no
    /// event loop and starts no thread, so the process can be forked afterwards.
    pub(crate) fn start(heap: &'static [u8], heap_mb: u32) -> Result<Engine, EngineError> {
        #[cfg(feature = "v8")]
        let platform = run_on_one_thread();
        let sources = Rc::new(SourceMaps::default());
        let heap_limit = (heap_mb as usize) << 20;
        let mut runtime = JsRuntime::try_new(RuntimeOptions {
            extensions: ops::extensions(),
            startup_snapshot: Some(heap),
            module_loader: Some(sources.clone()),
            create_params: Some(v8::CreateParams::default().heap_limits(0, heap_limit)),
            ..RuntimeOptions::default()
        })
        .map_err(EngineError::new)?;
        let heap_is_full = Arc::new(AtomicBool::new(false));
        #[cfg(feature = "v8")]
        stop_at_heap_limit(&mut runtime, heap_is_full.clone());

        let entry_points = runtime
            .execute_script("berth:start", BOOTSTRAP_JS)
            .map_err(EngineError::new)?;
        let (functions, scope) = read_entry_points(&mut runtime, &entry_points)
            .ok_or_else(|| EngineError::new("the bundle lacks its entry points"))?;
        let [start, attach, run, pending_calls] = functions;
        Ok(Engine {
            runtime,
            sources,
            start,
            attach,
            run,
            pending_calls,
            heap_is_full,
            scope,
            #[cfg(feature = "v8")]
            platform,
        })
    }

    /// Sets the host, and starts what each process has of its own.
    pub(crate) fn start_process(&mut self, host: Rc<Host>) -> Result<(), EngineError> {
        self.runtime.op_state().borrow_mut().put(host);
        deno_core::scope!(scope, &mut self.runtime);
        v8::tc_scope!(let scope, scope);
        let function = v8::Local::new(scope, &self.start);
        let this = v8::undefined(scope).into();
        match function.call(scope, this, &[]) {
            Some(_) => Ok(()),
            None => Err(EngineError::new(
                "the process has no clock or no random numbers",
            )),
        }
    }

    /// Starts to connect Playwright to the browser. `Host::ready` is set when it has connected.
    pub(crate) fn attach(&mut self) {
        // The result of the promise shows in the host or in `poll`.
        drop(self.runtime.call(&self.attach));
    }

    /// Loads a script without running it.
    pub(crate) fn load(
        &mut self,
        name: &str,
        script: CompiledScript,
    ) -> Result<Function, EngineError> {
        self.sources
            .maps
            .borrow_mut()
            .insert(name.to_owned(), script.source_map.into_bytes());
        self.runtime
            .execute_script(name.to_owned(), script.javascript)
            .map(Function)
            .map_err(EngineError::new)
    }

    /// Starts a script. `Host::run` records how it ends.
    pub(crate) fn run(&mut self, script: Function, page: &Page) -> Result<(), EngineError> {
        let target = {
            deno_core::scope!(scope, &mut self.runtime);
            let target: v8::Local<v8::Value> = match page {
                Page::Tab(target) => v8::String::new(scope, target)
                    .ok_or_else(|| EngineError::new("the id of the tab is too long"))?
                    .into(),
                Page::Fresh => v8::null(scope).into(),
                Page::Unused => v8::undefined(scope).into(),
            };
            v8::Global::new(scope, target)
        };
        drop(self.runtime.call_with_args(&self.run, &[script.0, target]));
        Ok(())
    }

    /// Runs the event loop. Ready when nothing can wake it any more, or on an uncaught error.
    pub(crate) fn poll(&mut self, context: &mut Context) -> Poll<Result<(), EngineError>> {
        #[cfg(feature = "v8")]
        while v8::Platform::pump_message_loop(&self.platform, self.runtime.v8_isolate(), false) {}
        self.runtime
            .poll_event_loop(context, PollEventLoopOptions::default())
            .map_err(EngineError::new)
    }

    /// Returns the calls that the script waits for, in the form of a stack trace.
    pub(crate) fn pending_calls(&mut self) -> String {
        deno_core::scope!(scope, &mut self.runtime);
        v8::tc_scope!(let scope, scope);
        let function = v8::Local::new(scope, &self.pending_calls);
        let this = v8::undefined(scope).into();
        function
            .call(scope, this, &[])
            .map(|text| text.to_rust_string_lossy(scope))
            .unwrap_or_default()
    }

    /// Formats stack frames with the line numbers of the TypeScript code, without those of the
    /// bundle.
    pub(crate) fn describe(&self, frames: &[Frame]) -> String {
        let mapper = self.runtime.source_mapper();
        let mut mapper = mapper.borrow_mut();
        let lines = frames
            .iter()
            // An engine that is stopped between two instructions does not always know its position;
            // QuickJS then knows the name of the frame at most.
            .filter(|frame| frame.file != BUNDLE_NAME && frame.line > 0)
            .map(|frame| {
                let mapped = mapper.apply_source_map(&frame.file, frame.line, frame.column.max(1));
                let position = match mapped {
                    SourceMapApplication::Unchanged => frame.file.clone(),
                    SourceMapApplication::LineAndColumn {
                        line_number: line,
                        column_number: column,
                    }
                    | SourceMapApplication::LineAndColumnAndFileName {
                        line_number: line,
                        column_number: column,
                        ..
                    } => format!("{}:{line}:{column}", frame.file),
                };
                match frame.function.as_str() {
                    "" => format!("    at {position}"),
                    function => format!("    at {function} ({position})"),
                }
            })
            .collect::<Vec<_>>();
        lines.join("\n")
    }

    pub(crate) fn handle(&mut self) -> v8::IsolateHandle {
        self.runtime.v8_isolate().thread_safe_handle()
    }

    pub(crate) fn context(&mut self) -> v8::Global<v8::Context> {
        self.runtime.main_context()
    }

    /// Whether the engine was stopped while it ran code: for lack of memory, unless the watchdog
    /// did it.
    pub(crate) fn is_stopped(&mut self) -> bool {
        self.heap_is_full.load(Ordering::Acquire)
            || self.runtime.v8_isolate().is_execution_terminating()
    }
}

/// Reads the array that [`BOOTSTRAP_JS`] returns: the functions `start`, `attach`, `run` and
/// `pendingCalls`, and the names in scope.
fn read_entry_points(
    runtime: &mut JsRuntime,
    entry_points: &v8::Global<v8::Value>,
) -> Option<([v8::Global<v8::Function>; 4], Vec<String>)> {
    deno_core::scope!(scope, runtime);
    let entry_points = v8::Local::new(scope, entry_points);
    let list = v8::Local::<v8::Array>::try_from(entry_points).ok()?;
    let function = |scope: &mut v8::PinScope, index| {
        let value = list.get_index(scope, index)?;
        let function = v8::Local::<v8::Function>::try_from(value).ok()?;
        Some(v8::Global::new(scope, function))
    };
    let functions = [
        function(scope, 0)?,
        function(scope, 1)?,
        function(scope, 2)?,
        function(scope, 3)?,
    ];
    let names = list.get_index(scope, 4)?.to_rust_string_lossy(scope);
    Some((functions, names.split(',').map(str::to_owned).collect()))
}

/// Keeps V8 from starting threads, which a fork would lose.
#[cfg(feature = "v8")]
fn run_on_one_thread() -> v8::SharedRef<v8::Platform> {
    v8::V8::set_flags_from_string("--single-threaded");
    let platform = v8::new_single_threaded_default_platform(false).make_shared();
    JsRuntime::init_platform(Some(platform.clone()));
    platform
}

/// Stops the script shortly before the heap is full, with room for the error message: V8 would end
/// the process. QuickJS stops the script by itself.
#[cfg(feature = "v8")]
fn stop_at_heap_limit(runtime: &mut JsRuntime, is_full: Arc<AtomicBool>) {
    const ROOM: usize = 32 << 20;
    let handle = runtime.v8_isolate().thread_safe_handle();
    runtime.add_near_heap_limit_callback(move |current, _initial| {
        is_full.store(true, Ordering::Release);
        handle.terminate_execution();
        current + ROOM
    });
}

/// The source maps of scripts, for line numbers in stack traces. As the module loader it rejects
/// all imports.
#[derive(Default)]
struct SourceMaps {
    maps: RefCell<HashMap<String, Vec<u8>>>,
}

impl SourceMaps {
    fn rejection(specifier: &str) -> JsErrorBox {
        JsErrorBox::type_error(format!(
            "import({specifier:?}) is not available in a script"
        ))
    }
}

impl ModuleLoader for SourceMaps {
    fn resolve(
        &self,
        specifier: &str,
        _referrer: &str,
        _kind: ResolutionKind,
    ) -> ModuleResolveResponse {
        Err(Self::rejection(specifier))
    }

    fn load(
        &self,
        specifier: &ModuleSpecifier,
        _referrer: Option<&ModuleLoadReferrer>,
        _options: ModuleLoadOptions,
    ) -> ModuleLoadResponse {
        let rejected: Result<_, ModuleLoaderError> = Err(Self::rejection(specifier.as_str()));
        ModuleLoadResponse::Sync(rejected)
    }

    fn get_source_map(&self, file_name: &str) -> Option<Cow<'_, [u8]>> {
        let map = self.maps.borrow().get(file_name)?.clone();
        Some(Cow::Owned(map))
    }
}
