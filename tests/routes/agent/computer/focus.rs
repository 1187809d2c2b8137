//! The keyboard goes where a person would expect it, without a click before.

use serde_json::json;

use crate::support::{agent::Start, page::Page, recorder::act, wait::until};

const FIELD: &str = "<title>first</title><input id=field autofocus>";

async fn show_field(page: &mut Page) {
    page.show(FIELD).await;
    page.evaluate("field.focus()").await;
    page.ready().await;
}

#[tokio::test]
async fn a_new_browsers_page_hears_what_is_typed() {
    let agent = Start::on_screen().ready().await;
    let mut page = Page::of(&agent).await;
    show_field(&mut page).await;
    act(&agent, "type", json!({"text": "first"})).await;
    page.until("field.value", |value| value == "first").await;
    // So it is after a restart.
    agent.ok(agent.post("/chromium/restart")).await;
    let mut page = Page::of(&agent).await;
    show_field(&mut page).await;
    act(&agent, "type", json!({"text": "again"})).await;
    page.until("field.value", |value| value == "again").await;
    agent.stop().await;
}

#[tokio::test]
async fn the_newest_window_has_it_and_then_the_one_below() {
    let agent = Start::on_screen().ready().await;
    let mut page = Page::of(&agent).await;
    show_field(&mut page).await;
    let open = "onclick = () => { window.other = open('about:blank', 'other', 'left=200,top=200,width=600,height=400'); \
        other.document.write('<title>second</title><input id=field>'); other.document.close(); other.field.focus(); }";
    page.evaluate(open).await;
    act(&agent, "click_mouse", json!({"x": 100, "y": 300})).await;
    page.until("window.other?.document.hasFocus()", |has| *has == true)
        .await;
    let drawn = "new Promise(done => other.requestAnimationFrame(() => other.requestAnimationFrame(() => done(true))))";
    page.evaluate(drawn).await;
    act(&agent, "type", json!({"text": "second"})).await;
    page.until("other.field.value", |value| value == "second")
        .await;
    // Once it leaves room for it, a click at the one below brings that up.
    page.evaluate("other.resizeTo(600, 400)").await;
    page.until("other.outerHeight", |height| *height == 400)
        .await;
    page.evaluate("onclick = null").await;
    act(&agent, "click_mouse", json!({"x": 100, "y": 900})).await;
    page.until("document.hasFocus()", |has| *has == true).await;
    page.evaluate("field.focus()").await;
    act(&agent, "type", json!({"text": "below"})).await;
    page.until("field.value", |value| value == "below").await;
    // And back, and then the one on top closes.
    page.evaluate("other.close()").await;
    until("one window", async || {
        let list = agent.ok(agent.get("/json/list")).await;
        (list.as_array().unwrap().len() == 1).then_some(())
    })
    .await;
    page.until("document.hasFocus()", |has| *has == true).await;
    act(&agent, "type", json!({"text": "!"})).await;
    page.until("field.value", |value| value == "below!").await;
    agent.stop().await;
}

#[tokio::test]
async fn where_the_one_that_has_it_closes_the_other_gets_it() {
    let agent = Start::on_screen().ready().await;
    let mut page = Page::of(&agent).await;
    show_field(&mut page).await;
    page.evaluate("onclick = () => window.other = open('about:blank', 'other', 'left=200,top=200,width=600,height=400')")
        .await;
    act(&agent, "click_mouse", json!({"x": 100, "y": 300})).await;
    page.until("window.other?.document.hasFocus()", |has| *has == true)
        .await;
    page.evaluate("other.close()").await;
    page.until("document.hasFocus()", |has| *has == true).await;
    page.evaluate("field.focus()").await;
    act(&agent, "type", json!({"text": "left"})).await;
    page.until("field.value", |value| value == "left").await;
    agent.stop().await;
}
