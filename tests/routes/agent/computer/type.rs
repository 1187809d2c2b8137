//! `POST /computer/type`

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::held::keyboard;
use crate::support::{
    agent::Start,
    recorder::{Recorder, run_action},
    requests::wrong_fields,
    wait::until,
    xrecord::{Event, Input, XRecord},
};

const FIELDS: &str = "<input id=input><textarea id=area></textarea><div id=free contenteditable></div>\
    <script>window.editing = window.silent = true</script>";

/// Texts in twelve scripts, including combining characters.
const SCRIPTS: [&str; 12] = [
    "The quick brown fox, jumps over: (the) lazy dog! 0123456789 @#$%^&*_+-=[]{}|;'\"<>?/~` ÄÖÜß çñø ½§€ e\u{301}o\u{308}\u{323} ",
    "Ξεσκεπάζω τὴν ψυχοφθόρα βδελυγμία ",
    "Съешь же ещё этих мягких французских булок, да выпей чаю ",
    "דג סקרן שט בים מאוכזב ולפתע מצא חברה שָׁלוֹם ",
    "صِف خَلقَ خَودٍ كَمِثلِ الشَمسِ إِذ بَزَغَت ",
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण क्षेत्र ",
    "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า ",
    "키스의 고유조건은 입술끼리 만나야 하고 한글 ",
    "いろはにほへとちりぬるを イロハニホヘト がぎぐ か\u{3099} ",
    "天地玄黃宇宙洪荒日月盈昃辰宿列張寒來暑往秋收冬藏𠮷𡈽 ",
    "Կրնամ ապակի ուտել և ինծի անհանգիստ չըներ გემრიელი ",
    "😀👩‍👩‍👧‍👦🇨🇭👍🏽❤️🏳️‍🌈🧑🏿‍🚀 ∑∞≠→ ",
];

/// Returns that many characters that mix all scripts.
fn sample(length: usize) -> String {
    let mut chars: Vec<char> = Vec::new();
    let mut at = 0_usize;
    while chars.len() < length {
        chars.extend(SCRIPTS[at % SCRIPTS.len()].chars());
        at += 5;
    }
    chars.truncate(length);
    let text: String = chars.into_iter().collect();
    // Editors may convert spaces at the ends.
    format!("[{}]", text.trim_end())
}

#[tokio::test]
async fn long_text_in_many_scripts_is_typed_unchanged() {
    let agent = Start::on_screen().ready().await;
    let text = sample(2000);
    let lines = format!("first\tline\n{text}\r\nlast\rline");
    for (focus, typed, value, expected) in [
        ("input", &text, "input.value", text.clone()),
        ("free", &text, "free.innerText", text.clone()),
        (
            "area",
            &lines.replace('\t', " "),
            "area.value",
            format!("first line\n{text}\nlast\nline"),
        ),
    ] {
        let mut recorder = Recorder::with(&agent, FIELDS).await;
        recorder.0.evaluate(&format!("{focus}.focus()")).await;
        run_action(&agent, "type", json!({"text": typed})).await;
        let length = Value::from(expected.encode_utf16().count());
        recorder
            .0
            .until(&format!("{value}.length"), |now| *now == length)
            .await;
        let arrived = recorder.0.evaluate(value).await;
        let arrived = arrived.as_str().unwrap();
        let differ = arrived
            .chars()
            .zip(expected.chars())
            .position(|(a, b)| a != b);
        assert_eq!(arrived, expected, "{focus} differs at {differ:?}");
    }
    agent.stop().await;
}

#[tokio::test]
async fn delay_is_respected_and_tab_moves_to_the_next_field() {
    let agent = Start::on_screen().ready().await;
    let mut recorder = Recorder::with(&agent, FIELDS).await;
    recorder.0.evaluate("input.focus()").await;
    let mut input = XRecord::on(&agent).await;
    run_action(&agent, "type", json!({"text": "ab\tcd", "delay": 50})).await;
    let is_press = |event: &&Event| matches!(event.input, Input::Key { down: true, .. });
    let events = input
        .take_when("five keys", |events| {
            events.iter().filter(is_press).count() == 5
        })
        .await;
    let times: Vec<u32> = events.iter().filter(is_press).map(|key| key.at).collect();
    // The server counts whole milliseconds.
    assert!(
        times.windows(2).all(|pair| pair[1] - pair[0] >= 49),
        "{times:?}"
    );
    recorder
        .0
        .until("input.value + '|' + area.value", |now| now == "ab|cd")
        .await;
    agent.stop().await;
}

#[tokio::test]
async fn characters_in_a_row_are_keys_of_their_own() {
    const TEXT: &str = "ooo AAaaé:é";
    let agent = Start::on_screen().ready().await;
    let mut recorder = Recorder::open(&agent).await;
    run_action(&agent, "type", json!({"text": TEXT})).await;
    // Without those of Shift, and without a move of the pointer over the new page.
    let is_key = |event: &&Value| event["key"].is_string() && event["key"] != "Shift";
    let seen = recorder
        .take_when("all keys", |seen| {
            seen.iter().filter(is_key).count() == 2 * TEXT.chars().count()
        })
        .await;
    let typed: String = seen
        .iter()
        .filter(is_key)
        .filter(|event| event["type"] == "keydown")
        .filter_map(|event| event["key"].as_str())
        .collect();
    assert_eq!(typed, TEXT, "{seen:?}");
    assert!(seen.iter().all(|event| event["repeat"] != true), "{seen:?}");
    agent.stop().await;
}

#[tokio::test]
async fn caps_lock_is_ignored_and_restored() {
    let agent = Start::on_screen().ready().await;
    let mut recorder = Recorder::with(&agent, FIELDS).await;
    recorder.0.evaluate("area.focus()").await;
    run_action(&agent, "press_key", json!({"keys": ["Caps_Lock"]})).await;
    run_action(&agent, "type", json!({"text": "aB é"})).await;
    run_action(&agent, "press_key", json!({"keys": ["c"]})).await;
    recorder.0.until("area.value", |now| now == "aB éC").await;
    agent.stop().await;
}

#[tokio::test]
async fn keyboard_mapping_is_restored() {
    let agent = Start::on_screen().ready().await;
    let x = crate::support::screen::connect(&agent).await;
    let before = keyboard(&x);
    run_action(&agent, "type", json!({"text": sample(200)})).await;
    assert_eq!(keyboard(&x), before);
    agent.stop().await;
}

#[tokio::test]
async fn auto_repeat_is_off_while_typing() {
    use x11rb::protocol::xproto::{AutoRepeatMode, ConnectionExt as _};
    let agent = Start::on_screen().ready().await;
    let x = crate::support::screen::connect(&agent).await;
    let repeats = async |expected: AutoRepeatMode| {
        until("a keyboard that repeats or does not", async || {
            let control = x.get_keyboard_control().unwrap().reply().unwrap();
            (control.global_auto_repeat == expected).then_some(())
        })
        .await;
    };
    repeats(AutoRepeatMode::ON).await;
    let slow = json!({"text": "ab", "delay": 10_000});
    let typing = tokio::spawn(agent.post("/computer/type").json(&slow).send());
    repeats(AutoRepeatMode::OFF).await;
    // Auto-repeat is restored.
    typing.abort();
    repeats(AutoRepeatMode::ON).await;
    run_action(&agent, "type", json!({"text": "c"})).await;
    repeats(AutoRepeatMode::ON).await;
    agent.stop().await;
}

#[tokio::test]
async fn typed_text_is_not_logged() {
    const SECRET: &str = "correct-horse-battery-staple-é";
    let agent = Start::on_screen().logging("trace,hyper=info").ready().await;
    run_action(&agent, "type", json!({"text": SECRET})).await;
    run_action(&agent, "press_key", json!({"keys": ["Ctrl+q", "é"]})).await;
    let (status, answer) = agent
        .answer(
            agent
                .post("/computer/type")
                .json(&json!({"text": format!("{SECRET}\u{0}")})),
        )
        .await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(!answer.to_string().contains("horse"), "{answer}");
    let log = agent.log();
    assert!(log.contains("TRACE"), "all is logged that may be");
    for trace in ["horse", "enigo", "keycode", "keysym", "Unicode("] {
        let line = log.lines().find(|line| line.contains(trace));
        assert_eq!(line, None, "{trace}");
    }
    agent.stop().await;
}

#[tokio::test]
async fn untypable_text_is_rejected() {
    let agent = Start::screen_alone().await;
    let long = "é".repeat(65_537);
    for (body, fields) in [
        (json!({}), vec!["text"]),
        (json!({"text": 1, "delay": -1}), vec!["delay", "text"]),
        (json!({"text": "a\u{0}"}), vec!["text"]),
        (json!({"text": "a\u{7f}"}), vec!["text"]),
        (json!({"text": "\u{85}"}), vec!["text"]),
        (json!({"text": "\u{fffe}"}), vec!["text"]),
        (json!({"text": long}), vec!["text"]),
        (json!({"text": "a", "delay": 10_001}), vec!["delay"]),
        // Eleven minutes.
        (
            json!({"text": "a".repeat(67), "delay": 10_000}),
            vec!["body"],
        ),
    ] {
        let (status, answer) = agent.answer(agent.post("/computer/type").json(&body)).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{answer}");
        assert_eq!(wrong_fields(&answer), fields);
    }
    agent.stop().await;
}
