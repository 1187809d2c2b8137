//! The JavaScript engine with Playwright in it.

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
    stop::Frame,
    typescript::Compiled,
};

/// How stack traces name the bundle. Playwright knows its own frames by this folder.
const BUNDLE_NAME: &str = "/playwright-core/lib/playwright.js";

/// Runs after the snapshot is restored and before anything else. Takes the bundle's functions and removes all that leads to the
/// engine's own, so that a script finds a plain JavaScript realm. What blocks the thread without an interrupt, or runs code
/// that the watchdog cannot stop, goes as well.
const TAKE_OVER: &str = r#"(() => {
    // The timers' clock starts anew, the time of the next wake-up comes with the snapshot: it would keep later ones from being set.
    Deno.core.ops.op_timer_schedule(0);
    // The time zone's file is read once, and out of reach later.
    new Date().getTimezoneOffset();
    const { attach, run, pendingCalls, scope } = globalThis.__berth;
    // QuickJS's Intl looks this one up by name; it computes local times and no more.
    const kept = "__v8xTemporalTimeZone";
    const hidden = ["Deno", "gc", "Atomics", "SharedArrayBuffer", "WebAssembly", "ShadowRealm"];
    for (const name of Object.getOwnPropertyNames(globalThis)) {
        if ((name.startsWith("__") && name !== kept) || hidden.includes(name)) delete globalThis[name];
    }
    return [attach, run, pendingCalls, scope.join()];
})()"#;

/// Loads the bundle and returns the engine's heap.
pub fn snapshot(bundle: String) -> Result<Box<[u8]>, String> {
    let mut runtime = JsRuntimeForSnapshot::new(RuntimeOptions {
        extensions: ops::extensions(),
        ..RuntimeOptions::default()
    });
    runtime
        .execute_script(BUNDLE_NAME, bundle)
        .map_err(|err| err.to_string())?;
    // What the bundle has put off must be over: the engine's books of it do not survive the snapshot, its queue does.
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|err| err.to_string())?
        .block_on(runtime.run_event_loop(PollEventLoopOptions::default()))
        .map_err(|err| err.to_string())?;
    Ok(runtime.snapshot())
}

pub struct Engine {
    runtime: JsRuntime,
    sources: Rc<Sources>,
    attach: v8::Global<v8::Function>,
    run: v8::Global<v8::Function>,
    pending_calls: v8::Global<v8::Function>,
    heap_is_full: Arc<AtomicBool>,
    /// The names that a script finds in scope.
    pub scope: Vec<String>,
}

/// A script that the engine has taken in.
#[derive(Debug)]
pub struct Function(v8::Global<v8::Value>);

/// The engine did not do what it was told. It must not be used again.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct EngineError(String);

impl EngineError {
    pub fn new(err: impl std::fmt::Display) -> Self {
        EngineError(err.to_string())
    }
}

impl Engine {
    pub fn start(heap: &'static [u8], heap_mb: u32, host: Rc<Host>) -> Result<Engine, EngineError> {
        let sources = Rc::new(Sources::default());
        let mut runtime = JsRuntime::try_new(RuntimeOptions {
            extensions: ops::extensions(),
            startup_snapshot: Some(heap),
            module_loader: Some(sources.clone()),
            create_params: Some(
                v8::CreateParams::default().heap_limits(0, (heap_mb as usize) << 20),
            ),
            ..RuntimeOptions::default()
        })
        .map_err(EngineError::new)?;
        runtime.op_state().borrow_mut().put(host);
        let heap_is_full = Arc::new(AtomicBool::new(false));
        #[cfg(feature = "v8")]
        stop_at_heap_limit(&mut runtime, heap_is_full.clone());

        let taken = runtime
            .execute_script("berth:start", TAKE_OVER)
            .map_err(EngineError::new)?;
        let (attach, run, pending_calls, scope) = {
            deno_core::scope!(scope, &mut runtime);
            let taken = v8::Local::new(scope, taken);
            let entry = |scope: &mut v8::PinScope, index| {
                let list = v8::Local::<v8::Array>::try_from(taken).ok()?;
                list.get_index(scope, index)
                    .map(|value| v8::Global::new(scope, value))
            };
            let function = |scope: &mut v8::PinScope, index| {
                let value = entry(scope, index)?;
                let value = v8::Local::new(scope, value);
                let function = v8::Local::<v8::Function>::try_from(value).ok()?;
                Some(v8::Global::new(scope, function))
            };
            let names = entry(scope, 3).map(|names| {
                v8::Local::new(scope, names)
                    .to_rust_string_lossy(scope)
                    .split(',')
                    .map(str::to_owned)
                    .collect()
            });
            match (
                function(scope, 0),
                function(scope, 1),
                function(scope, 2),
                names,
            ) {
                (Some(attach), Some(run), Some(pending), Some(names)) => {
                    (attach, run, pending, names)
                }
                _ => return Err(EngineError::new("the bundle has not got its functions")),
            }
        };
        Ok(Engine {
            runtime,
            sources,
            attach,
            run,
            pending_calls,
            heap_is_full,
            scope,
        })
    }

    /// Starts to connect Playwright; `Host::attached` says when it has.
    pub fn attach(&mut self) {
        // The promise's end shows in the host or in `poll`.
        drop(self.runtime.call(&self.attach));
    }

    /// Takes a script in. None of it runs yet.
    pub fn load(&mut self, name: &str, script: Compiled) -> Result<Function, EngineError> {
        self.sources
            .maps
            .borrow_mut()
            .insert(name.to_owned(), script.source_map.into_bytes());
        self.runtime
            .execute_script(name.to_owned(), script.javascript)
            .map(Function)
            .map_err(EngineError::new)
    }

    /// Starts a script; `Host::run` says how it ends.
    pub fn run(&mut self, script: Function, page: &Page) -> Result<(), EngineError> {
        let target = {
            deno_core::scope!(scope, &mut self.runtime);
            let target: v8::Local<v8::Value> = match page {
                Page::Tab(target) => v8::String::new(scope, target)
                    .ok_or_else(|| EngineError::new("the tab's id is too long"))?
                    .into(),
                Page::Fresh => v8::null(scope).into(),
                Page::Unused => v8::undefined(scope).into(),
            };
            v8::Global::new(scope, target)
        };
        drop(self.runtime.call_with_args(&self.run, &[script.0, target]));
        Ok(())
    }

    /// Lets the engine do what there is to do. Ready when nothing is left that could wake it, or on what nobody caught.
    pub fn poll(&mut self, context: &mut Context) -> Poll<Result<(), EngineError>> {
        self.runtime
            .poll_event_loop(context, PollEventLoopOptions::default())
            .map_err(EngineError::new)
    }

    /// What the script waits for, in the form of a stack trace.
    pub fn pending_calls(&mut self) -> String {
        deno_core::scope!(scope, &mut self.runtime);
        v8::tc_scope!(let scope, scope);
        let function = v8::Local::new(scope, &self.pending_calls);
        let this = v8::undefined(scope).into();
        function
            .call(scope, this, &[])
            .map(|text| text.to_rust_string_lossy(scope))
            .unwrap_or_default()
    }

    /// Stack frames as text, in the caller's lines, without the bundle's.
    pub fn describe(&self, frames: &[Frame]) -> String {
        let mapper = self.runtime.source_mapper();
        let mut mapper = mapper.borrow_mut();
        let lines = frames
            .iter()
            // An engine that is stopped between two instructions does not always know where; QuickJS names the frame then, if at all.
            .filter(|frame| frame.file != BUNDLE_NAME && frame.line > 0)
            .map(|frame| {
                let mapped = mapper.apply_source_map(&frame.file, frame.line, frame.column.max(1));
                let place = match mapped {
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
                    "" => format!("    at {place}"),
                    function => format!("    at {function} ({place})"),
                }
            })
            .collect::<Vec<_>>();
        lines.join("\n")
    }

    pub fn handle(&mut self) -> v8::IsolateHandle {
        self.runtime.v8_isolate().thread_safe_handle()
    }

    pub fn context(&mut self) -> v8::Global<v8::Context> {
        self.runtime.main_context()
    }

    /// Whether the engine has been stopped in the middle: for want of memory, where nobody else has done so.
    pub fn is_stopped(&mut self) -> bool {
        self.heap_is_full.load(Ordering::Acquire)
            || self.runtime.v8_isolate().is_execution_terminating()
    }
}

/// V8 ends the process when its heap is full. This stops the script a little earlier, with room to say so. QuickJS stops it by itself.
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

/// The scripts' source maps, by which the engine gives stack traces in the caller's lines. And the refusal of modules.
#[derive(Default)]
struct Sources {
    maps: RefCell<HashMap<String, Vec<u8>>>,
}

impl Sources {
    fn refusal(specifier: &str) -> JsErrorBox {
        JsErrorBox::type_error(format!(
            "import({specifier:?}) is not available in a script"
        ))
    }
}

impl ModuleLoader for Sources {
    fn resolve(
        &self,
        specifier: &str,
        _referrer: &str,
        _kind: ResolutionKind,
    ) -> ModuleResolveResponse {
        Err(Self::refusal(specifier))
    }

    fn load(
        &self,
        specifier: &ModuleSpecifier,
        _referrer: Option<&ModuleLoadReferrer>,
        _options: ModuleLoadOptions,
    ) -> ModuleLoadResponse {
        let refused: Result<_, ModuleLoaderError> = Err(Self::refusal(specifier.as_str()));
        ModuleLoadResponse::Sync(refused)
    }

    fn get_source_map(&self, file_name: &str) -> Option<Cow<'_, [u8]>> {
        let map = self.maps.borrow().get(file_name)?.clone();
        Some(Cow::Owned(map))
    }
}
