//! The documents that frames request, from the events of their network.

use std::{
    borrow::Cow,
    collections::{HashSet, VecDeque},
    net::IpAddr,
};

use serde::Deserialize;

/// The most documents that are remembered, of all frames that are observed.
const MAX_DOCUMENTS: usize = 32;
/// The most addresses of a document: Chromium follows 20 redirects.
const MAX_ADDRESSES: usize = 21;

/// An event about a request of a tab.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NetworkEvent {
    Requested,
    Responded,
    Ended,
}

impl NetworkEvent {
    pub(super) fn of_method(method: &str) -> Option<Self> {
        match method {
            "Network.requestWillBeSent" => Some(Self::Requested),
            "Network.responseReceived" => Some(Self::Responded),
            "Network.loadingFinished" | "Network.loadingFailed" => Some(Self::Ended),
            _ => None,
        }
    }
}

/// The parts of an event that are read. The others, such as headers, are skipped.
#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    params: Params<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Params<'a> {
    #[serde(borrow)]
    request_id: Cow<'a, str>,
    #[serde(default, borrow)]
    loader_id: Cow<'a, str>,
    #[serde(default, borrow)]
    frame_id: Cow<'a, str>,
    #[serde(default, borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(default, borrow)]
    response: Option<Response<'a>>,
    /// The response that has led to this request.
    #[serde(default, borrow)]
    redirect_response: Option<Response<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Response<'a> {
    status: i64,
    #[serde(default, borrow, rename = "remoteIPAddress")]
    address: Cow<'a, str>,
}

/// The response with a document, as far as it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DocumentResponse {
    /// The status of HTTP.
    pub status: Option<u16>,
    /// The addresses of the machines that sent it and the redirects to it. One from the cache or a
    /// service worker has none.
    pub addresses: Vec<IpAddr>,
}

#[derive(Debug)]
struct DocumentLoad {
    frame: String,
    loader: String,
    request: String,
    response: DocumentResponse,
    has_responded: bool,
    has_ended: bool,
}

/// The last documents that frames have requested, the oldest first.
#[derive(Debug, Default)]
pub(in crate::system::cdp) struct DocumentLoads {
    frames: HashSet<String>,
    loads: VecDeque<DocumentLoad>,
}

impl DocumentLoads {
    /// Observes a frame. The documents of others are not kept.
    pub(in crate::system::cdp) fn observe(&mut self, frame: &str) {
        self.frames.insert(frame.to_owned());
    }

    /// Notes an event. One that cannot be read is skipped.
    pub(super) fn note(&mut self, event: NetworkEvent, message: &[u8]) {
        let Ok(Message { params }) = serde_json::from_slice(message) else {
            return;
        };
        if event == NetworkEvent::Ended {
            let mut loads = self.loads.iter_mut();
            if let Some(load) = loads.find(|load| load.request == params.request_id) {
                load.has_ended = true;
            }
        } else if params.kind == "Document" && self.frames.contains(&*params.frame_id) {
            let load = self.load_of(&params);
            let responses = [&params.redirect_response, &params.response];
            for response in responses.into_iter().flatten() {
                load.response.add_address(response);
            }
            load.response.status = params.response.as_ref().and_then(status_of);
            load.has_responded = params.response.is_some();
        }
    }

    /// Returns the load that an event is about, which is new if the event is the first.
    fn load_of(&mut self, params: &Params) -> &mut DocumentLoad {
        let mut known = self.loads.iter();
        let position = known.position(|load| load.request == params.request_id);
        let index = position.unwrap_or_else(|| {
            if self.loads.len() == MAX_DOCUMENTS {
                self.loads.pop_front();
            }
            self.loads.push_back(DocumentLoad {
                frame: params.frame_id.clone().into_owned(),
                loader: params.loader_id.clone().into_owned(),
                request: params.request_id.clone().into_owned(),
                response: DocumentResponse::default(),
                has_responded: false,
                has_ended: false,
            });
            self.loads.len() - 1
        });
        &mut self.loads[index]
    }

    /// Returns the response with a document.
    pub(in crate::system::cdp) fn response(&self, loader: &str) -> DocumentResponse {
        let load = self.loads.iter().rev().find(|load| load.loader == loader);
        load.map(|load| load.response.clone()).unwrap_or_default()
    }

    /// Whether a frame waits for the response with another document.
    pub(in crate::system::cdp) fn is_navigating(&self, frame: &str) -> bool {
        let last = self.loads.iter().rev().find(|load| load.frame == frame);
        last.is_some_and(|load| !load.has_responded && !load.has_ended)
    }
}

impl DocumentResponse {
    fn add_address(&mut self, response: &Response) {
        let address = response.address.trim_matches(['[', ']']).parse().ok();
        if let Some(address) = address
            && !self.addresses.contains(&address)
            && self.addresses.len() < MAX_ADDRESSES
        {
            self.addresses.push(address);
        }
    }
}

fn status_of(response: &Response) -> Option<u16> {
    let status = u16::try_from(response.status).ok();
    status.filter(|status| *status > 0)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn observed() -> DocumentLoads {
        let mut loads = DocumentLoads::default();
        loads.observe("F");
        loads
    }

    fn note(loads: &mut DocumentLoads, method: &str, params: Value) {
        let event = NetworkEvent::of_method(method).unwrap();
        let message = json!({"method": method, "params": params, "sessionId": "S"});
        loads.note(event, message.to_string().as_bytes());
    }

    fn request(loads: &mut DocumentLoads, id: &str) {
        let params = json!({"requestId": id, "loaderId": id, "frameId": "F", "type": "Document", "request": {}});
        note(loads, "Network.requestWillBeSent", params);
    }

    #[test]
    fn document_has_the_addresses_of_its_responses() {
        let mut loads = observed();
        for (id, address, expected) in [
            ("a", "127.0.0.1", Some("127.0.0.1")),
            ("b", "[fe80::1]", Some("fe80::1")),
            ("c", "", None),
        ] {
            request(&mut loads, id);
            assert_eq!(loads.response(id), DocumentResponse::default());
            let response =
                json!({"status": 200, "remoteIPAddress": address, "headers": {"a": "\""}});
            let params = json!({"requestId": id, "loaderId": id, "frameId": "F", "type": "Document", "response": response});
            note(&mut loads, "Network.responseReceived", params);
            let addresses = expected.map(|address| address.parse().unwrap());
            let expected = DocumentResponse {
                status: Some(200),
                addresses: addresses.into_iter().collect(),
            };
            assert_eq!(loads.response(id), expected);
        }
    }

    #[test]
    fn redirects_count_as_responses() {
        let mut loads = observed();
        request(&mut loads, "a");
        for number in [1, 1, 2] {
            let response = json!({"status": 302, "remoteIPAddress": format!("10.0.0.{number}")});
            let params = json!({"requestId": "a", "loaderId": "a", "frameId": "F", "type": "Document", "redirectResponse": response});
            note(&mut loads, "Network.requestWillBeSent", params);
        }
        let response = json!({"status": 200, "remoteIPAddress": "192.0.2.1"});
        let params = json!({"requestId": "a", "loaderId": "a", "frameId": "F", "type": "Document", "response": response});
        note(&mut loads, "Network.responseReceived", params);
        let expected = ["10.0.0.1", "10.0.0.2", "192.0.2.1"].map(|one| one.parse().unwrap());
        let found = loads.response("a");
        assert_eq!(
            (found.status, &found.addresses[..]),
            (Some(200), &expected[..])
        );
        for number in 0..=MAX_ADDRESSES {
            let response = json!({"status": 302, "remoteIPAddress": format!("10.0.1.{number}")});
            let params = json!({"requestId": "a", "loaderId": "a", "frameId": "F", "type": "Document", "redirectResponse": response});
            note(&mut loads, "Network.requestWillBeSent", params);
        }
        assert_eq!(loads.response("a").addresses.len(), MAX_ADDRESSES);
    }

    #[test]
    fn frame_navigates_until_its_document_arrives_or_fails() {
        let mut loads = observed();
        assert!(!loads.is_navigating("F"));
        request(&mut loads, "a");
        assert!(loads.is_navigating("F"));
        assert!(!loads.is_navigating("another"));
        let params = json!({"requestId": "a", "loaderId": "a", "frameId": "F", "type": "Document", "response": {"status": 200}});
        note(&mut loads, "Network.responseReceived", params);
        assert!(!loads.is_navigating("F"));
        request(&mut loads, "b");
        assert!(loads.is_navigating("F"));
        let failed = json!({"requestId": "b"});
        note(&mut loads, "Network.loadingFailed", failed);
        assert!(!loads.is_navigating("F"));
    }

    #[test]
    fn other_requests_are_not_kept_and_documents_are_bounded() {
        let mut loads = observed();
        let script = json!({"requestId": "1", "loaderId": "a", "frameId": "F", "type": "Script"});
        note(&mut loads, "Network.requestWillBeSent", script);
        note(
            &mut loads,
            "Network.loadingFinished",
            json!({"requestId": "1"}),
        );
        note(
            &mut loads,
            "Network.requestWillBeSent",
            json!({"requestId": 7}),
        );
        let frame = json!({"requestId": "2", "loaderId": "a", "frameId": "G", "type": "Document"});
        note(&mut loads, "Network.requestWillBeSent", frame);
        assert!(loads.loads.is_empty());
        for id in 0..=MAX_DOCUMENTS {
            request(&mut loads, &id.to_string());
        }
        assert_eq!(loads.loads.len(), MAX_DOCUMENTS);
        assert_eq!(loads.loads[0].loader, "1");
    }
}
