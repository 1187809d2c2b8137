//! The keyboard focus is where a user expects it, without a click before.

use serde_json::json;
use x11rb::{
    COPY_DEPTH_FROM_PARENT, COPY_FROM_PARENT,
    connection::Connection,
    protocol::xproto::{
        Atom, AtomEnum, ConnectionExt as _, CreateWindowAux, PropMode, Window, WindowClass,
    },
    rust_connection::RustConnection,
    wrapper::ConnectionExt as _,
};

use crate::support::{
    agent::{Start, TestAgent},
    page::Page,
    recorder::run_action,
    screen,
    wait::until,
};

const FIELD: &str = "<title>first</title><input id=field autofocus>";

async fn show_field(page: &mut Page) {
    page.show(FIELD).await;
    page.evaluate("field.focus()").await;
    page.ready().await;
}

#[tokio::test]
async fn page_of_a_new_browser_receives_keys() {
    let agent = Start::on_screen().ready().await;
    let mut page = Page::of(&agent).await;
    show_field(&mut page).await;
    run_action(&agent, "type", json!({"text": "first"})).await;
    page.until("field.value", |value| value == "first").await;
    // The same after a restart.
    agent.ok(agent.post("/chromium/restart")).await;
    let mut page = Page::of(&agent).await;
    show_field(&mut page).await;
    run_action(&agent, "type", json!({"text": "again"})).await;
    page.until("field.value", |value| value == "again").await;
    agent.stop().await;
}

#[tokio::test]
async fn newest_window_has_the_focus_then_the_one_below() {
    let agent = Start::on_screen().ready().await;
    let mut page = Page::of(&agent).await;
    show_field(&mut page).await;
    let open = "onclick = () => { window.other = open('about:blank', 'other', 'left=200,top=200,width=600,height=400'); \
        other.document.write('<title>second</title><input id=field>'); other.document.close(); other.field.focus(); }";
    page.evaluate(open).await;
    run_action(&agent, "click_mouse", json!({"x": 100, "y": 300})).await;
    page.until("window.other?.document.hasFocus()", |has| *has == true)
        .await;
    let drawn = "new Promise(done => other.requestAnimationFrame(() => other.requestAnimationFrame(() => done(true))))";
    page.evaluate(drawn).await;
    run_action(&agent, "type", json!({"text": "second"})).await;
    page.until("other.field.value", |value| value == "second")
        .await;
    // A click on the lower window raises it.
    page.evaluate("other.resizeTo(600, 400)").await;
    page.until("other.outerHeight", |height| *height == 400)
        .await;
    page.evaluate("onclick = null").await;
    run_action(&agent, "click_mouse", json!({"x": 100, "y": 900})).await;
    page.until("document.hasFocus()", |has| *has == true).await;
    page.evaluate("field.focus()").await;
    run_action(&agent, "type", json!({"text": "below"})).await;
    page.until("field.value", |value| value == "below").await;
    // And back; then the upper one closes.
    page.evaluate("other.close()").await;
    until("one window", async || {
        let list = agent.ok(agent.get("/json/list")).await;
        (list.as_array().unwrap().len() == 1).then_some(())
    })
    .await;
    page.until("document.hasFocus()", |has| *has == true).await;
    run_action(&agent, "type", json!({"text": "!"})).await;
    page.until("field.value", |value| value == "below!").await;
    agent.stop().await;
}

#[tokio::test]
async fn remaining_window_gets_the_focus() {
    let agent = Start::on_screen().ready().await;
    let mut page = Page::of(&agent).await;
    show_field(&mut page).await;
    page.evaluate("onclick = () => window.other = open('about:blank', 'other', 'left=200,top=200,width=600,height=400')")
        .await;
    run_action(&agent, "click_mouse", json!({"x": 100, "y": 300})).await;
    page.until("window.other?.document.hasFocus()", |has| *has == true)
        .await;
    page.evaluate("other.close()").await;
    page.until("document.hasFocus()", |has| *has == true).await;
    page.evaluate("field.focus()").await;
    run_action(&agent, "type", json!({"text": "left"})).await;
    page.until("field.value", |value| value == "left").await;
    agent.stop().await;
}

/// Windows of other programs on a screen without a browser.
struct Windows(RustConnection);

impl Windows {
    async fn on(agent: &TestAgent) -> Self {
        Self(screen::connect(agent).await)
    }

    fn atom(&self, name: &str) -> Atom {
        let cookie = self.0.intern_atom(false, name.as_bytes()).unwrap();
        cookie.reply().unwrap().atom
    }

    /// Creates a window, sets its properties, shows it and waits until it has the focus.
    async fn show(&self, at: i16, size: u16, prepare: impl FnOnce(Window)) -> Window {
        let window = self.0.generate_id().unwrap();
        let (class, depth) = (WindowClass::INPUT_OUTPUT, COPY_DEPTH_FROM_PARENT);
        let (root, nothing) = (self.0.setup().roots[0].root, CreateWindowAux::new());
        let visual = COPY_FROM_PARENT;
        self.0
            .create_window(
                depth, window, root, at, at, size, size, 0, class, visual, &nothing,
            )
            .unwrap();
        prepare(window);
        self.0.map_window(window).unwrap().check().unwrap();
        self.has_focus(window).await;
        window
    }

    fn set_owner(&self, window: Window, owner: Window) {
        let (property, kind) = (AtomEnum::WM_TRANSIENT_FOR, AtomEnum::WINDOW);
        self.0
            .change_property32(PropMode::REPLACE, window, property, kind, &[owner])
            .unwrap();
    }

    fn make_modal(&self, window: Window) {
        let (property, kind) = (self.atom("_NET_WM_STATE"), AtomEnum::ATOM);
        let modal = [self.atom("_NET_WM_STATE_MODAL")];
        self.0
            .change_property32(PropMode::REPLACE, window, property, kind, &modal)
            .unwrap()
            .check()
            .unwrap();
    }

    async fn has_focus(&self, window: Window) {
        until("the focus", async || {
            let focus = self.0.get_input_focus().unwrap().reply().unwrap().focus;
            (focus == window).then_some(())
        })
        .await;
    }

    /// Returns the windows from bottom to top.
    fn stacked(&self) -> Vec<Window> {
        let root = self.0.setup().roots[0].root;
        let tree = self.0.query_tree(root).unwrap().reply().unwrap();
        tree.children
    }
}

#[tokio::test]
async fn dialog_stays_above_after_a_click_beside_it() {
    let agent = Start::screen_alone().await;
    let windows = Windows::on(&agent).await;
    let other = windows.show(700, 200, |_| {}).await;
    let owner = windows.show(0, 600, |_| {}).await;
    let dialog = windows
        .show(100, 300, |window| windows.set_owner(window, owner))
        .await;
    let inner = windows
        .show(200, 100, |window| windows.set_owner(window, dialog))
        .await;
    let click = async |at: i64| run_action(&agent, "click_mouse", json!({"x": at, "y": at})).await;
    // A non-modal dialog leaves its owner the focus and stays visible.
    click(20).await;
    windows.has_focus(owner).await;
    assert_eq!(windows.stacked(), [other, owner, dialog, inner]);
    click(750).await;
    windows.has_focus(other).await;
    assert_eq!(windows.stacked(), [owner, dialog, inner, other]);
    // A modal dialog gets the focus.
    windows.make_modal(inner);
    click(20).await;
    windows.has_focus(inner).await;
    assert_eq!(windows.stacked(), [other, owner, dialog, inner]);
    click(120).await;
    windows.has_focus(inner).await;
    assert_eq!(windows.stacked(), [other, owner, dialog, inner]);
    agent.stop().await;
}

#[tokio::test]
async fn file_chooser_receives_keys_after_a_click_beside_it() {
    const FILE: &str = "<title>none</title><input type=file id=file oncancel=\"document.title = 'cancelled'\">\
        <script>onclick = event => { if (event.target != file) file.click() }</script>";
    let agent = Start::on_screen().ready().await;
    let windows = Windows::on(&agent).await;
    let mut page = Page::of(&agent).await;
    page.show(FILE).await;
    page.ready().await;
    let before = windows.stacked().len();
    run_action(&agent, "click_mouse", json!({"x": 600, "y": 900})).await;
    page.until("document.hasFocus()", |has| *has == false).await;
    until("the file chooser", async || {
        (windows.stacked().len() > before).then_some(())
    })
    .await;
    run_action(&agent, "click_mouse", json!({"x": 5, "y": 1070})).await;
    run_action(&agent, "press_key", json!({"keys": ["Escape"]})).await;
    page.until("document.title", |title| title == "cancelled")
        .await;
    agent.stop().await;
}
