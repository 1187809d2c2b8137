//! What the bundle may ask of the process. `src/host.ts` is the other side of every function here.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Instant,
};

use deno_core::{Extension, OpDecl};

use crate::{
    channel::{Inbox, Sender},
    outcome::{Ending, Output, ResultText},
};

mod bytes;
mod cdp;
mod files;
mod script;

pub use files::Files;

/// What the functions act on; the worker's loop holds the same.
pub struct Host {
    pub sender: Rc<Sender>,
    pub inbox: Rc<Inbox>,
    pub files: RefCell<Files>,
    pub started: Instant,
    /// Playwright is connected, and the loop has not seen it yet.
    pub attached: Cell<bool>,
    /// The script has closed the connection: none can run after it.
    pub detached: Cell<bool>,
    pub run: RefCell<RunState>,
}

impl Host {
    /// Whether there is something for the worker's loop.
    pub fn has_news(&self) -> bool {
        self.attached.get() || self.run.borrow().ending.is_some()
    }
}

/// What belongs to the script that runs.
#[derive(Default)]
pub struct RunState {
    pub stdout: Output,
    pub stderr: Output,
    pub result: ResultText,
    pub ending: Option<Ending>,
}

deno_core::extension!(
    berth,
    ops = [
        bytes::op_base64_to_bytes,
        bytes::op_base64_to_string,
        bytes::op_hash,
        bytes::op_random,
        cdp::op_attached,
        cdp::op_cdp_receive,
        cdp::op_cdp_send,
        cdp::op_detached,
        files::op_file_copy,
        files::op_file_list,
        files::op_file_make_directory,
        files::op_file_read,
        files::op_file_remove,
        files::op_file_rename,
        files::op_file_stat,
        files::op_file_write,
        files::op_scratch_path,
        script::op_failed,
        script::op_clock,
        script::op_output,
        script::op_result,
        script::op_succeeded,
    ],
    middleware = without_ambient_powers,
);

/// Switches off the engine's own functions that reach past the script: its standard streams, its resources, its panic.
/// Scripts get hold of none of them; this is for the day when one does.
fn without_ambient_powers(op: OpDecl) -> OpDecl {
    match op.name {
        "op_print"
        | "op_panic"
        | "op_resources"
        | "op_read"
        | "op_read_all"
        | "op_write"
        | "op_read_sync"
        | "op_write_sync"
        | "op_write_all"
        | "op_pipe"
        | "op_shutdown"
        | "op_import_sync"
        | "op_import_sync_with_source"
        | "op_is_terminal" => op.disable(),
        _ => op,
    }
}

/// The engine's extensions, the same for a snapshot and for what starts from it.
pub fn extensions() -> Vec<Extension> {
    vec![
        deno_webidl::deno_webidl::init(),
        deno_web::deno_web::init(
            Arc::new(deno_web::BlobStore::default()),
            None,
            false,
            deno_web::InMemoryBroadcastChannel::default(),
        ),
        berth::init(),
    ]
}
