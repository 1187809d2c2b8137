//! Tests of the relay, by topic, and the scene that they share.

mod downloads;
mod policy;
mod scripts;
mod tabs;
mod waiting;
mod worlds;

use serde_json::{Value, json};

use super::{worlds::SHARED_WORLD, *};

/// The directory of the script.
const SCRIPT_DIRECTORY: &str = "/state/scratch/7";

fn new_relay() -> Relay {
    Relay::new(
        SCRIPT_DIRECTORY.into(),
        SessionFiles::default(),
        DownloadSettings::default(),
    )
}

/// A relay and a clock. The worker has requested auto-attach.
struct Scene {
    relay: Relay,
    now: Instant,
}

/// A message, reduced to what the tests compare: `id` or `method`, and the session.
#[derive(Debug, PartialEq)]
enum Message {
    Browser(i64, String, String),
    Worker(String),
    Other(RelayAction),
}

impl Scene {
    fn new() -> Self {
        let mut scene = Scene {
            relay: new_relay(),
            now: Instant::now(),
        };
        scene.worker(
            json!({"id": 1, "method": "Target.setAutoAttach", "params": {"autoAttach": true}}),
        );
        let messages = scene.messages();
        assert!(
            matches!(&messages[..], [Message::Browser(1, method, _)] if method == "Target.setAutoAttach")
        );
        scene
    }

    /// Returns a scene with one healthy tab, attached and announced.
    fn with_tab(session: &str) -> Self {
        let mut scene = Scene::new();
        scene.attach(session, "page", json!({}));
        scene.browser(json!({"id": 1, "result": {}}));
        scene.reply_to_probe(FIRST_RELAY_ID, session, "https://example.com/");
        assert_eq!(scene.to_worker(), ["Target.attachedToTarget", "reply 1"]);
        scene
    }

    fn running(session: &str) -> Self {
        let mut scene = Self::with_tab(session);
        scene.relay.settle(scene.now);
        scene.messages();
        scene.reply_to_probe(FIRST_RELAY_ID + 1, session, "https://example.com/");
        scene.relay.run();
        scene.messages();
        scene
    }

    fn browser(&mut self, message: Value) {
        self.relay
            .from_browser(message.to_string().into(), self.now)
            .unwrap();
    }

    fn worker(&mut self, message: Value) {
        self.relay.from_worker(message.to_string().into()).unwrap();
    }

    fn attach(&mut self, session: &str, kind: &str, more: Value) {
        let mut info = json!({"targetId": format!("T-{session}"), "type": kind, "url": ""});
        info.as_object_mut()
            .unwrap()
            .extend(more["info"].as_object().cloned().unwrap_or_default());
        let mut event = json!({
            "method": "Target.attachedToTarget",
            "params": {"sessionId": session, "targetInfo": info, "waitingForDebugger": more["waits"] == true},
        });
        if let Some(parent) = more["parent"].as_str() {
            event["sessionId"] = parent.into();
        }
        self.browser(event);
    }

    fn reply_to_probe(&mut self, id: i64, session: &str, url: &str) {
        self.browser(json!({"id": id, "result": {"frameTree": {"frame": {"id": "F", "url": url}}}, "sessionId": session}));
    }

    fn event(&mut self, session: &str, method: &str) {
        self.browser(json!({"method": method, "params": {}, "sessionId": session}));
    }

    fn advance(&mut self, time: Duration) {
        self.now += time;
        self.relay.tick(self.now);
    }

    fn messages(&mut self) -> Vec<Message> {
        let text = |bytes: &Bytes| serde_json::from_slice::<Value>(bytes).unwrap();
        self.relay
            .take_actions()
            .into_iter()
            .map(|out| match out {
                RelayAction::ToBrowser(bytes) => {
                    let message = text(&bytes);
                    let member = |name: &str| message[name].as_str().unwrap_or_default().to_owned();
                    Message::Browser(
                        message["id"].as_i64().unwrap(),
                        member("method"),
                        member("sessionId"),
                    )
                }
                RelayAction::ToWorker(bytes) => {
                    let message = text(&bytes);
                    Message::Worker(match (message["id"].as_i64(), message["method"].as_str()) {
                        (Some(id), _) if message.get("error").is_some() => format!("error {id}"),
                        (Some(id), _) => format!("reply {id}"),
                        (None, Some(method)) => method.to_owned(),
                        (None, None) => panic!("{message}"),
                    })
                }
                other => Message::Other(other),
            })
            .collect()
    }

    fn to_worker(&mut self) -> Vec<String> {
        self.messages()
            .into_iter()
            .filter_map(|message| match message {
                Message::Worker(description) => Some(description),
                _ => None,
            })
            .collect()
    }

    fn to_browser(&mut self) -> Vec<String> {
        self.messages()
            .into_iter()
            .filter_map(|message| match message {
                Message::Browser(_, method, session) => Some(format!("{method} {session}")),
                _ => None,
            })
            .collect()
    }

    fn choose_page(&self) -> PageChoice {
        self.relay.choose_page(None, |_| false, self.now)
    }
}
