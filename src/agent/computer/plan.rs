//! Plans the steps of a batch of actions. Planning is pure, so that a batch is validated completely
//! before any of it is played.

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

/// The maximum total duration of a batch's waits.
const MAX_DURATION: Duration = Duration::from_secs(600);
/// The maximum number of steps of a batch. Each typed character is one.
const MAX_STEPS: usize = 200_000;
/// The delay between a scroll and other input. Chromium forwards the first notch and holds the
/// others back until the page has processed it; later input, such as a click or the release of a
/// held key, would overtake them.
const SCROLL_DELAY: Duration = Duration::from_millis(50);
/// The defaults of a drag that is not smooth.
const STEPS_PER_SEGMENT: u32 = 10;
const DRAG_STEP_DELAY: Duration = Duration::from_millis(50);

/// The first error of an action on this screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlanError {
    pub(super) index: usize,
    /// `None` if the error concerns the complete action.
    pub(super) field: Option<String>,
    pub(super) message: String,
}

/// Returns whether the plan depends on the pointer's initial position, as for a smooth move.
pub(super) fn needs_pointer(actions: &[Action]) -> bool {
    let needs = |action: &Action| match action {
        Action::MoveMouse(to) => Some(to.smooth.unwrap_or_default()),
        Action::ClickMouse(_) | Action::Scroll(_) | Action::DragMouse(_) => Some(false),
        Action::TypeText(_) | Action::PressKey(_) | Action::SetCursor(_) | Action::Sleep(_) => None,
    };
    actions.iter().find_map(needs).unwrap_or_default()
}

/// Returns the steps of each action, or the first error of each action that is not possible.
/// `pointer` may be `None` unless the actions [need it](needs_pointer).
pub(super) fn plan(
    actions: &[&Action],
    screen: Size,
    pointer: Option<Point>,
) -> Result<Vec<Vec<Step>>, Vec<PlanError>> {
    let mut planner = Planner {
        screen,
        pointer,
        steps: Vec::new(),
        step_count: 0,
        duration: Duration::ZERO,
    };
    let (mut planned, mut errors) = (Vec::with_capacity(actions.len()), Vec::new());
    for (index, action) in actions.iter().enumerate() {
        match planner.action(action) {
            Ok(steps) => planned.push(steps),
            Err(ActionError { field, message }) => errors.push(PlanError {
                index,
                field,
                message,
            }),
        }
    }
    if errors.is_empty() {
        Ok(planned)
    } else {
        Err(errors)
    }
}

/// An error of the action that is being planned.
struct ActionError {
    field: Option<String>,
    message: String,
}

impl ActionError {
    fn action(message: String) -> Self {
        Self {
            field: None,
            message,
        }
    }

    fn field(field: &str, message: impl Into<String>) -> Self {
        Self {
            field: Some(field.to_owned()),
            message: message.into(),
        }
    }
}

struct Planner {
    screen: Size,
    /// The pointer's position after the steps planned so far, if known.
    pointer: Option<Point>,
    steps: Vec<Step>,
    /// The number of steps reserved so far.
    step_count: usize,
    /// The duration of the waits planned so far.
    duration: Duration,
}

impl Planner {
    fn action(&mut self, action: &Action) -> Result<Vec<Step>, ActionError> {
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
                let duration = duration_ms.millis();
                self.reserve(1, duration)?;
                self.wait(duration);
            }
        }
        Ok(std::mem::take(&mut self.steps))
    }

    fn click(&mut self, click: &ClickMouse) -> Result<(), ActionError> {
        let position = self.position("x", "y", click.x, click.y)?;
        let (button, click_type) = (
            click.button.unwrap_or_default(),
            click.click_type.unwrap_or_default(),
        );
        let times = click.num_clicks.map_or(1, |times| times.get());
        if times > 1 && click_type != ClickType::Click {
            let message = "must be 1 unless click_type is click";
            return Err(ActionError::field("num_clicks", message));
        }
        self.reserve(
            2 * times as usize + 1 + key_steps(&click.hold_keys),
            Duration::ZERO,
        )?;
        self.with_held_keys(&click.hold_keys, |planner| {
            planner.move_to(position);
            match click_type {
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

    fn move_mouse(&mut self, to: &MoveMouse) -> Result<(), ActionError> {
        let position = self.position("x", "y", to.x, to.y)?;
        let duration = to.smooth.unwrap_or_default().then(|| {
            to.duration_ms.map_or_else(
                || path::duration(self.pointer.unwrap_or(position), position),
                |duration| duration.millis(),
            )
        });
        let duration = duration.unwrap_or_default();
        self.reserve(
            2 * path::frame_count(duration) + key_steps(&to.hold_keys),
            duration,
        )?;
        self.with_held_keys(&to.hold_keys, |planner| {
            if duration.is_zero() {
                planner.move_to(position);
            } else {
                planner.move_smoothly(position, duration);
            }
        });
        Ok(())
    }

    fn type_text(&mut self, typing: &TypeText) -> Result<(), ActionError> {
        let delay = typing.delay.map_or(Duration::ZERO, |delay| delay.millis());
        let characters = typing.text.keys().count();
        let delays = u32::try_from(characters.saturating_sub(1)).unwrap_or(u32::MAX);
        self.reserve(characters, delay * delays)?;
        self.duration += delay * delays;
        self.steps.push(Step::Type {
            text: typing.text.clone(),
            delay,
        });
        Ok(())
    }

    fn press_key(&mut self, press: &PressKey) -> Result<(), ActionError> {
        let duration = press
            .duration
            .map_or(Duration::ZERO, |duration| duration.millis());
        let chords = press.keys.chords();
        let keys: usize = chords.iter().map(|chord| chord.keys().len()).sum();
        self.reserve(2 * keys + 1 + key_steps(&press.hold_keys), duration)?;
        let held: Vec<Key> = press.hold_keys.keys().collect();
        self.with_held_keys(&press.hold_keys, |planner| {
            if duration.is_zero() {
                for chord in chords {
                    let pressed = planner.press(chord.keys().iter().copied(), &held);
                    planner.release(pressed);
                }
            } else {
                let all = chords.iter().flat_map(|chord| chord.keys().iter().copied());
                let pressed = planner.press(all, &held);
                planner.wait(duration);
                planner.release(pressed);
            }
        });
        Ok(())
    }

    fn scroll(&mut self, scroll: &Scroll) -> Result<(), ActionError> {
        let position = self.position("x", "y", scroll.x, scroll.y)?;
        let (across, down) = (scroll.delta_x.get(), scroll.delta_y.get());
        let notches = across.unsigned_abs() + down.unsigned_abs();
        self.reserve(
            notches as usize + 2 + key_steps(&scroll.hold_keys),
            SCROLL_DELAY,
        )?;
        self.with_held_keys(&scroll.hold_keys, |planner| {
            planner.move_to(position);
            for (delta, backwards, forwards) in [
                (down, Notch::Up, Notch::Down),
                (across, Notch::Left, Notch::Right),
            ] {
                let notch = if delta < 0 { backwards } else { forwards };
                let steps = std::iter::repeat_n(Step::Wheel(notch), delta.unsigned_abs() as usize);
                planner.steps.extend(steps);
            }
            planner.scrolled(position);
        });
        Ok(())
    }

    fn drag(&mut self, drag: &DragMouse) -> Result<(), ActionError> {
        let mut points = Vec::with_capacity(drag.path.points().len());
        for (index, (x, y)) in drag.path.points().iter().enumerate() {
            let field = |side: usize| format!("path[{index}][{side}]");
            points.push(self.position(&field(0), &field(1), *x, *y)?);
        }
        let delay = drag.delay.map_or(Duration::ZERO, |delay| delay.millis());
        let plan = Self::plan_drag(drag, &points);
        self.reserve(
            plan.steps + 4 + key_steps(&drag.hold_keys),
            delay + plan.duration,
        )?;
        let button: MouseButton = drag.button.unwrap_or_default().into();
        self.with_held_keys(&drag.hold_keys, |planner| {
            planner.move_to(points[0]);
            planner.button(button, true);
            planner.wait(delay);
            for (index, ends) in points.windows(2).enumerate() {
                match &plan.smooth {
                    Some(durations) => planner.move_smoothly(ends[1], durations[index]),
                    None => {
                        for point in path::line(ends[0], ends[1], plan.steps_per_segment) {
                            planner.wait(plan.step_delay);
                            planner.move_to(point);
                        }
                    }
                }
            }
            planner.button(button, false);
        });
        Ok(())
    }

    fn plan_drag(drag: &DragMouse, points: &[Point]) -> DragPlan {
        let segments = || points.windows(2).map(|ends| (ends[0], ends[1]));
        if drag.smooth.unwrap_or_default() {
            let natural_durations: Vec<Duration> =
                segments().map(|(a, b)| path::duration(a, b)).collect();
            let natural: Duration = natural_durations.iter().sum();
            let duration = drag
                .duration_ms
                .map_or(natural, |duration| duration.millis());
            let scale = duration.as_secs_f64() / natural.as_secs_f64();
            let durations: Vec<_> = natural_durations
                .into_iter()
                .map(|duration| duration.mul_f64(scale))
                .collect();
            return DragPlan {
                steps: durations
                    .iter()
                    .map(|duration| 2 * path::frame_count(*duration))
                    .sum(),
                duration: durations.iter().sum(),
                smooth: Some(durations),
                steps_per_segment: 0,
                step_delay: Duration::ZERO,
            };
        }
        let steps_per_segment = drag
            .steps_per_segment
            .map_or(STEPS_PER_SEGMENT, |steps| steps.get());
        let step_delay = drag
            .step_delay_ms
            .map_or(DRAG_STEP_DELAY, |delay| delay.millis());
        let steps = steps_per_segment * u32::try_from(points.len() - 1).unwrap_or(u32::MAX);
        DragPlan {
            steps: 2 * steps as usize,
            duration: step_delay * steps,
            smooth: None,
            steps_per_segment,
            step_delay,
        }
    }

    /// Returns a position on the screen, or an error for the first coordinate that is outside.
    fn position(&self, x_field: &str, y_field: &str, x: i64, y: i64) -> Result<Point, ActionError> {
        let check = |field: &str, value: i64, side: u32| {
            let value = i32::try_from(value).ok();
            value
                .filter(|value| (0..i64::from(side)).contains(&i64::from(*value)))
                .ok_or_else(|| {
                    let last = side.saturating_sub(1);
                    let message = format!("is off the screen: must be from 0 to {last}");
                    ActionError::field(field, message)
                })
        };
        Ok(Point {
            x: check(x_field, x, self.screen.width)?,
            y: check(y_field, y, self.screen.height)?,
        })
    }

    /// Reserves steps and checks that a further wait is within the limits.
    fn reserve(&mut self, steps: usize, duration: Duration) -> Result<(), ActionError> {
        let step_count = self.step_count.saturating_add(steps);
        if step_count > MAX_STEPS {
            let message = format!("exceeds the limit of {MAX_STEPS} steps per batch");
            return Err(ActionError::action(message));
        }
        if self.duration + duration > MAX_DURATION {
            let seconds = MAX_DURATION.as_secs();
            let message = format!("exceeds the limit of {seconds} s per batch");
            return Err(ActionError::action(message));
        }
        // A rejected action does not count towards the limits of the next ones.
        self.step_count = step_count;
        Ok(())
    }

    fn move_to(&mut self, to: Point) {
        self.pointer = Some(to);
        self.steps.push(Step::Move(to));
    }

    fn move_smoothly(&mut self, to: Point, duration: Duration) {
        let (from, screen) = (self.pointer.unwrap_or(to), self.screen);
        for (wait, point) in path::curve(from, to, duration, screen) {
            self.wait(wait);
            // A slow movement has consecutive frames at one position.
            if Some(point) != self.pointer || point == to {
                self.move_to(point);
            }
        }
    }

    fn button(&mut self, button: MouseButton, down: bool) {
        self.steps.push(Step::Button { button, down });
    }

    fn scrolled(&mut self, at: Point) {
        self.duration += SCROLL_DELAY;
        self.steps.push(Step::Scrolled {
            at,
            time: SCROLL_DELAY,
        });
    }

    fn wait(&mut self, duration: Duration) {
        if duration.is_zero() {
            return;
        }
        self.duration += duration;
        match self.steps.last_mut() {
            Some(Step::Wait(previous)) => *previous += duration,
            _ => self.steps.push(Step::Wait(duration)),
        }
    }

    fn with_held_keys(&mut self, keys: &HoldKeys, plan: impl FnOnce(&mut Self)) {
        let held = self.press(keys.keys(), &[]);
        plan(self);
        self.release(held);
    }

    /// Presses the keys that are not held already and returns them.
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

/// Returns the number of steps that press and release the keys.
fn key_steps(keys: &HoldKeys) -> usize {
    2 * keys.keys().count()
}

/// The steps and durations of a drag.
struct DragPlan {
    steps: usize,
    duration: Duration,
    /// The duration of each segment of a smooth drag.
    smooth: Option<Vec<Duration>>,
    steps_per_segment: u32,
    step_delay: Duration,
}

#[cfg(test)]
mod tests {
    use deserr::deserialize;
    use proptest::{prelude::*, sample::select};
    use serde_json::json;

    use super::*;
    use crate::api::computer::InvalidAction;

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
        let read = |action| deserialize::<Action, _, InvalidAction>(action).unwrap();
        prop::collection::vec(select(kinds.to_vec()).prop_map(read), 1..5)
    }

    proptest! {
        #[test]
        fn plan_depends_on_the_pointer_only_if_needed(
            actions in actions(), x in 0..1280, y in 0..800,
        ) {
            let refs: Vec<&Action> = actions.iter().collect();
            let known = plan(&refs, SCREEN, Some(Point { x, y })).unwrap();
            let unknown = plan(&refs, SCREEN, None).unwrap();
            prop_assert!(needs_pointer(&actions) || known == unknown);
        }
    }

    #[test]
    fn action_beyond_the_step_limit_is_rejected_without_affecting_others() {
        let read = |action| deserialize::<Action, _, InvalidAction>(action).unwrap();
        let text = "a".repeat(65_536);
        let typing = || read(json!({"type": "type_text", "type_text": {"text": text}}));
        let click = read(json!({"type": "click_mouse", "click_mouse": {"x": 5, "y": 6}}));
        let batch = [typing(), typing(), typing(), typing(), click];
        let refs: Vec<&Action> = batch.iter().collect();
        let errors = plan(&refs, SCREEN, None).unwrap_err();
        let indices: Vec<usize> = errors.iter().map(|error| error.index).collect();
        assert_eq!(indices, [3], "{errors:?}");
    }

    #[test]
    fn smooth_move_starts_at_the_pointer() {
        let to = json!({"x": 9, "y": 3, "smooth": true});
        let action = json!({"type": "move_mouse", "move_mouse": to});
        let action = deserialize::<Action, _, InvalidAction>(action).unwrap();
        assert!(needs_pointer(std::slice::from_ref(&action)));
        let from = |x| plan(&[&action], SCREEN, Some(Point { x, y: 9 })).unwrap();
        assert_ne!(from(10), from(600));
    }
}
