//! HTTP requests, which the agent performs.

use std::{cell::RefCell, net::IpAddr, rc::Rc};

use bytes::Bytes;
use deno_core::{OpState, op2};
use deno_error::JsErrorBox;
use serde::{Deserialize, Serialize};

use super::Host;
use crate::script_protocol::{
    FromWorker, HttpRequest, HttpResponse, MAX_HTTP_HEAD, MAX_HTTP_REQUEST,
};

/// A request of the bundle.
#[derive(Deserialize)]
pub(crate) struct Request {
    method: String,
    url: String,
    headers: Vec<(String, String)>,
    insecure: bool,
}

impl Request {
    /// Returns the most bytes that it has as JSON, where a character may take six.
    fn json_length(&self) -> usize {
        const SYNTAX: usize = 128;
        let headers = self.headers.iter();
        let headers = headers.map(|(name, value)| name.len() + value.len() + SYNTAX / 6);
        let text = self.method.len() + self.url.len() + headers.sum::<usize>();
        text * 6 + SYNTAX
    }
}

/// The head of a response, for the bundle.
#[derive(Serialize)]
pub(crate) struct Response {
    version: String,
    status: u16,
    reason: String,
    headers: Vec<(String, String)>,
    address: Option<IpAddr>,
    port: u16,
}

impl From<HttpResponse> for Response {
    fn from(head: HttpResponse) -> Self {
        Response {
            version: head.version,
            status: head.status,
            reason: head.reason,
            headers: head.headers,
            address: head.server.map(|server| server.ip()),
            port: head.server.map_or(0, |server| server.port()),
        }
    }
}

fn failed(error: impl ToString) -> JsErrorBox {
    JsErrorBox::generic(error.to_string())
}

#[op2]
pub(crate) fn op_http_send(
    state: &mut OpState,
    #[serde] request: Request,
    #[buffer] body: &[u8],
) -> Result<u32, JsErrorBox> {
    if body.len() > MAX_HTTP_REQUEST {
        let limit = MAX_HTTP_REQUEST >> 20;
        return Err(failed(format!("EFBIG: the body has more than {limit} MiB")));
    }
    if request.json_length() > MAX_HTTP_HEAD {
        let limit = MAX_HTTP_HEAD >> 10;
        let reason = format!("EFBIG: the URL and the headers have more than {limit} KiB");
        return Err(failed(reason));
    }
    let host = state.borrow::<Rc<Host>>();
    let id = host.exchanges.borrow_mut().open();
    let request = HttpRequest {
        id,
        method: request.method,
        url: request.url,
        headers: request.headers,
        insecure: request.insecure,
    };
    let message = FromWorker::HttpRequest(Box::new(request), Bytes::copy_from_slice(body));
    host.sender.send(message).map_err(failed)?;
    Ok(id)
}

#[op2]
#[serde]
pub(crate) async fn op_http_head(
    state: Rc<RefCell<OpState>>,
    #[smi] id: u32,
) -> Result<Response, JsErrorBox> {
    let host = state.borrow().borrow::<Rc<Host>>().clone();
    loop {
        let taken = host.exchanges.borrow_mut().take_head(id);
        match taken.map_err(failed)? {
            Ok(head) => return Ok(head.into()),
            Err(changed) => changed.notified().await,
        }
    }
}

#[op2]
#[buffer]
pub(crate) async fn op_http_body(
    state: Rc<RefCell<OpState>>,
    #[smi] id: u32,
) -> Result<Vec<u8>, JsErrorBox> {
    let host = state.borrow().borrow::<Rc<Host>>().clone();
    loop {
        let taken = host.exchanges.borrow_mut().take_body(id);
        match taken.map_err(failed)? {
            Ok(body) => return Ok(body),
            Err(changed) => changed.notified().await,
        }
    }
}

#[op2(fast)]
pub(crate) fn op_http_cancel(state: &mut OpState, #[smi] id: u32) -> Result<(), JsErrorBox> {
    let host = state.borrow::<Rc<Host>>();
    if host.exchanges.borrow_mut().cancel(id) {
        let message = FromWorker::HttpCancel(id);
        host.sender.push(message).map_err(failed)?;
    }
    Ok(())
}
