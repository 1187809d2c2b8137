//! Hands: mouse and keyboard, on the screen that Chromium is on, or in the page in front where it has no screen.

use std::{
    io,
    sync::{Arc, OnceLock},
    time::Duration,
};

use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::chromium::{Chromium, NoScreen, NotReady};
use crate::{
    api::{
        computer::{Action, ActionResult, ActionType, MouseButton, Problem, Text, TypeText},
        keys::Key,
    },
    shutdown::Shutdown,
    system::{
        x11::input::{
            self, Input, InputError, Notch, PlayError, PlayResult, Point, ScreenState, SessionId,
            Size, Step, TimeBudget,
        },
        x11::server::DisplayAccess,
    },
};

mod page;
mod path;
mod plan;

pub use page::PageError;
use page::PageInput;
use plan::{plan, wants_pointer};

/// For the screen to say how it is.
const VIEW_LIMIT: Duration = Duration::from_secs(10);
/// For others to be done with what they do.
const TURN_LIMIT: Duration = Duration::from_secs(60);
/// Beyond what a batch may take, for its end to be told.
const MARGIN: Duration = Duration::from_secs(30);
/// Before it is told again which screen it is, where there was too much else to be told.
const ATTEND_AGAIN: Duration = Duration::from_millis(100);

#[derive(Debug, thiserror::Error)]
pub enum ComputerError {
    #[error(transparent)]
    NoScreen(#[from] NoScreen),
    #[error(transparent)]
    NotReady(#[from] NotReady),
    #[error("{} actions cannot be done", .0.len())]
    Refused(Vec<Problem>),
    #[error("others have had the mouse and the keyboard for {} s", TURN_LIMIT.as_secs())]
    Turn,
    #[error("the screen did not answer within {} s", VIEW_LIMIT.as_secs())]
    Deadline,
    #[error("the input did not end within {} s", .0.as_secs())]
    Endless(Duration),
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    Page(#[from] PageError),
    #[error(transparent)]
    Failed(Box<Failure>),
}

/// An action that could not be done to its end, or is not sure to have been. Those after it were not begun, or went where it went.
#[derive(Debug, thiserror::Error)]
#[error("action {index} ({}) failed: {cause}", kind.name())]
pub struct Failure {
    pub index: usize,
    pub kind: ActionType,
    pub cause: PlayError,
    /// Of all actions up to this one.
    pub results: Vec<ActionResult>,
}

/// The handle.
#[derive(Clone)]
pub struct Computer {
    chromium: Chromium,
    input: Input,
    page: PageInput,
}

/// What hands work on.
#[derive(Clone)]
enum Surface {
    Screen(DisplayAccess),
    /// The page in front: there is no screen.
    Page,
}

impl Computer {
    /// Begins to keep the keyboard's focus right. `on_cursor` is told whether the pointer is hidden, whenever that changes.
    pub fn start(
        chromium: Chromium,
        on_cursor: impl Fn(bool) + Send + 'static,
        shutdown: &Shutdown,
    ) -> io::Result<Self> {
        let input = Input::start(on_cursor)?;
        let attending = attend(chromium.clone(), input.clone(), shutdown.clone());
        shutdown.spawn(attending);
        Ok(Self {
            page: PageInput::start(chromium.clone(), shutdown),
            chromium,
            input,
        })
    }

    pub async fn position(&self) -> Result<Point, ComputerError> {
        match self.surface()? {
            Surface::Page => Ok(self.page.position()),
            screen => Ok(self.view(screen).await?.pointer),
        }
    }

    /// Does one action. Fields are named as the action's own.
    pub async fn perform_one(&self, action: Action) -> Result<ActionResult, ComputerError> {
        let surface = self.surface()?;
        let name = |problem: plan::Problem, _: &[Action]| Problem {
            field: problem.field.unwrap_or_else(|| "body".to_owned()),
            what: problem.what,
        };
        let results = self.play(surface, vec![action], name).await?;
        results
            .into_iter()
            .next()
            .ok_or_else(|| InputError::Terminated.into())
    }

    /// Does one action after the other, and nothing else in between. None is begun unless all can be done; all that cannot are told.
    pub async fn perform(
        &self,
        batch: Vec<Result<Action, Problem>>,
    ) -> Result<Vec<ActionResult>, ComputerError> {
        let surface = self.surface();
        if batch.iter().any(Result::is_err) {
            return Err(ComputerError::Refused(
                self.refuse(surface.ok(), batch).await,
            ));
        }
        let actions = batch.into_iter().flatten().collect();
        self.play(surface?, actions, in_batch).await
    }

    /// A viewer's own hands.
    pub fn session(&self) -> Result<LiveInput, ComputerError> {
        self.chromium.screen()?;
        Ok(LiveInput {
            computer: self.clone(),
            session: self.input.new_session(),
        })
    }

    fn surface(&self) -> Result<Surface, NoScreen> {
        let access = self.chromium.optional_screen()?;
        Ok(access.map_or(Surface::Page, Surface::Screen))
    }

    /// All that is wrong: with the fields of some actions, and on this screen with those of others.
    async fn refuse(
        &self,
        surface: Option<Surface>,
        batch: Vec<Result<Action, Problem>>,
    ) -> Vec<Problem> {
        let view = match surface {
            Some(surface) => self.view(surface).await.ok(),
            None => None,
        };
        let readable: Vec<&Action> = batch.iter().flatten().collect();
        let off_screen = view.map(|view| plan(&readable, view.size, Some(view.pointer)));
        let mut off_screen = off_screen
            .and_then(Result::err)
            .unwrap_or_default()
            .into_iter()
            .peekable();
        let (mut problems, mut read) = (Vec::new(), 0);
        for (index, action) in batch.into_iter().enumerate() {
            match action {
                Err(problem) => problems.push(problem),
                Ok(action) => {
                    if let Some(problem) = off_screen.next_if(|problem| problem.index == read) {
                        problems.push(named(problem, index, action.kind()));
                    }
                    read += 1;
                }
            }
        }
        problems
    }

    async fn view(&self, surface: Surface) -> Result<ScreenState, ComputerError> {
        let looking = async {
            match surface {
                Surface::Screen(access) => Ok(self.input.view(access).await?),
                Surface::Page => Ok(self.page.view().await?),
            }
        };
        let answer = timeout(VIEW_LIMIT, looking).await;
        answer.map_err(|_| ComputerError::Deadline)?
    }

    async fn play(
        &self,
        mut surface: Surface,
        actions: Vec<Action>,
        name: fn(plan::Problem, &[Action]) -> Problem,
    ) -> Result<Vec<ActionResult>, ComputerError> {
        let mut kinds = actions.iter().map(Action::kind);
        // A page has no pointer that could be hidden.
        if matches!(surface, Surface::Page) && kinds.any(|kind| kind == ActionType::SetCursor) {
            return Err(NoScreen::Headless.into());
        }
        let is_busy = match surface {
            Surface::Screen(_) => self.input.is_busy(),
            Surface::Page => self.page.is_busy(),
        };
        if is_busy {
            // What cannot be done need not wait for its turn.
            let view = self.view(surface.clone()).await?;
            planned(&actions, view.size, Some(view.pointer), name)
                .map_err(ComputerError::Refused)?;
        }
        if let Surface::Screen(_) = surface {
            // Nobody would see what is done while it is away.
            self.chromium.wait_for_restart().await?;
            self.chromium.wait_until_focused().await;
            // It may have come back on another one.
            surface = self.surface()?;
        }
        let kinds: Vec<ActionType> = actions.iter().map(Action::kind).collect();
        let slack = match surface {
            Surface::Screen(_) => input::BATCH_GRACE_PERIOD,
            Surface::Page => page::SLACK,
        };
        // Set once it is its turn.
        let due = Arc::new(OnceLock::new());
        let set_due = due.clone();
        let wants_pointer = wants_pointer(&actions);
        let plan = move |size, pointer| {
            let steps = planned(&actions, size, pointer, name);
            let takes = steps
                .as_ref()
                .map(|steps| TimeBudget::new(steps, slack).total());
            let _ = set_due.set(Due::after(takes.unwrap_or_default() + MARGIN));
            steps
        };
        let playing = async {
            match surface {
                Surface::Screen(access) => {
                    Ok::<_, ComputerError>(self.input.play(access, wants_pointer, plan).await?)
                }
                Surface::Page => Ok(self.page.play(plan).await?),
            }
        };
        let played = in_time(TURN_LIMIT, playing, &due).await?;
        let played = played.map_err(ComputerError::Refused)?;
        outcome(&kinds, played)
    }
}

/// By when what has begun is to have ended.
struct Due {
    after: Duration,
    at: Instant,
}

impl Due {
    fn after(after: Duration) -> Self {
        Self {
            after,
            at: Instant::now() + after,
        }
    }
}

/// Waits so long for it to begin, and where it has begun by then, for its end. That it begins wakes nobody up: that would cost more than a click.
async fn in_time<T>(
    turn: Duration,
    playing: impl Future<Output = Result<T, ComputerError>>,
    due: &OnceLock<Due>,
) -> Result<T, ComputerError> {
    let mut playing = std::pin::pin!(playing);
    if let Ok(played) = timeout(turn, &mut playing).await {
        return played;
    }
    let due = due.get().ok_or(ComputerError::Turn)?;
    // Whoever plays it may be kept for ever by a screen that does not answer.
    let played = timeout_at(due.at, playing).await;
    played.map_err(|_| ComputerError::Endless(due.after))?
}

fn planned(
    actions: &[Action],
    screen: Size,
    pointer: Option<Point>,
    name: fn(plan::Problem, &[Action]) -> Problem,
) -> Result<Vec<Vec<Step>>, Vec<Problem>> {
    let refs: Vec<&Action> = actions.iter().collect();
    plan(&refs, screen, pointer).map_err(|problems| {
        let named = problems.into_iter().map(|problem| name(problem, actions));
        named.collect()
    })
}

fn in_batch(problem: plan::Problem, actions: &[Action]) -> Problem {
    let (index, kind) = (problem.index, actions[problem.index].kind());
    named(problem, index, kind)
}

fn named(problem: plan::Problem, index: usize, kind: ActionType) -> Problem {
    let action = format!("actions[{index}].{}", kind.name());
    Problem {
        field: match problem.field {
            Some(field) => format!("{action}.{field}"),
            None => action,
        },
        what: problem.what,
    }
}

fn outcome(kinds: &[ActionType], played: PlayResult) -> Result<Vec<ActionResult>, ComputerError> {
    let micros = |took: Duration| u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    let done = kinds.iter().zip(&played.durations).enumerate();
    let mut results: Vec<ActionResult> = done
        .map(|(index, (kind, took))| ActionResult {
            index,
            r#type: *kind,
            ok: true,
            duration_us: micros(*took),
        })
        .collect();
    let Some((cause, took)) = played.failure else {
        return Ok(results);
    };
    // Where all were done, what failed is what the last of them has left.
    let index = results.len().min(kinds.len().saturating_sub(1));
    results.truncate(index);
    results.push(ActionResult {
        index,
        r#type: kinds[index],
        ok: false,
        duration_us: micros(took),
    });
    Err(ComputerError::Failed(Box::new(Failure {
        index,
        kind: kinds[index],
        cause,
        results,
    })))
}

/// Tells the input which screen it is, from the first to the last.
async fn attend(chromium: Chromium, input: Input, shutdown: Shutdown) {
    let mut state = chromium.watch();
    loop {
        let told = input.attend(chromium.screen().ok());
        if let Err(error) = &told {
            tracing::debug!(%error, "the screen could not be told");
        }
        tokio::select! {
            () = shutdown.stopped() => return,
            () = sleep(ATTEND_AGAIN), if matches!(told, Err(InputError::Full)) => {}
            changed = state.changed() => if changed.is_err() {
                return;
            },
        }
    }
}

/// What a viewer does, at once, also in the middle of a batch. When it is dropped, all that it holds is released.
pub struct LiveInput {
    computer: Computer,
    session: SessionId,
}

impl LiveInput {
    /// Places off the screen are brought onto it.
    pub fn move_to(&self, to: Point) -> Result<(), ComputerError> {
        self.act(Step::Move(to))
    }

    pub fn button(&self, button: MouseButton, down: bool) -> Result<(), ComputerError> {
        self.act(Step::Button { button, down })
    }

    pub fn wheel(&self, notch: Notch) -> Result<(), ComputerError> {
        self.act(Step::Wheel(notch))
    }

    pub fn key(&self, key: Key, down: bool) -> Result<(), ComputerError> {
        self.act(Step::Key { key, down })
    }

    /// As a batch, when it is its turn.
    pub async fn type_text(&self, text: Text) -> Result<(), ComputerError> {
        let typing = TypeText { text, delay: None };
        let typed = self.computer.perform_one(Action::TypeText(typing));
        typed.await.map(drop)
    }

    fn act(&self, step: Step) -> Result<(), ComputerError> {
        let access = self.computer.chromium.screen()?;
        Ok(self.computer.input.act(access, self.session, step)?)
    }
}

impl Drop for LiveInput {
    fn drop(&mut self) {
        self.computer.input.end_session(self.session);
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    const TURN: Duration = Duration::from_millis(20);
    const LONGER: Duration = Duration::from_millis(60);

    #[tokio::test]
    async fn what_does_not_begin_or_does_not_end_is_given_up() {
        let waited = in_time::<()>(TURN, pending(), &OnceLock::new()).await;
        assert!(matches!(waited, Err(ComputerError::Turn)));

        let due = Due::after(LONGER);
        let at = due.at;
        let waited = in_time::<()>(TURN, pending(), &due.into()).await;
        assert!(matches!(waited, Err(ComputerError::Endless(after)) if after == LONGER));
        assert!(Instant::now() >= at);
    }

    #[tokio::test]
    async fn what_has_begun_may_take_longer_than_its_turn() {
        let due = OnceLock::from(Due::after(Duration::from_secs(3600)));
        let late = async {
            sleep(LONGER).await;
            Ok(())
        };
        assert!(in_time(TURN, late, &due).await.is_ok());
    }
}
