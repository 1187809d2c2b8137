//! Reads from inside a session where it runs, and plants and reads its markers: a cookie, and a
//! file in a directory of the session. Both have the id of the session as their name.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use futures::{SinkExt, StreamExt};
use reqwest::Client;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::{
    MaybeTlsStream, WebSocketStream, connect_async,
    tungstenite::{Error, Message},
};

use super::{
    client::{Session, failed, send},
    history::{Observation, Outcome, Tenancy},
    installation::{Server, host_of},
};

/// The site of the cookies. Nothing connects to it.
const SITE: &str = "http://markers.test/";
/// The close code for a session that has ended.
const SESSION_ENDED: u16 = 4004;

/// The markers of a session.
#[derive(Clone, Default)]
pub struct Markers {
    are_planted: bool,
}

/// Plants the markers if they are not planted yet, and observes the session.
pub async fn observe(http: &Client, server: &Server, session: &mut Session) -> Outcome {
    match try_observe(http, server, session).await {
        Ok(observation) => Outcome::Observed(observation),
        Err(outcome) => outcome,
    }
}

async fn try_observe(
    http: &Client,
    server: &Server,
    session: &mut Session,
) -> Result<Observation, Outcome> {
    let mut devtools = DevTools::connect(server, session).await?;
    let info = devtools.call("SystemInfo.getInfo", json!({})).await?;
    let command_line = info["commandLine"].as_str().expect("a command line");
    let (tenancy, directory) = tenancy_of(command_line);
    let files = SessionFiles {
        http,
        server,
        session: &session.id,
        directory: directory.join("downloads"),
    };
    if !session.markers.are_planted {
        let cookie = json!({
            "name": session.id, "value": "planted", "url": SITE, "expires": 4_000_000_000_u32,
        });
        let cookies = json!({"cookies": [cookie]});
        devtools.call("Storage.setCookies", cookies).await?;
        files.plant().await?;
        session.markers.are_planted = true;
    }
    let cookies = devtools.call("Storage.getCookies", json!({})).await?;
    let cookies = cookies["cookies"].as_array().expect("a list").iter();
    let cookies = cookies.filter_map(|cookie| cookie["name"].as_str());
    Ok(Observation {
        tenancy,
        cookies: cookies.map(str::to_owned).collect(),
        files: files.list().await?,
    })
}

/// Returns the tenancy that the command line of Chromium names, and the directory of the session.
fn tenancy_of(command_line: &str) -> (Tenancy, PathBuf) {
    let option = command_line
        .split_once("--user-data-dir=")
        .expect("an option");
    let user_data = option.1.split([' ', '"']).next().unwrap_or_default();
    let directory = Path::new(user_data).parent().expect("a directory");
    let generation = directory.file_name().and_then(|name| name.to_str());
    let tenancy = Tenancy {
        host: host_of(user_data).expect("a host"),
        generation: generation
            .and_then(|text| text.parse().ok())
            .expect("a number"),
    };
    (tenancy, directory.to_owned())
}

/// A connection to the DevTools of a session.
struct DevTools {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    calls: u64,
}

impl DevTools {
    async fn connect(server: &Server, session: &Session) -> Result<DevTools, Outcome> {
        let base_url = server.base_url.replacen("http", "ws", 1);
        let connected = connect_async(format!("{base_url}{}", session.devtools)).await;
        match connected {
            Ok((socket, _)) => Ok(DevTools { socket, calls: 0 }),
            Err(Error::Http(response)) => {
                let failure = failed(response.status(), &Value::Null);
                Err(failure.unwrap_or(Outcome::Unknown))
            }
            Err(_) => Err(Outcome::Unknown),
        }
    }

    /// Calls a method and returns its result.
    async fn call(&mut self, method: &str, params: Value) -> Result<Value, Outcome> {
        self.calls += 1;
        let call = json!({"id": self.calls, "method": method, "params": params});
        let sent = self.socket.send(Message::text(call.to_string())).await;
        sent.map_err(|_| Outcome::Unknown)?;
        loop {
            match self.socket.next().await {
                Some(Ok(Message::Text(text))) => {
                    let mut message: Value = serde_json::from_str(&text).expect("JSON");
                    if message["id"] == self.calls {
                        let result = message["result"].take();
                        assert!(result.is_object(), "{method}: {message}");
                        return Ok(result);
                    }
                }
                Some(Ok(Message::Close(Some(close)))) if u16::from(close.code) == SESSION_ENDED => {
                    return Err(Outcome::NotFound);
                }
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                _ => return Err(Outcome::Unknown),
            }
        }
    }
}

/// The files of a session.
struct SessionFiles<'a> {
    http: &'a Client,
    server: &'a Server,
    session: &'a str,
    directory: PathBuf,
}

impl SessionFiles<'_> {
    async fn plant(&self) -> Result<(), Outcome> {
        let file = self.directory.join(self.session);
        let request = self.http.put(self.url("write_file", &file));
        self.response(request.body("planted")).await.map(drop)
    }

    /// Returns the names of the files.
    async fn list(&self) -> Result<BTreeSet<String>, Outcome> {
        let request = self.http.get(self.url("list_files", &self.directory));
        let listed = self.response(request).await?;
        let files = listed.as_array().expect("a list").iter();
        let names = files.filter_map(|file| file["name"].as_str());
        Ok(names.map(str::to_owned).collect())
    }

    async fn response(&self, request: reqwest::RequestBuilder) -> Result<Value, Outcome> {
        let request = request.bearer_auth(&self.server.api_key);
        let (status, body) = send(request).await.map_err(Outcome::from)?;
        failed(status, &body).map_or(Ok(body), Err)
    }

    fn url(&self, route: &str, path: &Path) -> String {
        let (base_url, session) = (&self.server.base_url, self.session);
        format!(
            "{base_url}/browsers/{session}/fs/{route}?path={}",
            path.display()
        )
    }
}
