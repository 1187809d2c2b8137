//! A script's output, result and end.

use std::rc::Rc;

use bytes::Bytes;
use deno_core::{OpState, op2};
use deno_error::JsErrorBox;

use super::Host;
use crate::{outcome::Ending, script_protocol::FromWorker};

/// Returns the milliseconds since the worker started.
#[op2(fast)]
pub(crate) fn op_clock(state: &mut OpState) -> f64 {
    state
        .try_borrow::<Rc<Host>>()
        .map_or(0.0, |host| host.started.elapsed().as_secs_f64() * 1000.0)
}

#[op2(fast)]
pub(crate) fn op_output(
    state: &mut OpState,
    #[smi] stream: i32,
    #[string] text: &str,
) -> Result<bool, JsErrorBox> {
    let host = state.borrow::<Rc<Host>>();
    let mut run = host.run.borrow_mut();
    let (output, name, message): (_, _, fn(Bytes) -> FromWorker) = match stream {
        1 => (&mut run.stdout, "stdout", FromWorker::Stdout),
        _ => (&mut run.stderr, "stderr", FromWorker::Stderr),
    };
    if let Some(text) = output.accept(name, text) {
        host.sender
            .send(message(Bytes::from(text)))
            .map_err(|err| JsErrorBox::generic(err.to_string()))?;
    }
    Ok(!output.is_full())
}

#[op2(fast)]
pub(crate) fn op_result(state: &mut OpState, #[string] json: &str) -> bool {
    state
        .borrow::<Rc<Host>>()
        .run
        .borrow_mut()
        .result
        .push(json)
}

#[op2(fast)]
pub(crate) fn op_succeeded(state: &mut OpState) {
    end(state, Ending::Succeeded);
}

#[op2(fast)]
pub(crate) fn op_failed(state: &mut OpState, #[string] error: String, #[string] stack: String) {
    end(state, Ending::Failed { error, stack });
}

/// Records how the script ended. Only the first ending counts.
fn end(state: &mut OpState, ending: Ending) {
    state
        .borrow::<Rc<Host>>()
        .run
        .borrow_mut()
        .ending
        .get_or_insert(ending);
}
