//! The functions that the bundle may call. `src/host.ts` declares each of them in TypeScript.

use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::Arc,
    time::Instant,
};

use deno_core::{Extension, OpDecl};

use crate::{
    channel::{Inbox, Sender},
    exchanges::Exchanges,
    outcome::{Ending, Output, ResultText},
};

mod bytes;
mod cdp;
mod files;
mod http;
mod script;

pub(crate) use files::Files;

/// The state of the functions, shared with the worker's loop.
pub(crate) struct Host {
    pub(crate) sender: Rc<Sender>,
    pub(crate) inbox: Rc<Inbox>,
    pub(crate) files: RefCell<Files>,
    pub(crate) exchanges: RefCell<Exchanges>,
    pub(crate) started: Instant,
    /// Scripts can run, and the loop has not announced it yet.
    pub(crate) ready: Cell<bool>,
    /// The script has closed the connection: no other script can run.
    pub(crate) detached: Cell<bool>,
    pub(crate) run: RefCell<RunState>,
}

impl Host {
    /// Whether the worker's loop has an event to handle.
    pub(crate) fn has_events(&self) -> bool {
        self.ready.get() || self.run.borrow().ending.is_some()
    }
}

/// The state of the running script.
#[derive(Default)]
pub(crate) struct RunState {
    pub(crate) stdout: Output,
    pub(crate) stderr: Output,
    pub(crate) result: ResultText,
    pub(crate) ending: Option<Ending>,
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
        http::op_http_body,
        http::op_http_cancel,
        http::op_http_head,
        http::op_http_send,
        script::op_failed,
        script::op_clock,
        script::op_output,
        script::op_result,
        script::op_succeeded,
    ],
    middleware = disable_ambient_authority,
);

/// Disables the engine's functions that reach beyond the script: standard streams, resources and
/// panic. Scripts cannot name any of them; this is a second line of defence.
fn disable_ambient_authority(op: OpDecl) -> OpDecl {
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

/// Returns the engine's extensions. They must be the same for a snapshot and for its users.
pub(crate) fn extensions() -> Vec<Extension> {
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
