//! `POST /computer/clipboard/read`

use std::sync::atomic::Ordering;

use futures::future::join_all;
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::support::{
    agent::{Start, TestAgent},
    page::Page,
    screen::{ClipboardOwner, ClipboardReply},
    wait::until,
};

const MAX_TEXT: usize = 1 << 20;

async fn read(agent: &TestAgent) -> (StatusCode, Value) {
    agent.answer(agent.post("/computer/clipboard/read")).await
}

fn text(text: &str) -> (StatusCode, Value) {
    (StatusCode::OK, json!({"text": text}))
}

/// The page selects what it holds and copies it; how much that was.
async fn copy(page: &mut Page, text: &str) {
    let shown = format!(
        "<textarea id=a></textarea><script>a.value = {}</script>",
        json!(text)
    );
    page.show(&shown).await;
    page.evaluate("a.focus(), a.select()").await;
    page.press_ctrl('c', "Copy").await;
}

#[tokio::test]
async fn text_copied_by_a_page_is_read() {
    let agent = Start::on_screen().ready().await;
    let mut page = Page::of(&agent).await;
    assert_eq!(read(&agent).await, text(""));
    for copied in [
        "plain",
        "line\nline\n\ttab",
        "é 漢字 👩‍👩‍👧‍👦 🇨🇭 e\u{301} \u{202e}x",
    ] {
        copy(&mut page, copied).await;
        until("the copied text", async || {
            (read(&agent).await == text(copied)).then_some(())
        })
        .await;
    }
    agent.stop().await;
}

#[tokio::test]
async fn a_mebibyte_is_read_and_more_is_refused() {
    let agent = Start::on_screen().ready().await;
    let mut page = Page::of(&agent).await;
    let most = "é".repeat(MAX_TEXT / 2);
    copy(&mut page, &most).await;
    until("a mebibyte", async || {
        (read(&agent).await == text(&most)).then_some(())
    })
    .await;
    for more in [MAX_TEXT + 1, 5 * MAX_TEXT] {
        copy(&mut page, "").await;
        copy(&mut page, &"x".repeat(more)).await;
        let answer = until("another text", async || {
            let (status, answer) = read(&agent).await;
            (status != StatusCode::OK).then_some((status, answer))
        })
        .await;
        assert_eq!(answer.0, StatusCode::PAYLOAD_TOO_LARGE, "{}", answer.1);
        // The next one must differ.
        copy(&mut page, "small").await;
        until("a small text", async || {
            (read(&agent).await == text("small")).then_some(())
        })
        .await;
    }
    agent.stop().await;
}

#[tokio::test]
async fn every_text_format_is_read_and_other_formats_are_empty() {
    let agent = Start::screen_alone().await;
    let long = "0123456789abcdef".repeat(MAX_TEXT / 16);
    let in_parts = |size: usize, announced: u32| {
        ClipboardReply::Incremental("UTF8_STRING", long.clone().into_bytes(), size, announced)
    };
    for (answers, expected) in [
        (
            ClipboardReply::Content("UTF8_STRING", "a\0b 😀".into()),
            text("a\0b 😀"),
        ),
        (
            ClipboardReply::Content("text/plain;charset=utf-8", "漢".into()),
            text("漢"),
        ),
        (
            ClipboardReply::Content("STRING", b"caf\xe9".to_vec()),
            text("café"),
        ),
        (
            ClipboardReply::Content("UTF8_STRING", b"a\xffb".to_vec()),
            text("a\u{fffd}b"),
        ),
        (ClipboardReply::Content("UTF8_STRING", Vec::new()), text("")),
        (
            ClipboardReply::Content("image/png", b"\x89PNG".to_vec()),
            text(""),
        ),
        (in_parts(60_000, 1), text(&long)),
        (in_parts(MAX_TEXT, 0), text(&long)),
        (
            ClipboardReply::Incremental("UTF8_STRING", Vec::new(), 1, 0),
            text(""),
        ),
    ] {
        let owner = ClipboardOwner::start(&agent, answers).await;
        assert_eq!(read(&agent).await, expected);
        drop(owner);
    }
    for (answers, expected) in [
        (
            ClipboardReply::Content("UTF8_STRING", vec![b'x'; MAX_TEXT + 1]),
            StatusCode::PAYLOAD_TOO_LARGE,
        ),
        (
            ClipboardReply::Content("STRING", vec![0xe9; MAX_TEXT]),
            StatusCode::PAYLOAD_TOO_LARGE,
        ),
        (in_parts(60_000, u32::MAX), StatusCode::PAYLOAD_TOO_LARGE),
        (
            ClipboardReply::Incremental("UTF8_STRING", vec![b'x'; MAX_TEXT + 1], 60_000, 0),
            StatusCode::PAYLOAD_TOO_LARGE,
        ),
        (
            ClipboardReply::Refused("UTF8_STRING"),
            StatusCode::BAD_GATEWAY,
        ),
    ] {
        let owner = ClipboardOwner::start(&agent, answers).await;
        let (status, answer) = read(&agent).await;
        assert_eq!(status, expected, "{answer}");
        drop(owner);
    }
    agent.stop().await;
}

#[tokio::test]
async fn unresponsive_owner_delays_only_its_readers() {
    let agent = Start::screen_alone().await;
    let owner = ClipboardOwner::start(&agent, ClipboardReply::Never).await;
    // Each waits for its own answer, and no longer.
    let readers = async { tokio::join!(read(&agent), read(&agent), read(&agent)) };
    for (status, answer) in <[_; 3]>::from(readers.await) {
        assert_eq!(status, StatusCode::GATEWAY_TIMEOUT, "{answer}");
        assert_eq!(answer["code"], "timeout");
    }
    // A later reader gets the text written meanwhile.
    let write = async {
        let body = json!({"text": "after all"});
        agent
            .ok(agent.post("/computer/clipboard/write").json(&body))
            .await
    };
    let (first, _) = tokio::join!(read(&agent), write);
    assert_eq!(first, text("after all"));
    owner
        .lost
        .recv()
        .expect("the silent owner lost the clipboard");
    agent.stop().await;
}

#[tokio::test]
async fn only_so_many_read_at_once() {
    const READERS: usize = 16;
    const ROUNDS: usize = 3;
    let agent = Start::screen_alone().await;
    let owner = ClipboardOwner::start(&agent, ClipboardReply::Never).await;
    let mut refused = false;
    for round in 1..=ROUNDS {
        let readers = join_all((0..READERS).map(|_| read(&agent)));
        let one_more = async {
            until("all asking", async || {
                (owner.request_count.load(Ordering::Relaxed) >= round * READERS).then_some(())
            })
            .await;
            read(&agent).await
        };
        let (answers, (status, answer)) = tokio::join!(readers, one_more);
        for (status, answer) in answers {
            assert_eq!(status, StatusCode::GATEWAY_TIMEOUT, "{answer}");
        }
        if status == StatusCode::TOO_MANY_REQUESTS {
            refused = true;
            break;
        }
        // It came when the first of them had already left, which a slow machine may do to it.
        assert_eq!(status, StatusCode::GATEWAY_TIMEOUT, "{answer}");
        owner.request_count.fetch_sub(1, Ordering::Relaxed);
    }
    assert!(refused, "more than {READERS} were taken, again and again");
    agent.stop().await;
}

#[tokio::test]
async fn without_a_display_there_is_no_clipboard() {
    let agent = Start::headless().ready().await;
    for (path, body) in [
        ("/computer/clipboard/read", json!({})),
        ("/computer/clipboard/write", json!({"text": "x"})),
    ] {
        let answer = agent.post(path).json(&body).send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::CONFLICT);
        assert_eq!(answer.headers()["x-should-retry"], "false");
        let answer: Value = answer.json().await.unwrap();
        assert_eq!(answer["code"], "no_display");
    }
    agent.stop().await;
}
