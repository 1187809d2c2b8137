//! Random batches: the X server and a page receive exactly their events, in order.

use std::collections::BTreeSet;

use proptest::{
    bool::weighted,
    collection::vec,
    prelude::*,
    sample::select,
    strategy::ValueTree,
    test_runner::{Config, RngSeed, TestRunner},
};
use serde_json::{Value, json};

use crate::support::{
    agent::{Start, TestAgent},
    recorder::{Recorder, action, run_action, run_batch},
    xrecord::{Event, Input, XRecord},
};

/// The number of batches, unless the variable sets it.
const BATCHES: usize = 500;
const BATCHES_VARIABLE: &str = "BERTH_TEST_BATCHES";
/// The default seed of the generator.
const SEED: u64 = 4;
const SEED_VARIABLE: &str = "PROPTEST_RNG_SEED";
/// The number of batches between two checks of the received events.
const BATCHES_PER_CHECK: usize = 50;
const NOTCH: i64 = 120;

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
    ("left", (0, 1, 1)),
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

    /// Returns the name of the key with this letter while the modifiers are held.
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

/// Returns the positions of a straight line in that many steps.
fn line(from: Position, to: Position, steps: i64) -> impl Iterator<Item = Position> {
    let between = move |a: i64, b: i64, at: i64| {
        let part = at as f64 / steps as f64;
        (a as f64 + (b - a) as f64 * part).round() as i64
    };
    (1..=steps).map(move |at| (between(from.0, to.0, at), between(from.1, to.1, at)))
}

/// An element of a random batch, of one or several actions.
#[derive(Clone, Debug)]
enum Element {
    Text {
        letters: Vec<u8>,
        delay_ms: u64,
    },
    Sleep {
        duration_ms: u64,
    },
    SetCursor {
        hidden: bool,
    },
    /// A press, a move and a release, each an action.
    DragByHand {
        button: (&'static str, Button),
        ends: [Position; 3],
    },
    Holding {
        modifiers: Vec<(&'static str, &'static str)>,
        action: Action,
    },
}

/// An action that can hold modifiers.
#[derive(Clone, Debug)]
enum Action {
    Click {
        at: Position,
        button: (&'static str, Button),
        count: usize,
    },
    Move {
        to: Position,
        smooth: bool,
        duration_ms: u64,
    },
    /// Keys one after the other.
    Keys(Vec<Key>),
    /// Keys held together, each of them once.
    Chord {
        letters: Vec<u8>,
        duration_ms: u64,
    },
    Drag {
        path: Vec<Position>,
        button: (&'static str, Button),
        smooth: bool,
        steps: i64,
        duration_ms: u64,
        delays_ms: (u64, u64),
    },
    Scroll {
        at: Position,
        notches: (i64, i64),
    },
}

#[derive(Clone, Debug)]
enum Key {
    Letter(u8),
    Named(&'static str, &'static str),
}

/// Returns positions on the page, below Chromium's own controls.
fn position() -> impl Strategy<Value = Position> {
    (10..1260_i64, 150..780_i64)
}

fn letter() -> impl Strategy<Value = u8> {
    select(LETTERS)
}

/// Returns `true` in one of `count` cases.
fn one_in(count: u32) -> impl Strategy<Value = bool> {
    weighted(1.0 / f64::from(count))
}

fn any_button() -> impl Strategy<Value = (&'static str, Button)> {
    select(BUTTONS.to_vec())
}

/// Returns the batches of one comparison.
fn batches() -> impl Strategy<Value = Vec<Vec<Element>>> {
    vec(vec(element(), 1..=5), BATCHES_PER_CHECK)
}

fn element() -> impl Strategy<Value = Element> {
    let upper_or_lower = (letter(), one_in(3)).prop_map(|(letter, upper)| {
        if upper {
            letter.to_ascii_uppercase()
        } else {
            letter
        }
    });
    let text = (vec(upper_or_lower, 0..6), 0..3_u64)
        .prop_map(|(letters, delay_ms)| Element::Text { letters, delay_ms });
    let sleep = (0..3_u64).prop_map(|duration_ms| Element::Sleep { duration_ms });
    let set_cursor = any::<bool>().prop_map(|hidden| Element::SetCursor { hidden });
    let drag_by_hand = (any_button(), [position(), position(), position()])
        .prop_map(|(button, ends)| Element::DragByHand { button, ends });
    let holding = ([one_in(5), one_in(5), one_in(5)], held_action()).prop_map(|(held, action)| {
        let modifiers = MODIFIERS.into_iter().zip(held);
        Element::Holding {
            modifiers: modifiers
                .filter_map(|(modifier, is_held)| is_held.then_some(modifier))
                .collect(),
            action,
        }
    });
    prop_oneof![
        15 => text,
        3 => sleep,
        2 => set_cursor,
        6 => drag_by_hand,
        74 => holding,
    ]
}

fn held_action() -> impl Strategy<Value = Action> {
    let click = (position(), any_button(), 1..=3_usize)
        .prop_map(|(at, button, count)| Action::Click { at, button, count });
    let moved =
        (position(), one_in(4), 1..=60_u64).prop_map(|(to, smooth, duration_ms)| Action::Move {
            to,
            smooth,
            duration_ms,
        });
    let key = prop_oneof![
        1 => select(NAMED.to_vec()).prop_map(|(name, page_name)| Key::Named(name, page_name)),
        2 => letter().prop_map(Key::Letter),
    ];
    let chord =
        (0..LETTERS.len(), 1..=3_usize, 1..=20_u64).prop_map(|(first, count, duration_ms)| {
            let letters = LETTERS.iter().cycle().skip(first).take(count);
            Action::Chord {
                letters: letters.copied().collect(),
                duration_ms,
            }
        });
    let keys = prop_oneof![1 => chord, 3 => vec(key, 1..=3).prop_map(Action::Keys)];
    let drag = (
        vec(position(), 2..=4),
        select(BUTTONS[..3].to_vec()),
        one_in(4),
        1..=4_i64,
        1..=100_u64,
        (0..3_u64, 0..3_u64),
    )
        .prop_map(
            |(path, button, smooth, steps, duration_ms, delays_ms)| Action::Drag {
                path,
                button,
                smooth,
                steps,
                duration_ms,
                delays_ms,
            },
        );
    let scroll = (position(), (-2..=2_i64, -2..=2_i64))
        .prop_map(|(at, notches)| Action::Scroll { at, notches });
    prop_oneof![19 => click, 20 => moved, 18 => keys, 14 => drag, 3 => scroll]
}

impl Element {
    /// Adds what the screen and the page are expected to see; returns the actions of the request.
    fn apply(&self, expected: &mut Expected) -> Vec<Value> {
        match self {
            Self::Text { letters, delay_ms } => {
                letters
                    .iter()
                    .for_each(|letter| expected.character(*letter));
                let text = String::from_utf8(letters.clone()).unwrap();
                vec![action(
                    "type_text",
                    json!({"text": text, "delay": delay_ms}),
                )]
            }
            Self::Sleep { duration_ms } => {
                vec![action("sleep", json!({"duration_ms": duration_ms}))]
            }
            Self::SetCursor { hidden } => vec![action("set_cursor", json!({"hidden": hidden}))],
            Self::DragByHand {
                button: (name, button),
                ends,
            } => {
                expected.move_to(ends[0]);
                expected.button(*button, true);
                expected.move_to(ends[1]);
                expected.move_to(ends[2]);
                expected.button(*button, false);
                let click = |(x, y): Position, click_type: &str| {
                    action(
                        "click_mouse",
                        json!({"x": x, "y": y, "button": name, "click_type": click_type}),
                    )
                };
                let (x, y) = ends[1];
                let moved = action("move_mouse", json!({"x": x, "y": y}));
                vec![click(ends[0], "down"), moved, click(ends[2], "up")]
            }
            Self::Holding {
                modifiers,
                action: held_action,
            } => {
                modifiers
                    .iter()
                    .for_each(|(_, name)| expected.modifier(name, true));
                let (kind, mut fields) = held_action.apply(expected);
                let released = modifiers.iter().rev();
                released.for_each(|(_, name)| expected.modifier(name, false));
                let hold_keys: Vec<&str> = modifiers.iter().map(|(key, _)| *key).collect();
                fields["hold_keys"] = json!(hold_keys);
                vec![action(kind, fields)]
            }
        }
    }
}

impl Action {
    /// Adds what is expected; returns the action's type and fields.
    fn apply(&self, expected: &mut Expected) -> (&'static str, Value) {
        match self {
            Self::Click {
                at: (x, y),
                button: (name, button),
                count,
            } => {
                expected.move_to((*x, *y));
                for _ in 0..*count {
                    expected.button(*button, true);
                    expected.button(*button, false);
                }
                let fields = json!({"x": x, "y": y, "button": name, "num_clicks": count});
                ("click_mouse", fields)
            }
            Self::Move {
                to: (x, y),
                smooth,
                duration_ms,
            } => {
                if *smooth {
                    expected.move_smoothly((*x, *y));
                } else {
                    expected.move_to((*x, *y));
                }
                let fields = json!({"x": x, "y": y, "smooth": smooth, "duration_ms": duration_ms});
                ("move_mouse", fields)
            }
            Self::Keys(keys) => {
                let names = keys.iter().map(|key| match key {
                    Key::Named(name, page_name) => {
                        expected.tap(page_name);
                        (*name).to_owned()
                    }
                    Key::Letter(letter) => {
                        expected.character(*letter);
                        char::from(*letter).to_string()
                    }
                });
                ("press_key", json!({"keys": names.collect::<Vec<String>>()}))
            }
            Self::Chord {
                letters,
                duration_ms,
            } => {
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
                ("press_key", json!({"keys": keys, "duration": duration_ms}))
            }
            Self::Drag {
                path,
                button: (name, button),
                smooth,
                steps,
                duration_ms,
                delays_ms: (delay, step_delay),
            } => {
                expected.move_to(path[0]);
                expected.button(*button, true);
                for ends in path.windows(2) {
                    if *smooth {
                        expected.move_smoothly(ends[1]);
                    } else {
                        line(ends[0], ends[1], *steps).for_each(|at| expected.move_to(at));
                    }
                }
                expected.button(*button, false);
                let fields = json!({
                    "path": path, "button": name, "delay": delay, "smooth": smooth,
                    "duration_ms": duration_ms, "steps_per_segment": steps,
                    "step_delay_ms": step_delay,
                });
                ("drag_mouse", fields)
            }
            Self::Scroll {
                at: (x, y),
                notches: (across, down),
            } => {
                expected.move_to((*x, *y));
                expected.wheel((across * NOTCH, down * NOTCH));
                let fields = json!({"x": x, "y": y, "delta_x": across, "delta_y": down});
                ("scroll", fields)
            }
        }
    }
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
fn compare(events: &[Event], expected: &[ServerEvent], mut at: Position) {
    let mut received = without_repeats(events).enumerate().peekable();
    for (index, expected_event) in expected.iter().enumerate() {
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
                ServerEvent::Button(expected_number, expected_down),
                Some(Input::Button { number, down }),
            ) => (*expected_number, *expected_down) == (number, down),
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
    let is_release = |event: &&ServerEvent| matches!(event, ServerEvent::Key(false));
    let releases = expected.received.iter().filter(is_release).count();
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
    let moves = expected.received.iter().filter_map(|event| match event {
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
    let count = std::env::var(BATCHES_VARIABLE)
        .ok()
        .map_or(BATCHES, |count| count.parse().expect("a number"));
    let agent = Start::on_screen()
        .with(["--viewport", "1280x800"])
        .ready()
        .await;
    let mut recorder = Recorder::open(&agent).await;
    // Printed when the test fails. The variable repeats a run.
    let seed = std::env::var(SEED_VARIABLE)
        .ok()
        .map_or(SEED, |seed| seed.parse().expect("a number"));
    println!("{SEED_VARIABLE}={seed}");
    let mut generator = TestRunner::new(Config {
        rng_seed: RngSeed::Fixed(seed),
        ..Config::default()
    });
    let mut at = (100, 200);
    run_action(&agent, "move_mouse", json!({"x": at.0, "y": at.1})).await;
    let mut record = XRecord::on(&agent).await;
    for _ in 0..count.div_ceil(BATCHES_PER_CHECK) {
        let mut expected = Expected {
            at,
            ..Expected::default()
        };
        let tree = batches().new_tree(&mut generator).expect("batches");
        for batch in tree.current() {
            let actions = batch
                .iter()
                .flat_map(|element| element.apply(&mut expected))
                .collect();
            run_batch(&agent, actions).await;
        }
        let before = std::mem::replace(&mut at, expected.at);
        check(&agent, (&mut record, &mut recorder), expected, before).await;
    }
    agent.stop().await;
}
