//! Mouse and keyboard through control.

use serde_json::json;

use crate::support::dev::Dev;

#[tokio::test]
async fn a_form_is_filled_in_by_hand_through_control() {
    const FORM: &str = "<input id=name style='position:fixed;left:0;top:0;width:400px;height:60px'>\
        <button style='position:fixed;left:0;top:100px;width:400px;height:60px' onclick=\"document.title = document.getElementById('name').value\">";
    let dev = Dev::start().await;
    let wishes = json!({"headless": false, "viewport": {"width": 1280, "height": 800}});
    let browser = dev.post("/browsers", wishes).await;
    assert_eq!(browser.status, 201, "{}", browser.body);
    let id = browser.body["session_id"].as_str().unwrap();
    let route = |path: &str| format!("/browsers/{id}/{path}");
    let code = format!(
        "await page.setContent({}); await page.evaluate(() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))); return page.evaluate('outerHeight - innerHeight')",
        json!(FORM)
    );
    let shown = dev
        .post(&route("automation/execute"), json!({"code": code}))
        .await
        .body;
    let top = shown["result"].as_i64().unwrap();
    let click = |y: i64| json!({"type": "click_mouse", "click_mouse": {"x": 200, "y": top + y}});
    let actions = json!([
        click(30),
        {"type": "type_text", "type_text": {"text": "Zoë 漢 👍🏽"}},
        {"type": "press_key", "press_key": {"keys": ["Ctrl+a", "Ctrl+c", "End", "Ctrl+v"]}},
        click(130),
    ]);
    let answer = dev
        .post(&route("computer/batch"), json!({"actions": actions}))
        .await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert_eq!(answer.body["results"].as_array().unwrap().len(), 4);
    let wait = "await page.waitForFunction(() => document.title); return page.title()";
    let title = dev
        .post(&route("automation/execute"), json!({"code": wait}))
        .await
        .body;
    assert_eq!(title["result"], "Zoë 漢 👍🏽Zoë 漢 👍🏽", "{title}");

    let at = dev
        .post(&route("computer/get_mouse_position"), json!({}))
        .await;
    assert_eq!(at.body, json!({"x": 200, "y": top + 130}));
    let off_screen = json!({"actions": [click(0), click(5000)]});
    let answer = dev.post(&route("computer/batch"), off_screen).await;
    answer.assert_error(400, "bad_request");
    assert_eq!(answer.bad_fields(), ["actions[1].click_mouse.y"]);
    dev.finish().await;
}
