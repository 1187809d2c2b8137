//! The agent's own DevTools connection, for the few things it asks of Chromium itself.
//!
//! It uses chromiumoxide's connection and types without its page handler: that one attaches to every tab and changes settings
//! in it, which would disturb the browser's user. Nothing is subscribed, so an event of a newer Chromium cannot be misread; a message that
//! cannot be parsed is skipped, never the end of the connection.

use std::{
    collections::HashMap,
    future::Future,
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use chromiumoxide::{
    cdp::browser_protocol::{
        browser::{
            Bounds, CancelDownloadParams, CloseParams, GetWindowForTargetParams,
            SetDownloadBehaviorBehavior, SetDownloadBehaviorParams, SetWindowBoundsParams,
            WindowId, WindowState,
        },
        network::{CookieParam, LoaderId, TimeSinceEpoch},
        page::{BringToFrontParams, GetFrameTreeParams, NavigateParams},
        storage::SetCookiesParams,
        target::{
            ActivateTargetParams, AttachToTargetParams, CreateBrowserContextParams,
            CreateTargetParams, DetachFromTargetParams, GetTargetsParams, SessionId, TargetId,
            TargetInfo,
        },
    },
    cdp::js_protocol::runtime::EvaluateParams,
    conn::Connection,
    error::CdpError as Failure,
    types::{CallId, CdpJsonEventMessage, Command, Message, Response},
};
use futures::StreamExt;
use tokio::{
    sync::{mpsc, oneshot},
    time,
};

use crate::system::cdp::devtools::Tab;

/// Calls that may wait to be sent.
const QUEUE: usize = 64;
/// Between two looks at what a tab shows.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

#[derive(Debug, thiserror::Error)]
pub enum CdpError {
    #[error("the connection to DevTools failed: {0}")]
    Connect(String),
    #[error("the connection to DevTools has ended")]
    Closed,
    #[error("{method} was not answered within {} s", .after.as_secs())]
    Deadline { method: String, after: Duration },
    #[error("{method}: {message}")]
    Refused { method: String, message: String },
    #[error("{method}: unexpected answer: {message}")]
    Answer { method: String, message: String },
}

struct Call {
    method: String,
    session: Option<SessionId>,
    params: serde_json::Value,
    reply: oneshot::Sender<Response>,
}

/// A connection to the browser endpoint; it ends when the last clone is dropped.
#[derive(Clone)]
pub struct Cdp {
    calls: mpsc::Sender<Call>,
    deadline: Duration,
}

impl Cdp {
    /// Connects; every later call has `deadline`.
    pub async fn connect(browser_url: &str, deadline: Duration) -> Result<Self, CdpError> {
        let connection = time::timeout(deadline, Connection::connect(browser_url))
            .await
            .map_err(|_| CdpError::Connect("no answer in time".into()))?
            .map_err(|error| CdpError::Connect(error.to_string()))?;
        let (calls, queue) = mpsc::channel(QUEUE);
        tokio::spawn(drive(connection, queue));
        Ok(Self { calls, deadline })
    }

    /// Asks Chromium to close in order, which writes the profile to disk.
    pub async fn close_browser(&self) -> Result<(), CdpError> {
        self.call(CloseParams::default(), None).await.map(drop)
    }

    /// The tabs, in no order.
    pub async fn tabs(&self) -> Result<Vec<Tab>, CdpError> {
        let targets = self
            .call(GetTargetsParams::default(), None)
            .await?
            .target_infos;
        let tab = |target: TargetInfo| Tab {
            id: target.target_id.inner().clone(),
            url: target.url,
        };
        Ok(targets
            .into_iter()
            .filter(|target| target.r#type == "page")
            .map(tab)
            .collect())
    }

    pub async fn open_tab(&self, url: &str) -> Result<Tab, CdpError> {
        let created = self.call(CreateTargetParams::new(url), None).await?;
        Ok(Tab {
            id: created.target_id.inner().clone(),
            url: url.to_owned(),
        })
    }

    pub async fn activate(&self, tab: &Tab) -> Result<(), CdpError> {
        let params = ActivateTargetParams::new(TargetId::new(tab.id.clone()));
        self.call(params, None).await.map(drop)
    }

    /// Navigates `tab`; resolves once the new document is there or there will be none. What takes longer than `patience` goes on by itself.
    /// An error page of Chromium is no error.
    pub async fn navigate(&self, tab: &Tab, url: &str, patience: Duration) -> Result<(), CdpError> {
        let session = self.session_of(tab).await?;
        let navigated = self.navigate_session(&session, url, patience).await;
        self.detach(session).await?;
        navigated
    }

    /// Brings `tab` to the front, gives its page the focus that the address bar may have, and resolves once the page has the keyboard.
    pub async fn focus(&self, tab: &Tab) -> Result<(), CdpError> {
        let session = self.session_of(tab).await?;
        let focused = self.focus_session(&session).await;
        self.detach(session).await?;
        focused
    }

    async fn focus_session(&self, session: &SessionId) -> Result<(), CdpError> {
        let bring = BringToFrontParams::default();
        self.call(bring, Some(session.clone())).await?;
        let has_focus = || {
            let asked = EvaluateParams::new("document.hasFocus()");
            self.call(asked, Some(session.clone()))
        };
        let focused = async {
            while has_focus().await?.result.value != Some(true.into()) {
                time::sleep(LOOK_AGAIN).await;
            }
            Ok(())
        };
        self.in_time(BringToFrontParams::IDENTIFIER, focused).await
    }

    async fn in_time<T>(
        &self,
        method: &str,
        done: impl Future<Output = Result<T, CdpError>>,
    ) -> Result<T, CdpError> {
        let done = time::timeout(self.deadline, done).await;
        done.map_err(|_| CdpError::Deadline {
            method: method.into(),
            after: self.deadline,
        })?
    }

    pub(super) async fn session_of(&self, tab: &Tab) -> Result<SessionId, CdpError> {
        let attach = AttachToTargetParams::builder()
            .target_id(TargetId::new(tab.id.clone()))
            .flatten(true)
            .build()
            .expect("the target is set");
        Ok(self.call(attach, None).await?.session_id.clone())
    }

    async fn detach(&self, session: SessionId) -> Result<(), CdpError> {
        let detach = DetachFromTargetParams::builder()
            .session_id(session)
            .build();
        self.call(detach, None).await.map(drop)
    }

    async fn navigate_session(
        &self,
        session: &SessionId,
        url: &str,
        patience: Duration,
    ) -> Result<(), CdpError> {
        // A page that is too busy to say so can be left all the same.
        let old = self.document(session).await.ok();
        let navigating = async {
            let navigate = NavigateParams::new(url);
            let navigated = self.call(navigate, Some(session.clone())).await?;
            let replaces = navigated.loader_id.is_some() && navigated.error_text.is_none();
            // Chromium answers when it has what the page begins with; the old document still stands for some milliseconds.
            while replaces && Some(self.document(session).await?) == old {
                time::sleep(LOOK_AGAIN).await;
            }
            Ok(())
        };
        let navigated = time::timeout(patience, navigating).await;
        navigated.unwrap_or(Ok(()))
    }

    /// Which document a tab shows.
    async fn document(&self, session: &SessionId) -> Result<LoaderId, CdpError> {
        let tree = self
            .call(GetFrameTreeParams::default(), Some(session.clone()))
            .await?;
        Ok(tree.frame_tree.frame.loader_id.clone())
    }

    /// Makes the windows of all tabs fill a screen of this size.
    pub async fn fill_screen(&self, width: u32, height: u32) -> Result<(), CdpError> {
        let mut done: Vec<WindowId> = Vec::new();
        for tab in self.tabs().await? {
            let ask = GetWindowForTargetParams::builder()
                .target_id(TargetId::new(tab.id))
                .build();
            // A tab may close while we go through them.
            let Ok(window) = self.call(ask, None).await else {
                continue;
            };
            if done.contains(&window.window_id) {
                continue;
            }
            if window.bounds.window_state != Some(WindowState::Normal) {
                let normal = Bounds::builder().window_state(WindowState::Normal).build();
                self.call(SetWindowBoundsParams::new(window.window_id, normal), None)
                    .await?;
            }
            let bounds = Bounds::builder()
                .left(0)
                .top(0)
                .width(i64::from(width))
                .height(i64::from(height))
                .build();
            self.call(SetWindowBoundsParams::new(window.window_id, bounds), None)
                .await?;
            done.push(window.window_id);
        }
        Ok(())
    }

    /// Has downloads saved in this folder, each under its guid, for as long as this connection lasts.
    pub async fn save_downloads_in(&self, folder: &Path) -> Result<(), CdpError> {
        let mut params = SetDownloadBehaviorParams::new(SetDownloadBehaviorBehavior::AllowAndName);
        params.download_path = Some(folder.to_string_lossy().into_owned());
        self.call(params, None).await.map(drop)
    }

    pub async fn cancel_download(&self, guid: &str) -> Result<(), CdpError> {
        let params = CancelDownloadParams::new(guid);
        self.call(params, None).await.map(drop)
    }

    /// A browser context beside the browser's own; returns its id.
    pub async fn create_context(&self) -> Result<String, CdpError> {
        let made = self
            .call(CreateBrowserContextParams::default(), None)
            .await?;
        Ok(String::from(made.browser_context_id))
    }

    /// Has Chromium write all cookies to disk soon, which it otherwise does every half minute: it does so as well after 512 changes. These are
    /// made to a cookie of a name that leads nowhere, which is gone from memory at the end and from the disk a minute later.
    pub async fn flush_cookies(&self) -> Result<(), CdpError> {
        const CHANGES: usize = 600;
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let soon = now.unwrap_or_default().as_secs_f64() + 60.0;
        let cookies = (1..=CHANGES).map(|change| {
            let mut cookie = CookieParam::new("berth-flush", change.to_string());
            cookie.domain = Some("flush.berth.invalid".to_owned());
            cookie.path = Some("/".to_owned());
            let long_ago = 1.0;
            let expires = if change < CHANGES { soon } else { long_ago };
            cookie.expires = Some(TimeSinceEpoch::new(expires));
            cookie
        });
        let params = SetCookiesParams::new(cookies.collect());
        self.call(params, None).await.map(drop)
    }

    pub(super) async fn call<C: Command>(
        &self,
        command: C,
        session: Option<SessionId>,
    ) -> Result<C::Response, CdpError> {
        let mut sent = self.send(command, session).await?;
        let method = sent.method.clone();
        C::response_from_value(sent.answer().await?).map_err(|error| CdpError::Answer {
            method,
            message: error.to_string(),
        })
    }

    /// Calls, in the order in which this is done, and leaves the answer for later.
    pub(super) async fn send<C: Command>(
        &self,
        command: C,
        session: Option<SessionId>,
    ) -> Result<Sent, CdpError> {
        let method = command.identifier().into_owned();
        let params = serde_json::to_value(&command).map_err(|error| CdpError::Answer {
            method: method.clone(),
            message: error.to_string(),
        })?;
        let (reply, answer) = oneshot::channel();
        let call = Call {
            method: method.clone(),
            session,
            params,
            reply,
        };
        let sent = Sent {
            method,
            answer,
            after: self.deadline,
            until: time::Instant::now() + self.deadline,
        };
        match time::timeout_at(sent.until, self.calls.send(call)).await {
            Ok(Ok(())) => Ok(sent),
            Ok(Err(_)) => Err(CdpError::Closed),
            Err(_) => Err(sent.too_late()),
        }
    }
}

/// A call that was sent and not answered yet.
pub struct Sent {
    method: String,
    answer: oneshot::Receiver<Response>,
    after: Duration,
    until: time::Instant,
}

impl Sent {
    /// What Chromium says to it. Where this is not waited for to its end, it can be asked for again.
    pub async fn answer(&mut self) -> Result<serde_json::Value, CdpError> {
        match time::timeout_at(self.until, &mut self.answer).await {
            Ok(Ok(Response {
                error: Some(error), ..
            })) => Err(CdpError::Refused {
                method: self.method.clone(),
                message: error.message,
            }),
            Ok(Ok(Response { result, .. })) => Ok(result.unwrap_or_default()),
            Ok(Err(_)) => Err(CdpError::Closed),
            Err(_) => Err(self.too_late()),
        }
    }

    /// Whether Chromium has done by now what it was told.
    pub fn is_done(&mut self) -> bool {
        matches!(self.answer.try_recv(), Ok(Response { error: None, .. }))
    }

    fn too_late(&self) -> CdpError {
        CdpError::Deadline {
            method: self.method.clone(),
            after: self.after,
        }
    }
}

async fn drive(mut connection: Connection<CdpJsonEventMessage>, mut calls: mpsc::Receiver<Call>) {
    let mut waiting: HashMap<CallId, oneshot::Sender<Response>> = HashMap::new();
    loop {
        tokio::select! {
            call = calls.recv() => {
                let Some(Call { method, session, params, reply }) = call else { return };
                // Those that have given up would otherwise pile up under a silent browser.
                waiting.retain(|_, reply| !reply.is_closed());
                if let Ok(id) = connection.submit_command(method.into(), session, params) {
                    waiting.insert(id, reply);
                }
            }
            message = connection.next() => match message {
                Some(Ok(Message::Response(response))) => {
                    if let Some(reply) = waiting.remove(&response.id) {
                        let _ = reply.send(response);
                    }
                }
                Some(Ok(Message::Event(_)) | Err(Failure::InvalidMessage(..))) => {}
                Some(Err(error)) => {
                    tracing::debug!(%error, "the agent's DevTools connection ended");
                    return;
                }
                None => return,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::SinkExt;
    use tokio::net::TcpListener;
    use tokio_tungstenite::{accept_async, tungstenite::Message as Frame};

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(10);

    /// A DevTools that says `before` each answer.
    async fn devtools(before: &'static [&'static str]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let mut socket = accept_async(stream).await.unwrap();
            while let Some(Ok(Frame::Text(call))) = socket.next().await {
                let call: serde_json::Value = serde_json::from_str(&call).unwrap();
                for message in before {
                    socket.send(Frame::Text((*message).into())).await.unwrap();
                }
                let answer = serde_json::json!({"id": call["id"], "result": {"targetId": "T"}});
                socket
                    .send(Frame::Text(answer.to_string().into()))
                    .await
                    .unwrap();
            }
        });
        format!("ws://{address}/devtools/browser/x")
    }

    #[tokio::test]
    async fn what_a_newer_chromium_may_say_does_not_end_the_connection() {
        let url = devtools(&[
            r#"{"method":"Nothing.weKnow","params":{"deep":[{"new":null}]},"sessionId":"S"}"#,
            r#"{"method":"Target.targetCreated","params":{"targetInfo":{"type":"hologram"}}}"#,
            r#"{"method":"No.params"}"#,
            r#"{"neither":"event nor answer"}"#,
            r#"{"id":4711,"result":{}}"#,
            r#"{"id":"not a number"}"#,
            "not even JSON",
        ])
        .await;
        let cdp = Cdp::connect(&url, DEADLINE).await.unwrap();
        for _ in 0..3 {
            assert_eq!(cdp.open_tab("about:blank").await.unwrap().id, "T");
        }
    }

    #[tokio::test]
    async fn a_page_that_says_nothing_is_navigated_all_the_same() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (told, navigated) = oneshot::channel();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let mut socket = accept_async(stream).await.unwrap();
            let mut told = Some(told);
            while let Some(Ok(Frame::Text(call))) = socket.next().await {
                let call: serde_json::Value = serde_json::from_str(&call).unwrap();
                let mut answer = serde_json::json!({"id": call["id"]});
                match call["method"].as_str().unwrap() {
                    "Page.navigate" => {
                        let told = told.take().expect("once");
                        told.send(call["params"]["url"].clone()).unwrap();
                        continue;
                    }
                    "Page.getFrameTree" => {
                        answer["error"] = serde_json::json!({"code": -32000, "message": "busy"});
                    }
                    _ => answer["result"] = serde_json::json!({"sessionId": "S"}),
                }
                let answer = Frame::Text(answer.to_string().into());
                socket.send(answer).await.unwrap();
            }
        });
        let cdp = Cdp::connect(&format!("ws://{address}/"), DEADLINE)
            .await
            .unwrap();
        let tab = Tab {
            id: "T".into(),
            url: "about:blank".into(),
        };
        let patience = Duration::from_millis(1);
        cdp.navigate(&tab, "about:start", patience).await.unwrap();
        assert_eq!(navigated.await.unwrap(), "about:start");
    }

    #[tokio::test]
    async fn the_end_of_the_connection_is_told_to_who_waits() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let mut socket = accept_async(stream).await.unwrap();
            socket.next().await;
        });
        let cdp = Cdp::connect(&format!("ws://{address}/"), DEADLINE)
            .await
            .unwrap();
        assert!(matches!(
            cdp.open_tab("about:blank").await,
            Err(CdpError::Closed)
        ));
    }
}
