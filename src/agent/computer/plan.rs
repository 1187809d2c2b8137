//! From actions to steps: pure, so that all of a batch is looked at before any of it is done.

use std::time::Duration;

use super::path;
use crate::{
    api::{
        computer::{
            Action, ClickMouse, ClickType, DragMouse, HoldKeys, MouseButton, MoveMouse, PressKey,
            Scroll, SetCursor, Sleep, TypeText,
        },
        keys::Key,
    },
    system::x11::input::{Notch, Point, Size, Step},
};

/// What a batch may take, waits and pauses together.
pub const MAX_TIME: Duration = Duration::from_secs(600);
/// Steps of a batch at most; each character typed is one.
pub const MAX_STEPS: usize = 200_000;
/// For Chromium to scroll. It passes on the first notch and keeps the others until that has been dealt with; what comes after them, the release
/// of a held key or a click, would overtake them.
const SCROLLED: Duration = Duration::from_millis(50);
/// Of a drag: from point to point, and from step to step.
const STEPS_PER_SEGMENT: u32 = 10;
const STEP_DELAY: Duration = Duration::from_millis(50);

/// What is wrong with an action on this screen: with one of its fields, or with all of it where there is no field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    pub index: usize,
    pub field: Option<String>,
    pub what: String,
}

/// Whether the plan depends on where the pointer is before: a smooth move begins there.
pub fn wants_pointer(actions: &[Action]) -> bool {
    let wants = |action: &Action| match action {
        Action::MoveMouse(to) => Some(to.smooth.unwrap_or_default()),
        Action::ClickMouse(_) | Action::Scroll(_) | Action::DragMouse(_) => Some(false),
        Action::TypeText(_) | Action::PressKey(_) | Action::SetCursor(_) | Action::Sleep(_) => None,
    };
    actions.iter().find_map(wants).unwrap_or_default()
}

/// Plans all of it, the steps of each action in order, or says of each action that cannot be done what is wrong with it first. Where the
/// pointer is need not be known unless the plan [wants](wants_pointer) it.
pub fn plan(
    actions: &[&Action],
    screen: Size,
    pointer: Option<Point>,
) -> Result<Vec<Vec<Step>>, Vec<Problem>> {
    let mut planner = Planner {
        screen,
        pointer,
        steps: Vec::new(),
        taken: 0,
        time: Duration::ZERO,
    };
    let (mut planned, mut problems) = (Vec::with_capacity(actions.len()), Vec::new());
    for (index, action) in actions.iter().enumerate() {
        match planner.action(action) {
            Ok(steps) => planned.push(steps),
            Err((field, what)) => problems.push(Problem { index, field, what }),
        }
    }
    if problems.is_empty() {
        Ok(planned)
    } else {
        Err(problems)
    }
}

type Refusal = (Option<String>, String);

struct Planner {
    screen: Size,
    /// Where it will be by then, where that is known.
    pointer: Option<Point>,
    steps: Vec<Step>,
    /// Of steps and characters, so far.
    taken: usize,
    /// What the waits come to, so far.
    time: Duration,
}

impl Planner {
    fn action(&mut self, action: &Action) -> Result<Vec<Step>, Refusal> {
        match action {
            Action::ClickMouse(click) => self.click(click)?,
            Action::MoveMouse(to) => self.move_mouse(to)?,
            Action::TypeText(typing) => self.type_text(typing)?,
            Action::PressKey(press) => self.press_key(press)?,
            Action::Scroll(scroll) => self.scroll(scroll)?,
            Action::DragMouse(drag) => self.drag(drag)?,
            Action::SetCursor(SetCursor { hidden }) => {
                self.steps.push(Step::Cursor { hidden: *hidden });
            }
            Action::Sleep(Sleep { duration_ms }) => {
                let takes = duration_ms.millis();
                self.room(1, takes)?;
                self.wait(takes);
            }
        }
        Ok(std::mem::take(&mut self.steps))
    }

    fn click(&mut self, click: &ClickMouse) -> Result<(), Refusal> {
        let at = self.place("x", "y", click.x, click.y)?;
        let (button, how) = (
            click.button.unwrap_or_default(),
            click.click_type.unwrap_or_default(),
        );
        let times = click.num_clicks.map_or(1, |times| times.get());
        if times > 1 && how != ClickType::Click {
            let what = "must be 1 where click_type is not click";
            return Err((Some("num_clicks".to_owned()), what.to_owned()));
        }
        self.room(
            2 * times as usize + 1 + held(&click.hold_keys),
            Duration::ZERO,
        )?;
        self.holding(&click.hold_keys, |planner| {
            planner.go(at);
            match how {
                ClickType::Down => planner.button(button, true),
                ClickType::Up => planner.button(button, false),
                ClickType::Click => {
                    for _ in 0..times {
                        planner.button(button, true);
                        planner.button(button, false);
                    }
                }
            }
        });
        Ok(())
    }

    fn move_mouse(&mut self, to: &MoveMouse) -> Result<(), Refusal> {
        let at = self.place("x", "y", to.x, to.y)?;
        let takes = to.smooth.unwrap_or_default().then(|| {
            to.duration_ms.map_or_else(
                || path::duration(self.pointer.unwrap_or(at), at),
                |takes| takes.millis(),
            )
        });
        let takes = takes.unwrap_or_default();
        self.room(2 * path::frames(takes) + held(&to.hold_keys), takes)?;
        self.holding(&to.hold_keys, |planner| {
            if takes.is_zero() {
                planner.go(at);
            } else {
                planner.go_smoothly(at, takes);
            }
        });
        Ok(())
    }

    fn type_text(&mut self, typing: &TypeText) -> Result<(), Refusal> {
        let delay = typing.delay.map_or(Duration::ZERO, |delay| delay.millis());
        let characters = typing.text.keys().count();
        let pauses = u32::try_from(characters.saturating_sub(1)).unwrap_or(u32::MAX);
        self.room(characters, delay * pauses)?;
        self.time += delay * pauses;
        self.steps.push(Step::Type {
            text: typing.text.clone(),
            delay,
        });
        Ok(())
    }

    fn press_key(&mut self, press: &PressKey) -> Result<(), Refusal> {
        let takes = press
            .duration
            .map_or(Duration::ZERO, |takes| takes.millis());
        let chords = press.keys.chords();
        let keys: usize = chords.iter().map(|chord| chord.keys().len()).sum();
        self.room(2 * keys + 1 + held(&press.hold_keys), takes)?;
        let others: Vec<Key> = press.hold_keys.keys().collect();
        self.holding(&press.hold_keys, |planner| {
            if takes.is_zero() {
                for chord in chords {
                    let pressed = planner.press(chord.keys().iter().copied(), &others);
                    planner.release(pressed);
                }
            } else {
                let all = chords.iter().flat_map(|chord| chord.keys().iter().copied());
                let pressed = planner.press(all, &others);
                planner.wait(takes);
                planner.release(pressed);
            }
        });
        Ok(())
    }

    fn scroll(&mut self, scroll: &Scroll) -> Result<(), Refusal> {
        let at = self.place("x", "y", scroll.x, scroll.y)?;
        let (across, down) = (scroll.delta_x.get(), scroll.delta_y.get());
        let notches = across.unsigned_abs() + down.unsigned_abs();
        self.room(notches as usize + 2 + held(&scroll.hold_keys), SCROLLED)?;
        self.holding(&scroll.hold_keys, |planner| {
            planner.go(at);
            for (delta, backwards, forwards) in [
                (down, Notch::Up, Notch::Down),
                (across, Notch::Left, Notch::Right),
            ] {
                let notch = if delta < 0 { backwards } else { forwards };
                let turns = std::iter::repeat_n(Step::Wheel(notch), delta.unsigned_abs() as usize);
                planner.steps.extend(turns);
            }
            planner.wait(SCROLLED);
        });
        Ok(())
    }

    fn drag(&mut self, drag: &DragMouse) -> Result<(), Refusal> {
        let mut points = Vec::with_capacity(drag.path.points().len());
        for (at, (x, y)) in drag.path.points().iter().enumerate() {
            let field = |side: usize| format!("path[{at}][{side}]");
            points.push(self.place(&field(0), &field(1), *x, *y)?);
        }
        let delay = drag.delay.map_or(Duration::ZERO, |delay| delay.millis());
        let way = self.way(drag, &points);
        self.room(way.steps + 4 + held(&drag.hold_keys), delay + way.takes)?;
        let button: MouseButton = drag.button.unwrap_or_default().into();
        self.holding(&drag.hold_keys, |planner| {
            planner.go(points[0]);
            planner.button(button, true);
            planner.wait(delay);
            for (at, ends) in points.windows(2).enumerate() {
                match &way.smooth {
                    Some(times) => planner.go_smoothly(ends[1], times[at]),
                    None => {
                        for point in path::line(ends[0], ends[1], way.per_segment) {
                            planner.wait(way.step_delay);
                            planner.go(point);
                        }
                    }
                }
            }
            planner.button(button, false);
        });
        Ok(())
    }

    fn way(&self, drag: &DragMouse, points: &[Point]) -> Way {
        let segments = || points.windows(2).map(|ends| (ends[0], ends[1]));
        if drag.smooth.unwrap_or_default() {
            let by_hand: Vec<Duration> = segments().map(|(a, b)| path::duration(a, b)).collect();
            let natural: Duration = by_hand.iter().sum();
            let takes = drag.duration_ms.map_or(natural, |takes| takes.millis());
            let scale = takes.as_secs_f64() / natural.as_secs_f64();
            let times: Vec<_> = by_hand
                .into_iter()
                .map(|time| time.mul_f64(scale))
                .collect();
            return Way {
                steps: times.iter().map(|time| 2 * path::frames(*time)).sum(),
                takes: times.iter().sum(),
                smooth: Some(times),
                per_segment: 0,
                step_delay: Duration::ZERO,
            };
        }
        let per_segment = drag
            .steps_per_segment
            .map_or(STEPS_PER_SEGMENT, |steps| steps.get());
        let step_delay = drag
            .step_delay_ms
            .map_or(STEP_DELAY, |delay| delay.millis());
        let steps = per_segment * u32::try_from(points.len() - 1).unwrap_or(u32::MAX);
        Way {
            steps: 2 * steps as usize,
            takes: step_delay * steps,
            smooth: None,
            per_segment,
            step_delay,
        }
    }

    /// A place on the screen; the first of its sides that is off it is told.
    fn place(&self, x_field: &str, y_field: &str, x: i64, y: i64) -> Result<Point, Refusal> {
        let within = |field: &str, value: i64, side: u32| {
            let value = i32::try_from(value).ok();
            value
                .filter(|value| (0..i64::from(side)).contains(&i64::from(*value)))
                .ok_or_else(|| {
                    let last = side.saturating_sub(1);
                    let what = format!("is off the screen: must be from 0 to {last}");
                    (Some(field.to_owned()), what)
                })
        };
        Ok(Point {
            x: within(x_field, x, self.screen.width)?,
            y: within(y_field, y, self.screen.height)?,
        })
    }

    /// Whether so many more steps and so much more time are within the bounds.
    fn room(&mut self, steps: usize, time: Duration) -> Result<(), Refusal> {
        let taken = self.taken.saturating_add(steps);
        if taken > MAX_STEPS {
            let what = format!("is more than the {MAX_STEPS} steps that a batch may have");
            return Err((None, what));
        }
        if self.time + time > MAX_TIME {
            let seconds = MAX_TIME.as_secs();
            return Err((
                None,
                format!("is beyond the {seconds} s that a batch may take"),
            ));
        }
        // What is refused takes nothing from those after it.
        self.taken = taken;
        Ok(())
    }

    fn go(&mut self, to: Point) {
        self.pointer = Some(to);
        self.steps.push(Step::Move(to));
    }

    fn go_smoothly(&mut self, to: Point, takes: Duration) {
        let (from, screen) = (self.pointer.unwrap_or(to), self.screen);
        for (wait, point) in path::curve(from, to, takes, screen) {
            self.wait(wait);
            // A hand that is slow stays where it is for a while.
            if Some(point) != self.pointer || point == to {
                self.go(point);
            }
        }
    }

    fn button(&mut self, button: MouseButton, down: bool) {
        self.steps.push(Step::Button { button, down });
    }

    fn wait(&mut self, time: Duration) {
        if time.is_zero() {
            return;
        }
        self.time += time;
        match self.steps.last_mut() {
            Some(Step::Wait(before)) => *before += time,
            _ => self.steps.push(Step::Wait(time)),
        }
    }

    fn holding(&mut self, keys: &HoldKeys, act: impl FnOnce(&mut Self)) {
        let held = self.press(keys.keys(), &[]);
        act(self);
        self.release(held);
    }

    /// Presses the keys that are not held already, and returns them.
    fn press(&mut self, keys: impl Iterator<Item = Key>, held: &[Key]) -> Vec<Key> {
        let mut pressed: Vec<Key> = Vec::new();
        for key in keys {
            if !held.contains(&key) && !pressed.contains(&key) {
                self.steps.push(Step::Key { key, down: true });
                pressed.push(key);
            }
        }
        pressed
    }

    fn release(&mut self, keys: Vec<Key>) {
        let released = keys.into_iter().rev();
        self.steps
            .extend(released.map(|key| Step::Key { key, down: false }));
    }
}

/// Steps to press and release them.
fn held(keys: &HoldKeys) -> usize {
    2 * keys.keys().count()
}

/// How a drag goes.
struct Way {
    steps: usize,
    takes: Duration,
    /// What each segment takes, of a smooth one.
    smooth: Option<Vec<Duration>>,
    per_segment: u32,
    step_delay: Duration,
}

#[cfg(test)]
mod tests {
    use deserr::deserialize;
    use proptest::{prelude::*, sample::select};
    use serde_json::json;

    use super::*;
    use crate::api::computer::Problem as Unreadable;

    const SCREEN: Size = Size {
        width: 1280,
        height: 800,
    };

    fn actions() -> impl Strategy<Value = Vec<Action>> {
        let kinds = [
            json!({"type": "move_mouse", "move_mouse": {"x": 900, "y": 300}}),
            json!({"type": "move_mouse", "move_mouse": {"x": 9, "y": 3, "smooth": true}}),
            json!({"type": "move_mouse", "move_mouse": {"x": 400, "y": 300, "smooth": true, "duration_ms": 200}}),
            json!({"type": "click_mouse", "click_mouse": {"x": 5, "y": 6}}),
            json!({"type": "scroll", "scroll": {"x": 7, "y": 8, "delta_y": 1}}),
            json!({"type": "drag_mouse", "drag_mouse": {"path": [[1, 2], [300, 400]], "smooth": true}}),
            json!({"type": "press_key", "press_key": {"keys": ["a"]}}),
            json!({"type": "sleep", "sleep": {"duration_ms": 1}}),
        ];
        let read = |action| deserialize::<Action, _, Unreadable>(action).unwrap();
        prop::collection::vec(select(kinds.to_vec()).prop_map(read), 1..5)
    }

    proptest! {
        #[test]
        fn where_the_pointer_is_matters_only_where_that_is_wanted(actions in actions(), x in 0..1280, y in 0..800) {
            let refs: Vec<&Action> = actions.iter().collect();
            let known = plan(&refs, SCREEN, Some(Point { x, y })).unwrap();
            let unknown = plan(&refs, SCREEN, None).unwrap();
            prop_assert!(wants_pointer(&actions) || known == unknown);
        }
    }

    #[test]
    fn what_is_too_much_is_told_of_and_takes_nothing_from_what_fits() {
        let read = |action| deserialize::<Action, _, Unreadable>(action).unwrap();
        let text = "a".repeat(65_536);
        let typing = || read(json!({"type": "type_text", "type_text": {"text": text}}));
        let click = read(json!({"type": "click_mouse", "click_mouse": {"x": 5, "y": 6}}));
        let batch = [typing(), typing(), typing(), typing(), click];
        let refs: Vec<&Action> = batch.iter().collect();
        let problems = plan(&refs, SCREEN, None).unwrap_err();
        let places: Vec<usize> = problems.iter().map(|problem| problem.index).collect();
        assert_eq!(places, [3], "{problems:?}");
    }

    #[test]
    fn a_smooth_move_begins_where_the_pointer_is() {
        let to = json!({"x": 9, "y": 3, "smooth": true});
        let action = json!({"type": "move_mouse", "move_mouse": to});
        let action = deserialize::<Action, _, Unreadable>(action).unwrap();
        assert!(wants_pointer(std::slice::from_ref(&action)));
        let from = |x| plan(&[&action], SCREEN, Some(Point { x, y: 9 })).unwrap();
        assert_ne!(from(10), from(600));
    }
}
