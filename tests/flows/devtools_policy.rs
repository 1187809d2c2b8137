//! DevTools methods that are refused to clients, at every endpoint and in every session.

use serde_json::{Value, json};

use crate::support::{agent::Start, websocket::Client};

const REFUSED: [&str; 11] = [
    "Cast.disable",
    "Cast.enable",
    "Cast.setSinkToUse",
    "Cast.startDesktopMirroring",
    "Cast.startTabMirroring",
    "Cast.stopCasting",
    "Target.exposeDevToolsProtocol",
    "Target.openDevTools",
    "Target.setRemoteLocations",
    "Tethering.bind",
    "Tethering.unbind",
];

/// Parameters with which Chromium would carry out each of the methods.
fn parameters(target: &str) -> Value {
    let location = json!({"host": "127.0.0.1", "port": 9});
    json!({"targetId": target, "bindingName": "cdp", "locations": [location], "port": 45_871})
}

fn assert_refused(response: &Value, method: &str) {
    let message = format!("{method} is not available to clients");
    let expected = json!({"code": -32000, "message": message});
    assert_eq!(response["error"], expected, "{response}");
}

async fn assert_answers(client: &mut Client) {
    let sum = json!({"expression": "6*7"});
    let response = client.call("Runtime.evaluate", sum).await;
    assert_eq!(response["result"]["result"]["value"], 42, "{response}");
}

/// Sends a command in a session and returns its response.
async fn call_in(client: &mut Client, session: &str, method: &str, params: &Value) -> Value {
    const ID: u64 = 100_000;
    let call = json!({"id": ID, "method": method, "params": params, "sessionId": session});
    client.send_text(call.to_string()).await;
    let response = client.response(ID).await;
    assert_eq!(response["sessionId"], session, "{response}");
    response
}

#[tokio::test]
async fn methods_past_the_agent_are_refused_to_clients() {
    let agent = Start::headless().ready().await;
    let list = agent.ok(agent.get("/json/list")).await;
    let target = list[0]["id"].as_str().unwrap();
    let mut browser = Client::connect(&agent.ws_url("/cdp")).await;
    let mut page = Client::connect(&agent.ws_url(&format!("/devtools/page/{target}"))).await;
    let attach = json!({"targetId": target, "flatten": true});
    let attached = browser.call("Target.attachToTarget", attach).await;
    let session = attached["result"]["sessionId"].as_str().unwrap();
    let params = parameters(target);
    for method in REFUSED {
        assert_refused(&browser.call(method, params.clone()).await, method);
        assert_refused(
            &call_in(&mut browser, session, method, &params).await,
            method,
        );
        assert_refused(&page.call(method, params.clone()).await, method);
    }
    let sum = json!({"expression": "6*7"});
    let response = call_in(&mut browser, session, "Runtime.evaluate", &sum).await;
    assert_eq!(response["result"]["result"]["value"], 42, "{response}");
    assert_answers(&mut page).await;
    // Neither has opened a window, nor given the page the protocol.
    let later = agent.ok(agent.get("/json/list")).await;
    assert_eq!(
        later.as_array().unwrap().len(),
        list.as_array().unwrap().len()
    );
    let exposed = json!({"expression": "typeof cdp"});
    let response = page.call("Runtime.evaluate", exposed).await;
    assert_eq!(response["result"]["result"]["value"], "undefined");
    agent.stop().await;
}

#[tokio::test]
async fn escapes_and_order_of_members_hide_no_method() {
    let agent = Start::headless().ready().await;
    let mut client = Client::connect(&agent.ws_url("/cdp")).await;
    for command in [
        r#"{"id":7,"\u006dethod":"\u0054arget.setRemoteLocations","params":{"locations":[]}}"#,
        r#"{"params":{"method":"Browser.getVersion","locations":[]},"method":"Target.setRemoteLocations","id":7}"#,
    ] {
        client.send_text(command.to_owned()).await;
        assert_refused(&client.response(7).await, "Target.setRemoteLocations");
    }
    let version = client.call("Browser.getVersion", json!({})).await;
    assert!(version["result"]["product"].is_string(), "{version}");
    agent.stop().await;
}

#[tokio::test]
async fn carried_command_is_subject_to_the_policy() {
    let agent = Start::headless().ready().await;
    let mut client = Client::connect(&agent.ws_url("/cdp")).await;
    let list = agent.ok(agent.get("/json/list")).await;
    let attach = json!({"targetId": list[0]["id"], "flatten": false});
    let attached = client.call("Target.attachToTarget", attach).await;
    let session = attached["result"]["sessionId"].as_str().unwrap();
    let carrier = |message: Value| json!({"sessionId": session, "message": message.to_string()});
    const CARRIER: &str = "Target.sendMessageToTarget";
    let cast = json!({"id": 1, "method": "Cast.enable"});
    let twice = json!({"id": 1, "method": CARRIER, "params": carrier(cast.clone())});
    for message in [cast, twice] {
        assert_refused(&client.call(CARRIER, carrier(message)).await, "Cast.enable");
    }
    let response = client
        .call(CARRIER, carrier(json!([1, "Cast.enable"])))
        .await;
    let message = response["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("not a DevTools command"), "{response}");
    // A permitted command arrives, and its reply comes back.
    let evaluate = json!({"id": 5, "method": "Runtime.evaluate", "params": {"expression": "6*7"}});
    client.start_call(CARRIER, carrier(evaluate)).await;
    loop {
        let event: Value = serde_json::from_str(&client.next_text().await).unwrap();
        if event["method"] != "Target.receivedMessageFromTarget" {
            assert!(event["error"].is_null(), "{event}");
            continue;
        }
        let reply = event["params"]["message"].as_str().unwrap();
        let reply: Value = serde_json::from_str(reply).unwrap();
        assert_eq!(reply["id"], 5);
        assert_eq!(reply["result"]["result"]["value"], 42);
        break;
    }
    agent.stop().await;
}
