//! Random batches: a page sees what they were made of, in their order.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{
    agent::{Start, TestAgent},
    recorder::{Recorder, action, perform},
};

/// How many batches there are; the variable asks for more.
const BATCHES: usize = 500;
const BATCHES_VARIABLE: &str = "BERTH_TEST_BATCHES";
/// Batches between two looks at what the page has seen.
const TOGETHER: usize = 50;
const NOTCH: i64 = 120;

/// Whether all of `part` is in `whole`, in that order.
pub fn is_part_of<T: PartialEq>(part: &[T], whole: &[T]) -> bool {
    let mut rest = whole.iter();
    part.iter().all(|wanted| rest.any(|found| found == wanted))
}

/// The same numbers each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}

/// What a page is to see of what was asked for.
#[derive(Default)]
struct Expected {
    /// Buttons and keys: kind, which one, what is held, and where the pointer is with a button.
    presses: Vec<Value>,
    moves: Vec<(i64, i64)>,
    /// Across and down.
    wheel: (i64, i64),
    held: BTreeSet<&'static str>,
}

/// In the order in which they are pressed: after Shift, Alt is another key, as on any keyboard of this kind.
const MODIFIERS: [(&str, &str); 3] = [("Alt", "Alt"), ("ctrl", "Control"), ("Shift", "Shift")];
/// In the order in which the page tells of them.
const TOLD: [&str; 3] = ["Shift", "Control", "Alt"];
const BUTTONS: [(&str, i64); 5] = [
    ("left", 0),
    ("middle", 1),
    ("right", 2),
    ("back", 3),
    ("forward", 4),
];
/// Without those that no page can keep from Chromium next to Ctrl.
const LETTERS: &[u8] = b"abcdefghijklmoprsuvxyz0123456789";
const SHIFTED_DIGITS: &[u8] = b")!@#$%^&*(";
const NAMED: [(&str, &str); 5] = [
    ("Return", "Enter"),
    ("esc", "Escape"),
    ("ArrowLeft", "ArrowLeft"),
    ("Home", "Home"),
    ("BackSpace", "Backspace"),
];

impl Expected {
    fn held(&self) -> String {
        let names = TOLD.into_iter();
        let held: Vec<&str> = names.filter(|name| self.held.contains(name)).collect();
        held.join("+")
    }

    fn key(&mut self, kind: &str, name: &str) {
        self.presses.push(json!([kind, name, self.held()]));
    }

    fn modifier(&mut self, name: &'static str, down: bool) {
        if down {
            self.held.insert(name);
            self.key("keydown", name);
        } else {
            self.held.remove(name);
            self.key("keyup", name);
        }
    }

    fn tap(&mut self, name: &str) {
        self.key("keydown", name);
        self.key("keyup", name);
    }

    fn button(&mut self, kind: &str, button: i64, (x, y): (i64, i64)) {
        self.presses.push(json!([kind, button, x, y, self.held()]));
    }

    /// A key that writes this; with Shift where it takes one and none is held.
    fn character(&mut self, letter: u8) {
        let shifted = letter.is_ascii_uppercase() || SHIFTED_DIGITS.contains(&letter);
        let own = shifted && !self.held.contains("Shift");
        if own {
            self.modifier("Shift", true);
        }
        let name = match letter {
            letter if !self.held.contains("Shift") => letter,
            digit @ b'0'..=b'9' => SHIFTED_DIGITS[usize::from(digit - b'0')],
            letter => letter.to_ascii_uppercase(),
        };
        self.tap(&char::from(name).to_string());
        if own {
            self.modifier("Shift", false);
        }
    }
}

/// On the page, whatever Chromium has above it.
fn place(dice: &mut Dice) -> (i64, i64) {
    (10 + dice.below(1250) as i64, 150 + dice.below(630) as i64)
}

/// An action, and what the page is to see of it.
fn random_action(dice: &mut Dice, expected: &mut Expected) -> Value {
    let held: Vec<_> = MODIFIERS
        .into_iter()
        .filter(|_| dice.below(5) == 0)
        .collect();
    let hold_keys: Vec<&str> = held.iter().map(|(key, _)| *key).collect();
    let at = place(dice);
    let chosen = dice.below(100);
    if chosen < 20 {
        // What has no keys to hold.
        return match chosen {
            0..15 => {
                let letters = (0..dice.below(6)).map(|_| {
                    let letter = dice.one_of(LETTERS);
                    let upper = dice.below(3) == 0;
                    if upper {
                        letter.to_ascii_uppercase()
                    } else {
                        letter
                    }
                });
                let text: Vec<u8> = letters.collect();
                text.iter().for_each(|letter| expected.character(*letter));
                action(
                    "type_text",
                    json!({"text": String::from_utf8(text).unwrap()}),
                )
            }
            15..18 => action("sleep", json!({"duration_ms": dice.below(3)})),
            _ => action("set_cursor", json!({"hidden": dice.below(2) == 0})),
        };
    }
    held.iter()
        .for_each(|(_, name)| expected.modifier(name, true));
    let made = match chosen {
        20..45 => {
            let (name, button) = dice.one_of(&BUTTONS);
            let times = 1 + dice.below(2);
            expected.moves.push(at);
            for _ in 0..times {
                expected.button("mousedown", button, at);
                expected.button("mouseup", button, at);
            }
            let click = json!({"x": at.0, "y": at.1, "button": name, "num_clicks": times, "hold_keys": hold_keys});
            action("click_mouse", click)
        }
        45..65 => {
            expected.moves.push(at);
            action(
                "move_mouse",
                json!({"x": at.0, "y": at.1, "hold_keys": hold_keys}),
            )
        }
        65..83 => {
            let keys: Vec<String> = (0..=dice.below(2))
                .map(|_| {
                    if dice.below(3) == 0 {
                        let (name, told) = dice.one_of(&NAMED);
                        expected.tap(told);
                        name.to_owned()
                    } else {
                        let letter = dice.one_of(LETTERS);
                        expected.character(letter);
                        char::from(letter).to_string()
                    }
                })
                .collect();
            action("press_key", json!({"keys": keys, "hold_keys": hold_keys}))
        }
        83..97 => {
            let path: Vec<_> = (0..2 + dice.below(3)).map(|_| place(dice)).collect();
            let (name, button) = dice.one_of(&BUTTONS[..3]);
            expected.moves.extend(&path);
            expected.button("mousedown", button, path[0]);
            expected.button("mouseup", button, *path.last().unwrap());
            let drag = json!({
                "path": path, "button": name, "steps_per_segment": 1, "step_delay_ms": 0, "hold_keys": hold_keys,
            });
            action("drag_mouse", drag)
        }
        _ => {
            let (across, down) = (dice.below(5) as i64 - 2, dice.below(5) as i64 - 2);
            expected.moves.push(at);
            expected.wheel.0 += across * NOTCH;
            expected.wheel.1 += down * NOTCH;
            let turn = json!({"x": at.0, "y": at.1, "delta_x": across, "delta_y": down, "hold_keys": hold_keys});
            action("scroll", turn)
        }
    };
    held.iter()
        .rev()
        .for_each(|(_, name)| expected.modifier(name, false));
    made
}

/// What the page has seen, once that is all.
async fn compare(agent: &TestAgent, recorder: &mut Recorder, mut expected: Expected) {
    const LAST: &str = "F9";
    perform(agent, vec![action("press_key", json!({"keys": [LAST]}))]).await;
    expected.tap(LAST);
    let sum = |seen: &[Value], side: &str| -> i64 {
        let deltas = seen.iter().filter_map(|event| event[side].as_f64());
        deltas.sum::<f64>() as i64
    };
    let seen = recorder
        .take_when("all events", |seen| {
            let last = |event: &Value| event["type"] == "keyup" && event["key"] == LAST;
            seen.iter().any(last) && (sum(seen, "dx"), sum(seen, "dy")) == expected.wheel
        })
        .await;
    let (mut presses, mut moves) = (Vec::new(), Vec::new());
    for event in &seen {
        let at = (event["x"].as_i64(), event["y"].as_i64());
        match event["type"].as_str().unwrap() {
            kind @ ("mousedown" | "mouseup") => {
                let (button, held) = (&event["button"], &event["held"]);
                presses.push(json!([kind, button, at.0, at.1, held]));
            }
            kind @ ("keydown" | "keyup") => {
                presses.push(json!([kind, event["key"], event["held"]]));
            }
            "mousemove" => moves.push((at.0.unwrap(), at.1.unwrap())),
            _ => {}
        }
    }
    if let Some(at) = (0..presses.len().max(expected.presses.len()))
        .find(|at| presses.get(*at) != expected.presses.get(*at))
    {
        let around = at.saturating_sub(3)..;
        panic!(
            "event {at}: seen {:?}\nexpected {:?}",
            presses[around.clone()].iter().take(8).collect::<Vec<_>>(),
            expected.presses[around].iter().take(8).collect::<Vec<_>>()
        );
    }
    // A program that is behind with moves is told of the last of them alone.
    moves.dedup();
    assert!(
        is_part_of(&moves, &expected.moves),
        "{moves:?}\n{:?}",
        expected.moves
    );
}

#[tokio::test]
async fn random_batches_are_seen_as_they_were_made() {
    let batches = std::env::var(BATCHES_VARIABLE)
        .ok()
        .map_or(BATCHES, |count| count.parse().expect("a number"));
    let agent = Start::on_screen()
        .with(["--viewport", "1280x800"])
        .ready()
        .await;
    let mut recorder = Recorder::open(&agent).await;
    let mut dice = Dice(4);
    for _ in 0..batches.div_ceil(TOGETHER) {
        let mut expected = Expected::default();
        for _ in 0..TOGETHER {
            let actions = (0..=dice.below(4)).map(|_| random_action(&mut dice, &mut expected));
            perform(&agent, actions.collect()).await;
        }
        compare(&agent, &mut recorder, expected).await;
    }
    agent.stop().await;
}
