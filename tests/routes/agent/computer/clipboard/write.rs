//! `POST /computer/clipboard/write`

use std::{
    fs::File,
    os::{fd::AsFd, unix::fs::OpenOptionsExt},
};

use nix::{
    fcntl::OFlag,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::Signal,
};
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::{
    agent::{Start, TestAgent},
    page::Page,
    painter::screenshot,
    processes,
    recorder::{action, position},
    requests::wrong_fields,
    screen::{ClipboardOwner, ClipboardReply},
    wait::until,
};

const MAX_TEXT: usize = 1 << 20;
const ALL_SORTS: &str = "é 漢字\nline\ttab 👩‍👩‍👧‍👦 🇨🇭 e\u{301}";

async fn write(agent: &TestAgent, text: &str) {
    let body = json!({"text": text});
    let answer = agent
        .ok(agent.post("/computer/clipboard/write").json(&body))
        .await;
    assert_eq!(answer, json!({"ok": true}));
}

async fn read(agent: &TestAgent) -> String {
    let answer = agent.ok(agent.post("/computer/clipboard/read")).await;
    answer["text"].as_str().expect("a text").to_owned()
}

/// Pastes into a text area and returns what is in it then.
async fn paste(page: &mut Page) -> Value {
    page.show(
        "<textarea id=a></textarea><script>a.onpaste = () => document.title = 'pasted'</script>",
    )
    .await;
    page.evaluate("document.title = '', a.focus()").await;
    page.press_ctrl('v', "Paste").await;
    page.until("document.title", |title| title == "pasted")
        .await;
    page.evaluate("a.value").await
}

/// The process that has the clipboard.
fn owner_of(agent: &TestAgent) -> Option<u32> {
    let found = processes::naming(&agent.state_dir());
    let mut owners = found
        .into_iter()
        .filter(|process| process.command.contains("clipboard-owner"));
    let owner = owners.next();
    assert!(owners.next().is_none(), "one at most");
    owner.map(|owner| owner.pid)
}

#[tokio::test]
async fn written_text_is_read_and_pasted() {
    let agent = Start::on_screen().ready().await;
    let mut page = Page::of(&agent).await;
    assert_eq!(
        owner_of(&agent),
        None,
        "none before there is something to own"
    );
    for text in ["plain", ALL_SORTS, "", "again"] {
        write(&agent, text).await;
        assert_eq!(read(&agent).await, text);
        if !text.is_empty() {
            assert_eq!(paste(&mut page).await, text);
        }
    }
    // What a page may not see is none of ours to change.
    write(&agent, "a\0b").await;
    assert_eq!(read(&agent).await, "a\0b");
    agent.stop().await;
}

#[tokio::test]
async fn a_mebibyte_is_pasted_and_more_is_refused() {
    let agent = Start::on_screen().ready().await;
    let mut page = Page::of(&agent).await;
    let most = "😀".repeat(MAX_TEXT / 4);
    write(&agent, &most).await;
    assert_eq!(read(&agent).await, most);
    let pasted = paste(&mut page).await;
    assert!(
        pasted == most.as_str(),
        "{} bytes",
        pasted.to_string().len()
    );
    let body = json!({"text": format!("{most}x")});
    let request = agent.post("/computer/clipboard/write").json(&body);
    let (status, answer) = agent.answer(request).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{answer}");
    assert_eq!(wrong_fields(&answer), ["text"]);
    assert_eq!(read(&agent).await, most, "it is as it was");
    agent.stop().await;
}

#[tokio::test]
async fn a_page_reads_and_writes_it_where_it_may() {
    let agent = Start::on_screen().ready().await;
    let mut page = Page::of(&agent).await;
    // The agent's own page is of an origin that may be trusted.
    page.call("Page.navigate", json!({"url": agent.url("/docs/")}))
        .await;
    page.call("Page.bringToFront", json!({})).await;
    page.until(
        "document.hasFocus() && isSecureContext && document.readyState == 'complete'",
        |is| *is == true,
    )
    .await;
    let permissions = ["clipboardReadWrite", "clipboardSanitizedWrite"];
    page.call(
        "Browser.grantPermissions",
        json!({"permissions": permissions}),
    )
    .await;
    write(&agent, ALL_SORTS).await;
    assert_eq!(
        page.evaluate("navigator.clipboard.readText()").await,
        ALL_SORTS
    );
    page.evaluate("navigator.clipboard.writeText('from the page')")
        .await;
    assert_eq!(read(&agent).await, "from the page");
    write(&agent, "back").await;
    assert_eq!(
        page.evaluate("navigator.clipboard.readText()").await,
        "back"
    );
    agent.stop().await;
}

#[tokio::test]
async fn keys_copy_and_paste_it_and_a_batch_that_sleeps_holds_up_nothing() {
    let agent = Start::on_screen().ready().await;
    let mut page = Page::of(&agent).await;
    page.show("<body style='margin:0'><textarea id=a style='width:99vw;height:99vh'></textarea>")
        .await;
    page.ready().await;
    let top = page.evaluate("outerHeight - innerHeight").await;
    let place = json!({"x": 100, "y": top.as_i64().unwrap() + 100});
    let click = agent.post("/computer/click_mouse").json(&place);
    agent.ok(click).await;
    let press = async |key: &str| {
        let keys = json!({"keys": [key]});
        agent
            .ok(agent.post("/computer/press_key").json(&keys))
            .await;
    };
    write(&agent, ALL_SORTS).await;
    press("Ctrl+v").await;
    page.until("a.value", |value| *value == ALL_SORTS).await;
    page.evaluate("a.value = 'from the page'").await;
    press("Ctrl+a").await;
    press("Ctrl+c").await;
    until("what was copied", async || {
        (read(&agent).await == "from the page").then_some(())
    })
    .await;

    let place = json!({"x": 7, "y": 8});
    // For longer than anything is waited for here.
    let pause = || action("sleep", json!({"duration_ms": 30_000}));
    let moved = action("move_mouse", place.clone());
    let batch = json!({"actions": [moved, pause(), pause(), pause(), pause()]});
    let sleeper = tokio::spawn(agent.post("/computer/batch").json(&batch).send());
    until("the move", async || {
        (position(&agent).await == place).then_some(())
    })
    .await;
    write(&agent, "meanwhile").await;
    assert_eq!(read(&agent).await, "meanwhile");
    screenshot(&agent, &json!({})).await;
    assert!(!sleeper.is_finished());
    sleeper.abort();
    agent.stop().await;
}

#[tokio::test]
async fn it_outlives_the_process_that_offers_it() {
    let agent = Start::on_screen().ready().await;
    let mut page = Page::of(&agent).await;
    write(&agent, ALL_SORTS).await;
    let first = owner_of(&agent).expect("an owner");
    processes::signal(first, Signal::SIGKILL);
    // At no time is it gone for who reads it here.
    assert_eq!(read(&agent).await, ALL_SORTS);
    until("another owner", async || {
        owner_of(&agent).filter(|owner| *owner != first)
    })
    .await;
    until("the text, pasted", async || {
        (paste(&mut page).await == ALL_SORTS).then_some(())
    })
    .await;
    // A write that finds it dead is done all the same.
    processes::signal(owner_of(&agent).expect("an owner"), Signal::SIGKILL);
    write(&agent, "next").await;
    assert_eq!(read(&agent).await, "next");
    agent.stop().await;
}

#[tokio::test]
async fn text_copied_later_by_another_program_stays() {
    let agent = Start::screen_alone().await;
    write(&agent, "old").await;
    let other =
        ClipboardOwner::start(&agent, ClipboardReply::Content("UTF8_STRING", "new".into())).await;
    let first = owner_of(&agent).expect("an owner");
    processes::signal(first, Signal::SIGKILL);
    // Another one may be started, where this one could not tell of its loss any more.
    until("its end", async || {
        (owner_of(&agent) != Some(first)).then_some(())
    })
    .await;
    assert_eq!(read(&agent).await, "new");
    write(&agent, "newest").await;
    other
        .lost
        .recv()
        .expect("the other owner lost the clipboard");
    assert_eq!(read(&agent).await, "newest");
    agent.stop().await;
}

/// Whether it has been sent something that it has not read.
fn has_unread_input(pid: u32) -> bool {
    let mut options = File::options();
    let options = options.read(true).custom_flags(OFlag::O_NONBLOCK.bits());
    let input = options.open(format!("/proc/{pid}/fd/0")).unwrap();
    let mut fds = [PollFd::new(input.as_fd(), PollFlags::POLLIN)];
    poll(&mut fds, PollTimeout::ZERO).unwrap() == 1
}

#[tokio::test]
async fn written_text_stays_if_another_program_copied_just_before() {
    let agent = Start::screen_alone().await;
    write(&agent, "first").await;
    let owner = owner_of(&agent).expect("an owner");
    for round in 0..20 {
        // It receives both events at once.
        processes::stop(owner).await;
        let other =
            ClipboardOwner::start(&agent, ClipboardReply::Content("UTF8_STRING", "x".into())).await;
        let text = format!("written {round}");
        let written = async {
            until("the request", async || {
                has_unread_input(owner).then_some(())
            })
            .await;
            processes::signal(owner, Signal::SIGCONT);
        };
        tokio::join!(write(&agent, &text), written);
        assert_eq!(read(&agent).await, text);
        other
            .lost
            .recv()
            .expect("the other owner lost the clipboard");
    }
    assert_eq!(owner_of(&agent), Some(owner), "it is the same one");
    agent.stop().await;
}

#[tokio::test]
async fn only_so_many_wait_to_be_written() {
    const WRITERS: usize = 20;
    let agent = Start::screen_alone().await;
    write(&agent, "first").await;
    let owner = owner_of(&agent).expect("an owner");
    processes::stop(owner).await;
    let mut writers = JoinSet::new();
    for _ in 0..WRITERS {
        let request = agent.post("/computer/clipboard/write");
        writers.spawn(request.json(&json!({"text": "next"})).send());
    }
    // One is being written and 16 wait.
    for _ in 0..WRITERS - 17 {
        let answer = writers.join_next().await.unwrap().unwrap().unwrap();
        assert_eq!(answer.status(), StatusCode::TOO_MANY_REQUESTS);
        assert!(answer.headers().contains_key("retry-after"));
    }
    processes::signal(owner, Signal::SIGCONT);
    while writers.join_next().await.is_some() {}
    assert_eq!(read(&agent).await, "next");
    agent.stop().await;
}

#[tokio::test]
async fn it_outlives_the_screen() {
    let agent = Start::on_screen().ready().await;
    write(&agent, ALL_SORTS).await;
    let screen = agent.display_pid().await;
    processes::signal(screen, Signal::SIGKILL);
    agent
        .chromium_when("the next browser", |status| status["generation"] == 2)
        .await;
    assert_eq!(read(&agent).await, ALL_SORTS);
    until("the text, pasted", async || {
        let mut page = Page::of(&agent).await;
        (paste(&mut page).await == ALL_SORTS).then_some(())
    })
    .await;
    agent.stop().await;
}

#[tokio::test]
async fn it_ends_with_the_agent() {
    let agent = Start::screen_alone().await;
    write(&agent, "x").await;
    assert!(owner_of(&agent).is_some());
    // Nothing is left of it, which is looked after.
    agent.kill().await;
}

#[tokio::test]
async fn invalid_text_is_rejected() {
    let agent = Start::without_browser().listening().await;
    for body in [
        json!({}),
        json!({"text": 7}),
        json!({"text": null}),
        json!({"text": ["canary"]}),
    ] {
        let request = agent.post("/computer/clipboard/write").json(&body);
        let (status, answer) = agent.answer(request).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{body}: {answer}");
        assert_eq!(wrong_fields(&answer), ["text"], "{body}");
        assert!(!answer.to_string().contains("canary"), "{answer}");
    }
    agent.stop().await;
}

#[tokio::test]
async fn no_text_is_logged_or_named() {
    const WRITTEN: &str = "canary-of-the-clipboard";
    const COPIED: &str = "canary-of-the-page";
    let agent = Start::on_screen().logging("trace,hyper=info").ready().await;
    let other = ClipboardOwner::start(
        &agent,
        ClipboardReply::Content("UTF8_STRING", COPIED.into()),
    )
    .await;
    assert_eq!(read(&agent).await, COPIED);
    write(&agent, WRITTEN).await;
    other
        .lost
        .recv()
        .expect("the other owner lost the clipboard");
    assert_eq!(read(&agent).await, WRITTEN);
    let owner = owner_of(&agent).expect("an owner");
    let command = std::fs::read(format!("/proc/{owner}/cmdline")).unwrap();
    assert!(!String::from_utf8_lossy(&command).contains(WRITTEN));
    processes::signal(owner, Signal::SIGKILL);
    until("another owner", async || {
        owner_of(&agent).filter(|other| *other != owner)
    })
    .await;
    let log = agent.log();
    assert!(log.contains("clipboard owner process exited"), "{log}");
    for canary in [WRITTEN, COPIED] {
        assert!(!log.contains(canary), "{log}");
    }
    agent.stop().await;
}
