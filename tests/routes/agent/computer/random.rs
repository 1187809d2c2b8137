//! Random batches: the screen is given what they were made of, and a page sees it, in their order.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{
    agent::{Start, TestAgent},
    recorder::{Recorder, action, run_action, run_batch},
    xrecord::{Event, Input, XRecord},
};

/// How many batches there are; the variable asks for more.
const BATCHES: usize = 500;
const BATCHES_VARIABLE: &str = "BERTH_TEST_BATCHES";
/// Batches between two looks at what the page has seen.
const TOGETHER: usize = 50;
const NOTCH: i64 = 120;

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

type Place = (i64, i64);

/// How the pointer gets somewhere.
#[derive(Debug)]
enum Move {
    To(Place),
    /// On a way of its own from the one to the other, near the straight one.
    Along(Place, Place),
}

impl Move {
    /// Whether it may be there on the way.
    fn passes(&self, at: Place) -> bool {
        match self {
            Self::To(to) => *to == at,
            Self::Along(from, to) => {
                let gap = |a: Place, b: Place| ((a.0 - b.0) as f64).hypot((a.1 - b.1) as f64);
                gap(*from, at) + gap(at, *to) <= gap(*from, *to) * 1.1 + 4.0
            }
        }
    }
}

/// Notches at one place with the same keys held, all together.
#[derive(Debug, PartialEq)]
struct Wheel {
    at: Place,
    held: String,
    turned: (i64, i64),
}

/// What the screen is to be given.
#[derive(Debug)]
enum Wanted {
    Move(Move),
    /// With the screen's number.
    Button(u8, bool),
    Key(bool),
}

/// What is to come of what was asked for.
#[derive(Default)]
struct Expected {
    given: Vec<Wanted>,
    /// Buttons and keys: kind, which one, what is held, and with a button where the pointer is and all buttons that are down then.
    presses: Vec<Value>,
    /// Each with how many presses are before it.
    wheel: Vec<(usize, Wheel)>,
    held: BTreeSet<&'static str>,
    buttons: i64,
    at: Place,
}

/// In the order in which they are pressed: after Shift, Alt is another key, as on any keyboard of this kind.
const MODIFIERS: [(&str, &str); 3] = [("Alt", "Alt"), ("ctrl", "Control"), ("Shift", "Shift")];
/// In the order in which the page tells of them.
const TOLD: [&str; 3] = ["Shift", "Control", "Alt"];
/// A button's number for a page, what it counts in `buttons`, and its number for the screen.
type Button = (i64, i64, u8);
const BUTTONS: [(&str, Button); 5] = [
    ("left", (0, 1, 1)),
    ("middle", (1, 4, 2)),
    ("right", (2, 2, 3)),
    ("back", (3, 8, 8)),
    ("forward", (4, 16, 9)),
];
/// Without those that no page can keep from Chromium next to Ctrl, and the one with which Ctrl and Shift begin a character by its number.
const LETTERS: &[u8] = b"abcdefghijklmoprsvxyz0123456789";
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
        self.given.push(Wanted::Key(kind == "keydown"));
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

    fn go(&mut self, to: Place) {
        self.given.push(Wanted::Move(Move::To(to)));
        self.at = to;
    }

    fn go_smoothly(&mut self, to: Place) {
        let along = Move::Along(self.at, to);
        self.given.push(Wanted::Move(along));
        self.go(to);
    }

    /// Where the pointer is.
    fn button(&mut self, (number, counts, given): Button, down: bool) {
        self.given.push(Wanted::Button(given, down));
        self.buttons = if down {
            self.buttons | counts
        } else {
            self.buttons & !counts
        };
        let kind = if down { "mousedown" } else { "mouseup" };
        let (x, y) = self.at;
        let press = json!([kind, number, x, y, self.held(), self.buttons]);
        self.presses.push(press);
    }

    fn wheel(&mut self, turned: (i64, i64)) {
        let (at, held) = (self.at, self.held());
        let wheel = Wheel { at, held, turned };
        for (notches, [back, forth]) in [(turned.1, [4, 5]), (turned.0, [6, 7])] {
            let number = if notches < 0 { back } else { forth };
            for _ in 0..notches.abs() / NOTCH {
                let notch = [true, false].map(|down| Wanted::Button(number, down));
                self.given.extend(notch);
            }
        }
        if turned != (0, 0) {
            self.wheel.push((self.presses.len(), wheel));
        }
    }

    /// What a key with this on it is called, with what is held.
    fn name(&self, letter: u8) -> String {
        let name = match letter {
            letter if !self.held.contains("Shift") => letter,
            digit @ b'0'..=b'9' => SHIFTED_DIGITS[usize::from(digit - b'0')],
            letter => letter.to_ascii_uppercase(),
        };
        char::from(name).to_string()
    }

    /// A key that writes this; with Shift where it takes one and none is held.
    fn character(&mut self, letter: u8) {
        let shifted = letter.is_ascii_uppercase() || SHIFTED_DIGITS.contains(&letter);
        let own = shifted && !self.held.contains("Shift");
        if own {
            self.modifier("Shift", true);
        }
        self.tap(&self.name(letter));
        if own {
            self.modifier("Shift", false);
        }
    }
}

/// On the page, whatever Chromium has above it.
fn place(dice: &mut Dice) -> Place {
    (10 + dice.below(1250) as i64, 150 + dice.below(630) as i64)
}

/// The places of a straight way in so many steps.
fn line(from: Place, to: Place, steps: i64) -> impl Iterator<Item = Place> {
    let between = move |a: i64, b: i64, at: i64| {
        let part = at as f64 / steps as f64;
        (a as f64 + (b - a) as f64 * part).round() as i64
    };
    (1..=steps).map(move |at| (between(from.0, to.0, at), between(from.1, to.1, at)))
}

/// Some actions that belong together, and what the page is to see of them.
fn random_actions(dice: &mut Dice, expected: &mut Expected) -> Vec<Value> {
    let chosen = dice.below(100);
    match chosen {
        0..15 => return vec![random_text(dice, expected)],
        15..18 => return vec![action("sleep", json!({"duration_ms": dice.below(3)}))],
        18..20 => {
            let hidden = dice.below(2) == 0;
            return vec![action("set_cursor", json!({"hidden": hidden}))];
        }
        20..26 => return random_drag_by_hand(dice, expected),
        _ => {}
    }
    let held: Vec<_> = MODIFIERS
        .into_iter()
        .filter(|_| dice.below(5) == 0)
        .collect();
    let hold_keys: Vec<&str> = held.iter().map(|(key, _)| *key).collect();
    held.iter()
        .for_each(|(_, name)| expected.modifier(name, true));
    let (kind, mut fields) = match chosen {
        26..45 => ("click_mouse", random_click(dice, expected)),
        45..65 => ("move_mouse", random_move(dice, expected)),
        65..83 => ("press_key", random_keys(dice, expected)),
        83..97 => ("drag_mouse", random_drag(dice, expected)),
        _ => ("scroll", random_scroll(dice, expected)),
    };
    held.iter()
        .rev()
        .for_each(|(_, name)| expected.modifier(name, false));
    fields["hold_keys"] = json!(hold_keys);
    vec![action(kind, fields)]
}

fn random_text(dice: &mut Dice, expected: &mut Expected) -> Value {
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
    let text = String::from_utf8(text).unwrap();
    action("type_text", json!({"text": text, "delay": dice.below(3)}))
}

/// A press, a move and a release, each an action.
fn random_drag_by_hand(dice: &mut Dice, expected: &mut Expected) -> Vec<Value> {
    let (name, button) = dice.one_of(&BUTTONS);
    let ends = [place(dice), place(dice), place(dice)];
    expected.go(ends[0]);
    expected.button(button, true);
    expected.go(ends[1]);
    expected.go(ends[2]);
    expected.button(button, false);
    let click = |(x, y): Place, how: &str| {
        action(
            "click_mouse",
            json!({"x": x, "y": y, "button": name, "click_type": how}),
        )
    };
    let (x, y) = ends[1];
    let moved = action("move_mouse", json!({"x": x, "y": y}));
    vec![click(ends[0], "down"), moved, click(ends[2], "up")]
}

fn random_click(dice: &mut Dice, expected: &mut Expected) -> Value {
    let (x, y) = place(dice);
    let (name, button) = dice.one_of(&BUTTONS);
    let times = 1 + dice.below(3);
    expected.go((x, y));
    for _ in 0..times {
        expected.button(button, true);
        expected.button(button, false);
    }
    json!({"x": x, "y": y, "button": name, "num_clicks": times})
}

fn random_move(dice: &mut Dice, expected: &mut Expected) -> Value {
    let (x, y) = place(dice);
    let smooth = dice.below(4) == 0;
    if smooth {
        expected.go_smoothly((x, y));
    } else {
        expected.go((x, y));
    }
    json!({"x": x, "y": y, "smooth": smooth, "duration_ms": 1 + dice.below(60)})
}

fn random_keys(dice: &mut Dice, expected: &mut Expected) -> Value {
    let count = 1 + dice.below(3) as usize;
    if dice.below(4) == 0 {
        // Held together, each of them once.
        let from = dice.below(LETTERS.len() as u64) as usize;
        let letters: Vec<u8> = LETTERS
            .iter()
            .cycle()
            .skip(from)
            .take(count)
            .copied()
            .collect();
        let names: Vec<String> = letters
            .iter()
            .map(|letter| expected.name(*letter))
            .collect();
        names.iter().for_each(|name| expected.key("keydown", name));
        let released = names.iter().rev();
        released.for_each(|name| expected.key("keyup", name));
        let keys: Vec<String> = letters
            .iter()
            .map(|letter| char::from(*letter).into())
            .collect();
        return json!({"keys": keys, "duration": 1 + dice.below(20)});
    }
    let keys = (0..count).map(|_| {
        if dice.below(3) == 0 {
            let (name, told) = dice.one_of(&NAMED);
            expected.tap(told);
            name.to_owned()
        } else {
            let letter = dice.one_of(LETTERS);
            expected.character(letter);
            char::from(letter).to_string()
        }
    });
    json!({"keys": keys.collect::<Vec<String>>()})
}

fn random_drag(dice: &mut Dice, expected: &mut Expected) -> Value {
    let path: Vec<_> = (0..2 + dice.below(3)).map(|_| place(dice)).collect();
    let (name, button) = dice.one_of(&BUTTONS[..3]);
    let (smooth, steps) = (dice.below(4) == 0, 1 + dice.below(4) as i64);
    expected.go(path[0]);
    expected.button(button, true);
    for ends in path.windows(2) {
        if smooth {
            expected.go_smoothly(ends[1]);
        } else {
            line(ends[0], ends[1], steps).for_each(|at| expected.go(at));
        }
    }
    expected.button(button, false);
    json!({
        "path": path, "button": name, "delay": dice.below(3), "smooth": smooth, "duration_ms": 1 + dice.below(100),
        "steps_per_segment": steps, "step_delay_ms": dice.below(3),
    })
}

fn random_scroll(dice: &mut Dice, expected: &mut Expected) -> Value {
    let (x, y) = place(dice);
    let (across, down) = (dice.below(5) as i64 - 2, dice.below(5) as i64 - 2);
    expected.go((x, y));
    expected.wheel((across * NOTCH, down * NOTCH));
    json!({"x": x, "y": y, "delta_x": across, "delta_y": down})
}

/// What a page has seen.
#[derive(Default)]
struct Seen {
    presses: Vec<Value>,
    /// With the buttons that were down.
    moves: Vec<(Place, i64)>,
    wheel: Vec<(usize, Wheel)>,
    /// Where the pointer was told to be before each press of a button, by the number of that press.
    before: Vec<(usize, Place)>,
}

impl Seen {
    fn of(events: &[Value], mut at: Place) -> Self {
        let mut seen = Self::default();
        let mut buttons = 0;
        for event in events.iter().filter(|event| event["repeat"] != true) {
            let number = |name: &str| event[name].as_f64().unwrap() as i64;
            let held = &event["held"];
            match event["type"].as_str().unwrap() {
                kind @ ("mousedown" | "mouseup") => {
                    if kind == "mousedown" {
                        seen.before.push((seen.presses.len(), at));
                    }
                    buttons = number("buttons");
                    let (x, y) = (&event["x"], &event["y"]);
                    let press = json!([kind, event["button"], x, y, held, buttons]);
                    seen.presses.push(press);
                }
                kind @ ("keydown" | "keyup") => {
                    seen.presses.push(json!([kind, event["key"], held]));
                }
                "mousemove" => {
                    at = (number("x"), number("y"));
                    assert_eq!(number("buttons"), buttons, "{event}");
                    seen.moves.push((at, buttons));
                }
                "wheel" => seen.turn(Wheel {
                    at: (number("x"), number("y")),
                    held: held.as_str().unwrap().to_owned(),
                    turned: (number("dx"), number("dy")),
                }),
                _ => {}
            }
        }
        seen
    }

    /// Chromium tells of several notches as one where it is behind.
    fn turn(&mut self, wheel: Wheel) {
        match self.wheel.last_mut() {
            Some((_, last)) if (last.at, &last.held) == (wheel.at, &wheel.held) => {
                last.turned.0 += wheel.turned.0;
                last.turned.1 += wheel.turned.1;
            }
            _ => self.wheel.push((self.presses.len(), wheel)),
        }
    }

    fn turned(&self) -> (i64, i64) {
        let turns = || self.wheel.iter().map(|(_, wheel)| wheel.turned);
        (
            turns().map(|turn| turn.0).sum(),
            turns().map(|turn| turn.1).sum(),
        )
    }
}

/// All that was given but keys that repeat themselves because they are down for long.
fn without_repeats(events: &[Event]) -> impl Iterator<Item = Input> {
    let mut down = BTreeSet::new();
    events.iter().filter_map(move |event| {
        let is_new = match event.input {
            Input::Key { code, down: true } => down.insert(code),
            Input::Key { code, down: false } => {
                down.remove(&code);
                true
            }
            Input::Button { .. } | Input::Move(..) => true,
        };
        is_new.then_some(event.input)
    })
}

/// Whether the screen was given what it was to be given, all of it and nothing else, one after the other. The pointer was at `at` before.
fn compare(events: &[Event], wanted: &[Wanted], mut at: Place) {
    let mut given = without_repeats(events).enumerate().peekable();
    for (index, wanted) in wanted.iter().enumerate() {
        if let Wanted::Move(along @ Move::Along(_, to)) = wanted {
            let is_on_the_way = |given: &(usize, Input)| matches!(given.1, Input::Move(x, y) if (x, y) != *to && along.passes((x, y)));
            while given.next_if(is_on_the_way).is_some() {}
            continue;
        }
        if let Wanted::Move(Move::To(to)) = wanted {
            let is_there = |given: &(usize, Input)| given.1 == Input::Move(to.0, to.1);
            let mut came = at == *to;
            // A way that is slow at its end may be there for a while.
            while given.next_if(is_there).is_some() {
                came = true;
            }
            assert!(came, "{index}: {wanted:?}, not {:?}", given.peek());
            at = *to;
            continue;
        }
        let found = given.next();
        let fits = match (wanted, found.map(|(_, given)| given)) {
            (Wanted::Button(wanted, wanted_down), Some(Input::Button { number, down })) => {
                (*wanted, *wanted_down) == (number, down)
            }
            (Wanted::Key(wanted_down), Some(Input::Key { down, .. })) => *wanted_down == down,
            _ => false,
        };
        assert!(fits, "{index}: {wanted:?}, not {found:?}");
    }
    assert_eq!(given.next(), None);
}

/// Looks at what has come of some batches once that is all. The pointer was told to be at `at` before.
async fn check(
    agent: &TestAgent,
    (record, recorder): (&mut XRecord, &mut Recorder),
    mut expected: Expected,
    at: Place,
) {
    const LAST: &str = "F9";
    run_batch(agent, vec![action("press_key", json!({"keys": [LAST]}))]).await;
    expected.tap(LAST);
    let count = |wanted: &&Wanted| matches!(wanted, Wanted::Key(false));
    let releases = expected.given.iter().filter(count).count();
    let given = record
        .take_when("all that was given", |events| {
            let released = without_repeats(events)
                .filter(|given| matches!(given, Input::Key { down: false, .. }));
            released.count() >= releases
        })
        .await;
    compare(&given, &expected.given, at);
    let turns = || expected.wheel.iter().map(|(_, wheel)| wheel.turned);
    let turned: (i64, i64) = (
        turns().map(|turn| turn.0).sum(),
        turns().map(|turn| turn.1).sum(),
    );
    let events = recorder
        .take_when("all events", |events| {
            let last = |event: &Value| event["type"] == "keyup" && event["key"] == LAST;
            events.iter().any(last) && Seen::of(events, at).turned() == turned
        })
        .await;
    let seen = Seen::of(&events, at);
    if let Some(at) = (0..seen.presses.len().max(expected.presses.len()))
        .find(|at| seen.presses.get(*at) != expected.presses.get(*at))
    {
        let around = at.saturating_sub(3)..;
        panic!(
            "event {at}: seen {:?}\nexpected {:?}",
            seen.presses[around.clone()]
                .iter()
                .take(8)
                .collect::<Vec<_>>(),
            expected.presses[around].iter().take(8).collect::<Vec<_>>()
        );
    }
    // A program that is behind with moves is told of the last of them alone, but of that before anything is pressed.
    for (index, at) in &seen.before {
        let press = &seen.presses[*index];
        assert_eq!(
            json!([at.0, at.1]),
            json!([press[2], press[3]]),
            "event {index}"
        );
    }
    assert_eq!(seen.moves.last().map(|(at, _)| *at), Some(expected.at));
    // A page may be told again where the pointer is.
    let again = Move::To(at);
    let moves = expected.given.iter().filter_map(|wanted| match wanted {
        Wanted::Move(to) => Some(to),
        Wanted::Button(..) | Wanted::Key(_) => None,
    });
    let mut ways = std::iter::once(&again).chain(moves).peekable();
    for (index, (at, _)) in seen.moves.iter().enumerate() {
        let left = ways.clone().take(9).collect::<Vec<_>>();
        while ways.next_if(|way| !way.passes(*at)).is_some() {}
        let around = &seen.moves[index.saturating_sub(5)..=index];
        assert!(ways.peek().is_some(), "{around:?} {left:?}");
    }
    // They come after what was pressed before them; what is pressed next may overtake them where Chromium is behind.
    let wheel = |all: &[(usize, Wheel)]| {
        all.iter()
            .map(|(_, wheel)| format!("{wheel:?}"))
            .collect::<Vec<_>>()
    };
    assert_eq!(wheel(&seen.wheel), wheel(&expected.wheel));
    for ((after, wheel), (least, _)) in seen.wheel.iter().zip(&expected.wheel) {
        assert!(after >= least, "{wheel:?}");
    }
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
    let mut at = (100, 200);
    run_action(&agent, "move_mouse", json!({"x": at.0, "y": at.1})).await;
    let mut record = XRecord::on(&agent).await;
    for _ in 0..batches.div_ceil(TOGETHER) {
        let mut expected = Expected {
            at,
            ..Expected::default()
        };
        for _ in 0..TOGETHER {
            let actions =
                (0..=dice.below(4)).flat_map(|_| random_actions(&mut dice, &mut expected));
            run_batch(&agent, actions.collect()).await;
        }
        let before = std::mem::replace(&mut at, expected.at);
        check(&agent, (&mut record, &mut recorder), expected, before).await;
    }
    agent.stop().await;
}
