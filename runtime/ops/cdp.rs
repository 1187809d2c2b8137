//! Playwright's connection to the browser.

use std::{cell::RefCell, rc::Rc};

use bytes::Bytes;
use deno_core::{OpState, op2};
use deno_error::JsErrorBox;

use super::Host;
use crate::script_protocol::FromWorker;

#[op2(fast)]
pub(crate) fn op_cdp_send(
    state: &mut OpState,
    #[string] message: String,
) -> Result<(), JsErrorBox> {
    state
        .borrow::<Rc<Host>>()
        .sender
        .send(FromWorker::Cdp(Bytes::from(message)))
        .map_err(|err| JsErrorBox::generic(err.to_string()))
}

#[op2]
#[serde]
pub(crate) async fn op_cdp_receive(state: Rc<RefCell<OpState>>) -> Vec<String> {
    let inbox = state.borrow().borrow::<Rc<Host>>().inbox.clone();
    inbox.receive().await
}

#[op2(fast)]
pub(crate) fn op_attached(state: &mut OpState) {
    state.borrow::<Rc<Host>>().ready.set(true);
}

#[op2(fast)]
pub(crate) fn op_detached(state: &mut OpState) {
    state.borrow::<Rc<Host>>().detached.set(true);
}
