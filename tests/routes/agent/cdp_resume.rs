//! `GET /cdp?resume=…`

use nix::sys::signal::Signal;
use serde_json::json;

use crate::support::{
    agent::{Start, TestAgent},
    page::Page,
    processes,
    resumable::{Lost, PROTOCOL, Resumable, attach, close_code, evaluate, open},
    scripts::metric,
    wait::until,
    websocket::Client,
};

const NOT_RESUMABLE: u16 = 4012;

async fn clients(agent: &TestAgent, count: f64) {
    until("clients", async || {
        (metric(agent, "berth_cdp_clients").await == count).then_some(())
    })
    .await;
}

#[tokio::test]
async fn each_message_arrives_once_although_the_websocket_is_lost() {
    let agent = Start::headless().ready().await;
    let mut page = Page::of(&agent).await;
    let mut client = Resumable::connect(&agent).await;
    let session = attach(&mut client).await;
    let mut lines = 0;
    for round in 0..3 {
        let sent = client.sent;
        let lost = client.lose();
        // What happens meanwhile is reported afterwards.
        page.evaluate(&format!("console.log('line {round}'); 1"))
            .await;
        client = lost.resume(&agent, sent).await;
        let id = 10 + round;
        // Sent twice, as by a client that does not know whether it has arrived.
        let count = evaluate(
            id,
            &session,
            "globalThis.count = (globalThis.count ?? 0) + 1",
        );
        client.send(sent + 1, count.clone()).await;
        client.send(sent + 1, count).await;
        let reply = loop {
            let message = client.next().await;
            if message["method"] == "Runtime.consoleAPICalled" {
                let value = &message["params"]["args"][0]["value"];
                assert_eq!(*value, format!("line {round}"));
                lines += 1;
            }
            if message["id"] == id {
                break message;
            }
        };
        assert_eq!(reply["result"]["result"]["value"], round + 1);
    }
    assert_eq!(lines, 3);
    client.socket.close().await;
    agent.stop().await;
}

#[tokio::test]
async fn messages_are_acknowledged_and_wait_for_acknowledgements() {
    let agent = Start::headless().ready().await;
    let mut client = Resumable::connect(&agent).await;
    let session = attach(&mut client).await;
    for id in 4..=32 {
        client.call(evaluate(id, &session, "1")).await;
    }
    let ack = loop {
        let text = client.socket.next_text().await;
        match text.split_once(' ').expect("a number") {
            ("ack", number) => break number.to_owned(),
            _ => client.received += 1,
        }
    };
    assert_eq!(ack, "32");
    while client.received < 33 {
        client.next().await;
    }
    // Each reply has 2 MiB. After 16 MiB, the server waits.
    let large = "'x'.repeat(2 << 20)";
    for id in 33..53 {
        client.call(evaluate(id, &session, large)).await;
    }
    client.reply(40).await;
    // The next one comes after the ping, which is answered.
    assert!(client.socket.next_is_ping().await);
    // What a client has received when it resumes counts as acknowledged.
    let sent = client.sent;
    client = client.lose().resume(&agent, sent).await;
    for id in 41..53 {
        client.reply(id).await;
        let ack = format!("ack {}", client.received);
        client.socket.send_text(ack).await;
    }
    client.socket.close().await;
    agent.stop().await;
}

#[tokio::test]
async fn connection_that_cannot_be_resumed_is_never_a_new_one() {
    let agent = Start::headless()
        .with(["--cdp-resume-seconds", "1"])
        .ready()
        .await;
    let unknown = format!("resume={}&received=0", "0".repeat(32));
    assert_eq!(
        close_code(open(&agent, &unknown).await).await,
        NOT_RESUMABLE
    );

    let mut client = Resumable::connect(&agent).await;
    attach(&mut client).await;
    // Messages that were not sent, and messages that were acknowledged. The client stays connected.
    let beyond = format!("resume={}&received=1000", client.id);
    assert_eq!(close_code(open(&agent, &beyond).await).await, NOT_RESUMABLE);
    let ack = format!("ack {}", client.received);
    client.socket.send_text(ack).await;
    client
        .call(json!({"id": 9, "method": "Browser.getVersion"}))
        .await;
    client.reply(9).await;
    let before = format!("resume={}&received=0", client.id);
    assert_eq!(close_code(open(&agent, &before).await).await, NOT_RESUMABLE);

    client
        .call(json!({"id": 10, "method": "Browser.getVersion"}))
        .await;
    client.reply(10).await;

    // The time is over.
    let lost = client.lose();
    clients(&agent, 0.0).await;
    lost.is_refused(&agent, NOT_RESUMABLE).await;
    agent.stop().await;
}

#[tokio::test]
async fn connection_that_was_not_used_ends_with_its_websocket() {
    let agent = Start::headless()
        .with(["--cdp-resume-seconds", "300"])
        .ready()
        .await;
    let lost = Resumable::connect(&agent).await.lose();
    clients(&agent, 0.0).await;
    lost.is_refused(&agent, NOT_RESUMABLE).await;
    agent.stop().await;
}

#[tokio::test]
async fn client_that_closes_ends_its_connection_at_once() {
    let agent = Start::headless().ready().await;
    let client = Resumable::connect(&agent).await;
    clients(&agent, 1.0).await;
    let (id, received) = (client.id, client.received);
    client.socket.close().await;
    clients(&agent, 0.0).await;
    let query = format!("resume={id}&received={received}");
    assert_eq!(close_code(open(&agent, &query).await).await, NOT_RESUMABLE);
    agent.stop().await;
}

#[tokio::test]
async fn second_websocket_takes_the_connection_over() {
    let agent = Start::headless().ready().await;
    let mut first = Resumable::connect(&agent).await;
    let session = attach(&mut first).await;
    let mut second = Lost {
        id: first.id.clone(),
        sent: first.sent,
        received: first.received,
    }
    .resume(&agent, first.sent)
    .await;
    assert_eq!(close_code(first.socket).await, 4009);
    second.call(evaluate(7, &session, "6 * 7")).await;
    let reply = second.reply(7).await;
    assert_eq!(reply["result"]["result"]["value"], 42);
    clients(&agent, 1.0).await;
    second.socket.close().await;
    agent.stop().await;
}

#[tokio::test]
async fn client_learns_that_chromium_has_restarted_meanwhile() {
    let agent = Start::headless().ready().await;
    let mut client = Resumable::connect(&agent).await;
    attach(&mut client).await;
    let lost = client.lose();
    let pid = agent.chromium_number("pid").await;
    processes::signal(u32::try_from(pid).unwrap(), Signal::SIGKILL);
    agent
        .chromium_when("another Chromium", |chromium| {
            chromium["state"] == "running" && chromium["pid"] != pid
        })
        .await;
    // Its slot is free, and the reason is repeated.
    clients(&agent, 0.0).await;
    lost.is_refused(&agent, 4001).await;
    lost.is_refused(&agent, 4001).await;
    agent.stop().await;
}

#[tokio::test]
async fn invalid_message_ends_the_connection() {
    let agent = Start::headless().ready().await;
    for message in [
        "hello",
        "{}",
        "0 {}",
        "2 {\"id\":1,\"method\":\"Browser.getVersion\"}",
        "-1 {}",
        "ack 1",
    ] {
        let mut client = Resumable::connect(&agent).await;
        client.socket.send_text(message.to_owned()).await;
        let query = client.query();
        assert_eq!(close_code(client.socket).await, 1008, "{message}");
        // The client learns why, in case that it missed the Close frame.
        let code = close_code(open(&agent, &query).await).await;
        assert_eq!(code, 1008, "{message}");
    }
    let mut client = Resumable::connect(&agent).await;
    client.socket.send_bytes(b"1 {}".to_vec()).await;
    assert_eq!(close_code(client.socket).await, 1008);
    agent.stop().await;
}

#[tokio::test]
async fn invalid_request_is_rejected() {
    let agent = Start::headless().ready().await;
    for (query, reason) in [
        ("resume=yes", "must be `new` or the id"),
        ("resume=", "must be `new` or the id"),
        ("resume=new&received=1", "`received` belongs to the id"),
        ("received=1", "`received` belongs to the id"),
        (
            "resume=00000000000000000000000000000000",
            "`received` belongs to the id",
        ),
        (
            "resume=00000000000000000000000000000000&received=-1",
            "must be the number of a message",
        ),
        (
            "resume=0000000000000000000000000000000G&received=1",
            "must be `new` or the id",
        ),
    ] {
        let url = agent.ws_url(&format!("/cdp?{query}"));
        let body = Client::refused_with_protocol(&url, PROTOCOL).await;
        assert!(body.contains(reason), "{query}: {body}");
    }
    // Without the subprotocol.
    let url = agent.ws_url("/cdp?resume=new");
    let body = Client::refused_with_protocol(&url, "other").await;
    assert!(
        body.contains("needs the subprotocol berth.resume.v1"),
        "{body}"
    );
    clients(&agent, 0.0).await;
    agent.stop().await;
}
