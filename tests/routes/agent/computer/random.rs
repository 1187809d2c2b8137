//! Random batches: the X server and a page receive exactly their events, in order.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::support::{
    agent::{Start, TestAgent},
    recorder::{Recorder, action, run_action, run_batch},
    xrecord::{Event, Input, XRecord},
};

/// The number of batches, unless the variable sets it.
const BATCHES: usize = 500;
const BATCHES_VARIABLE: &str = "BERTH_TEST_BATCHES";
/// The number of batches between two checks of the received events.
const BATCHES_PER_CHECK: usize = 50;
const NOTCH: i64 = 120;

/// A deterministic random number generator.
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

type Position = (i64, i64);

/// A movement of the pointer.
#[derive(Debug)]
enum Move {
    To(Position),
    /// On any path near the straight line between both positions.
    Along(Position, Position),
}

impl Move {
    /// Returns whether the pointer may pass this position.
    fn passes(&self, at: Position) -> bool {
        match self {
            Self::To(to) => *to == at,
            Self::Along(from, to) => {
                let gap = |a: Position, b: Position| ((a.0 - b.0) as f64).hypot((a.1 - b.1) as f64);
                gap(*from, at) + gap(at, *to) <= gap(*from, *to) * 1.1 + 4.0
            }
        }
    }
}

/// The sum of consecutive wheel events at one position with the same keys held.
#[derive(Debug, PartialEq)]
struct Wheel {
    at: Position,
    held: String,
    scrolled: (i64, i64),
}

/// An event that the X server must receive.
#[derive(Debug)]
enum ServerEvent {
    Move(Move),
    /// A button by its X11 number.
    Button(u8, bool),
    Key(bool),
}

/// The events that the actions must cause.
#[derive(Default)]
struct Expected {
    received: Vec<ServerEvent>,
    /// Button and key events as the page reports them: kind, button or key, for buttons the
    /// position, the held modifiers, and for buttons all pressed buttons.
    presses: Vec<Value>,
    /// Wheel events, each with the number of presses before it.
    wheel: Vec<(usize, Wheel)>,
    held: BTreeSet<&'static str>,
    buttons: i64,
    at: Position,
}

/// Modifiers in the order in which they are pressed: after Shift, Alt is another key, as on any PC
/// keyboard.
const MODIFIERS: [(&str, &str); 3] = [("Alt", "Alt"), ("ctrl", "Control"), ("Shift", "Shift")];
/// Modifiers in the order in which the page reports them.
const REPORTED_MODIFIERS: [&str; 3] = ["Shift", "Control", "Alt"];
/// A button's number for the page, its bit in `buttons`, and its X11 number.
type Button = (i64, i64, u8);
const BUTTONS: [(&str, Button); 5] = [
    ("remaining", (0, 1, 1)),
    ("middle", (1, 4, 2)),
    ("right", (2, 2, 3)),
    ("back", (3, 8, 8)),
    ("forward", (4, 16, 9)),
];
/// Excludes letters whose Ctrl shortcuts a page cannot intercept, and the one that starts the entry
/// of a code point with Ctrl and Shift.
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
        let names = REPORTED_MODIFIERS.into_iter();
        let held: Vec<&str> = names.filter(|name| self.held.contains(name)).collect();
        held.join("+")
    }

    fn key(&mut self, kind: &str, name: &str) {
        self.received.push(ServerEvent::Key(kind == "keydown"));
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

    fn move_to(&mut self, to: Position) {
        self.received.push(ServerEvent::Move(Move::To(to)));
        self.at = to;
    }

    fn move_smoothly(&mut self, to: Position) {
        let along = Move::Along(self.at, to);
        self.received.push(ServerEvent::Move(along));
        self.move_to(to);
    }

    /// A button event at the current position.
    fn button(&mut self, (number, counts, received): Button, down: bool) {
        self.received.push(ServerEvent::Button(received, down));
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

    fn wheel(&mut self, scrolled: (i64, i64)) {
        let (at, held) = (self.at, self.held());
        let wheel = Wheel { at, held, scrolled };
        for (notches, [back, forth]) in [(scrolled.1, [4, 5]), (scrolled.0, [6, 7])] {
            let number = if notches < 0 { back } else { forth };
            for _ in 0..notches.abs() / NOTCH {
                let notch = [true, false].map(|down| ServerEvent::Button(number, down));
                self.received.extend(notch);
            }
        }
        if scrolled != (0, 0) {
            self.wheel.push((self.presses.len(), wheel));
        }
    }

    /// Returns the name of the key with this letter, received the held modifiers.
    fn name(&self, letter: u8) -> String {
        let name = match letter {
            letter if !self.held.contains("Shift") => letter,
            digit @ b'0'..=b'9' => SHIFTED_DIGITS[usize::from(digit - b'0')],
            letter => letter.to_ascii_uppercase(),
        };
        char::from(name).to_string()
    }

    /// A key that types this character, with Shift if needed and not held.
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

/// Returns a position on the page, below the browser's own interface.
fn position(dice: &mut Dice) -> Position {
    (10 + dice.below(1250) as i64, 150 + dice.below(630) as i64)
}

/// Returns the positions of a straight line in that many steps.
fn line(from: Position, to: Position, steps: i64) -> impl Iterator<Item = Position> {
    let between = move |a: i64, b: i64, at: i64| {
        let part = at as f64 / steps as f64;
        (a as f64 + (b - a) as f64 * part).round() as i64
    };
    (1..=steps).map(move |at| (between(from.0, to.0, at), between(from.1, to.1, at)))
}

/// Returns some related actions and adds their events to `expected`.
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

/// Returns a press, a move and a release as separate actions.
fn random_drag_by_hand(dice: &mut Dice, expected: &mut Expected) -> Vec<Value> {
    let (name, button) = dice.one_of(&BUTTONS);
    let ends = [position(dice), position(dice), position(dice)];
    expected.move_to(ends[0]);
    expected.button(button, true);
    expected.move_to(ends[1]);
    expected.move_to(ends[2]);
    expected.button(button, false);
    let click = |(x, y): Position, how: &str| {
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
    let (x, y) = position(dice);
    let (name, button) = dice.one_of(&BUTTONS);
    let times = 1 + dice.below(3);
    expected.move_to((x, y));
    for _ in 0..times {
        expected.button(button, true);
        expected.button(button, false);
    }
    json!({"x": x, "y": y, "button": name, "num_clicks": times})
}

fn random_move(dice: &mut Dice, expected: &mut Expected) -> Value {
    let (x, y) = position(dice);
    let smooth = dice.below(4) == 0;
    if smooth {
        expected.move_smoothly((x, y));
    } else {
        expected.move_to((x, y));
    }
    json!({"x": x, "y": y, "smooth": smooth, "duration_ms": 1 + dice.below(60)})
}

fn random_keys(dice: &mut Dice, expected: &mut Expected) -> Value {
    let count = 1 + dice.below(3) as usize;
    if dice.below(4) == 0 {
        // Held together, each key once.
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
            let (name, reported) = dice.one_of(&NAMED);
            expected.tap(reported);
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
    let path: Vec<_> = (0..2 + dice.below(3)).map(|_| position(dice)).collect();
    let (name, button) = dice.one_of(&BUTTONS[..3]);
    let (smooth, steps) = (dice.below(4) == 0, 1 + dice.below(4) as i64);
    expected.move_to(path[0]);
    expected.button(button, true);
    for ends in path.windows(2) {
        if smooth {
            expected.move_smoothly(ends[1]);
        } else {
            line(ends[0], ends[1], steps).for_each(|at| expected.move_to(at));
        }
    }
    expected.button(button, false);
    json!({
        "path": path, "button": name, "delay": dice.below(3), "smooth": smooth, "duration_ms": 1 + dice.below(100),
        "steps_per_segment": steps, "step_delay_ms": dice.below(3),
    })
}

fn random_scroll(dice: &mut Dice, expected: &mut Expected) -> Value {
    let (x, y) = position(dice);
    let (across, down) = (dice.below(5) as i64 - 2, dice.below(5) as i64 - 2);
    expected.move_to((x, y));
    expected.wheel((across * NOTCH, down * NOTCH));
    json!({"x": x, "y": y, "delta_x": across, "delta_y": down})
}

/// The events that the page received.
#[derive(Default)]
struct PageEvents {
    presses: Vec<Value>,
    /// Positions with the pressed buttons.
    moves: Vec<(Position, i64)>,
    wheel: Vec<(usize, Wheel)>,
    /// The pointer's position before each button press, by the index of the press.
    before: Vec<(usize, Position)>,
}

impl PageEvents {
    fn of(events: &[Value], mut at: Position) -> Self {
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
                    scrolled: (number("dx"), number("dy")),
                }),
                _ => {}
            }
        }
        seen
    }

    /// Adds a wheel event. Chromium merges notches if it lags behind.
    fn turn(&mut self, wheel: Wheel) {
        match self.wheel.last_mut() {
            Some((_, last)) if (last.at, &last.held) == (wheel.at, &wheel.held) => {
                last.scrolled.0 += wheel.scrolled.0;
                last.scrolled.1 += wheel.scrolled.1;
            }
            _ => self.wheel.push((self.presses.len(), wheel)),
        }
    }

    fn scrolled(&self) -> (i64, i64) {
        let turns = || self.wheel.iter().map(|(_, wheel)| wheel.scrolled);
        (
            turns().map(|turn| turn.0).sum(),
            turns().map(|turn| turn.1).sum(),
        )
    }
}

/// Returns the events without auto-repeated keys.
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

/// Asserts that the X server received exactly the expected events, in order. The pointer was at
/// `at` before.
fn compare(events: &[Event], expected_event: &[ServerEvent], mut at: Position) {
    let mut received = without_repeats(events).enumerate().peekable();
    for (index, expected_event) in expected_event.iter().enumerate() {
        if let ServerEvent::Move(along @ Move::Along(_, to)) = expected_event {
            let is_on_path = |received: &(usize, Input)| matches!(received.1, Input::Move(x, y) if (x, y) != *to && along.passes((x, y)));
            while received.next_if(is_on_path).is_some() {}
            continue;
        }
        if let ServerEvent::Move(Move::To(to)) = expected_event {
            let is_there = |received: &(usize, Input)| received.1 == Input::Move(to.0, to.1);
            let mut arrived = at == *to;
            // A path that is slow at its end may stay there for a while.
            while received.next_if(is_there).is_some() {
                arrived = true;
            }
            assert!(
                arrived,
                "{index}: {expected_event:?}, not {:?}",
                received.peek()
            );
            at = *to;
            continue;
        }
        let found = received.next();
        let fits = match (expected_event, found.map(|(_, received)| received)) {
            (
                ServerEvent::Button(expected_event, expected_down),
                Some(Input::Button { number, down }),
            ) => (*expected_event, *expected_down) == (number, down),
            (ServerEvent::Key(expected_down), Some(Input::Key { down, .. })) => {
                *expected_down == down
            }
            _ => false,
        };
        assert!(fits, "{index}: {expected_event:?}, not {found:?}");
    }
    assert_eq!(received.next(), None);
}

/// Waits for all events of some batches and checks them. The pointer was at `at` before.
async fn check(
    agent: &TestAgent,
    (record, recorder): (&mut XRecord, &mut Recorder),
    mut expected: Expected,
    at: Position,
) {
    const LAST: &str = "F9";
    run_batch(agent, vec![action("press_key", json!({"keys": [LAST]}))]).await;
    expected.tap(LAST);
    let count = |expected_event: &&ServerEvent| matches!(expected_event, ServerEvent::Key(false));
    let releases = expected.received.iter().filter(count).count();
    let received = record
        .take_when("all that was received", |events| {
            let released = without_repeats(events)
                .filter(|received| matches!(received, Input::Key { down: false, .. }));
            released.count() >= releases
        })
        .await;
    compare(&received, &expected.received, at);
    let turns = || expected.wheel.iter().map(|(_, wheel)| wheel.scrolled);
    let scrolled: (i64, i64) = (
        turns().map(|turn| turn.0).sum(),
        turns().map(|turn| turn.1).sum(),
    );
    let events = recorder
        .take_when("all events", |events| {
            let last = |event: &Value| event["type"] == "keyup" && event["key"] == LAST;
            events.iter().any(last) && PageEvents::of(events, at).scrolled() == scrolled
        })
        .await;
    let seen = PageEvents::of(&events, at);
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
    // A program that lags behind receives only the last move, but before the next press.
    for (index, at) in &seen.before {
        let press = &seen.presses[*index];
        assert_eq!(
            json!([at.0, at.1]),
            json!([press[2], press[3]]),
            "event {index}"
        );
    }
    assert_eq!(seen.moves.last().map(|(at, _)| *at), Some(expected.at));
    // A page may receive the current position again.
    let again = Move::To(at);
    let moves = expected
        .received
        .iter()
        .filter_map(|expected_event| match expected_event {
            ServerEvent::Move(to) => Some(to),
            ServerEvent::Button(..) | ServerEvent::Key(_) => None,
        });
    let mut paths = std::iter::once(&again).chain(moves).peekable();
    for (index, (at, _)) in seen.moves.iter().enumerate() {
        let remaining = paths.clone().take(9).collect::<Vec<_>>();
        while paths.next_if(|path| !path.passes(*at)).is_some() {}
        let around = &seen.moves[index.saturating_sub(5)..=index];
        assert!(paths.peek().is_some(), "{around:?} {remaining:?}");
    }
    // Wheel events follow the presses before them. Later presses may overtake them if Chromium lags
    // behind.
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
async fn random_batches_cause_exactly_their_events() {
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
    for _ in 0..batches.div_ceil(BATCHES_PER_CHECK) {
        let mut expected = Expected {
            at,
            ..Expected::default()
        };
        for _ in 0..BATCHES_PER_CHECK {
            let actions =
                (0..=dice.below(4)).flat_map(|_| random_actions(&mut dice, &mut expected));
            run_batch(&agent, actions.collect()).await;
        }
        let before = std::mem::replace(&mut at, expected.at);
        check(&agent, (&mut record, &mut recorder), expected, before).await;
    }
    agent.stop().await;
}
