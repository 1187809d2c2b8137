//! Hands: mouse and keyboard, on the screen that Chromium is on.

use std::{io, time::Duration};

use tokio::{sync::oneshot, time::timeout};

use super::chromium::{Chromium, NoScreen};
use crate::{
    api::{
        computer::{Action, ActionResult, ActionType, MouseButton, Problem, Text, TypeText},
        keys::Key,
    },
    shutdown::Shutdown,
    system::{
        input::{Input, InputError, Notch, PlayError, Played, Point, SessionId, Step, View},
        x11::Access,
    },
};

mod path;
mod plan;

use plan::plan;

/// For the screen to say how it is.
const VIEW_LIMIT: Duration = Duration::from_secs(10);
/// For others to be done with what they do.
const TURN_LIMIT: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
pub enum ComputerError {
    #[error(transparent)]
    NoScreen(#[from] NoScreen),
    #[error("{} actions cannot be done", .0.len())]
    Refused(Vec<Problem>),
    #[error("others have had the mouse and the keyboard for {} s", TURN_LIMIT.as_secs())]
    Turn,
    #[error("the screen did not answer within {} s", VIEW_LIMIT.as_secs())]
    Deadline,
    #[error(transparent)]
    Input(#[from] InputError),
    #[error(transparent)]
    Failed(Box<Failure>),
}

/// An action that could not be done to its end; those after it were not begun.
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
        Ok(Self { chromium, input })
    }

    pub async fn position(&self) -> Result<Point, ComputerError> {
        let access = self.chromium.screen()?;
        Ok(self.view(access).await?.pointer)
    }

    /// Does one action. Fields are named as the action's own.
    pub async fn perform_one(&self, action: Action) -> Result<ActionResult, ComputerError> {
        let access = self.chromium.screen()?;
        let name = |problem: plan::Problem, _: &[Action]| Problem {
            field: problem.field.unwrap_or_else(|| "body".to_owned()),
            what: problem.what,
        };
        let results = self.play(access, vec![action], name).await?;
        results
            .into_iter()
            .next()
            .ok_or_else(|| InputError::Ended.into())
    }

    /// Does one action after the other, and nothing else in between. None is begun unless all can be done; all that cannot are told.
    pub async fn perform(
        &self,
        batch: Vec<Result<Action, Problem>>,
    ) -> Result<Vec<ActionResult>, ComputerError> {
        let access = self.chromium.screen();
        if batch.iter().any(Result::is_err) {
            return Err(ComputerError::Refused(
                self.refuse(access.ok(), batch).await,
            ));
        }
        let actions = batch.into_iter().flatten().collect();
        self.play(access?, actions, in_batch).await
    }

    /// A viewer's own hands.
    pub fn session(&self) -> Result<LiveInput, ComputerError> {
        self.chromium.screen()?;
        Ok(LiveInput {
            computer: self.clone(),
            session: self.input.new_session(),
        })
    }

    /// All that is wrong: with the fields of some actions, and on this screen with those of others.
    async fn refuse(
        &self,
        access: Option<Access>,
        batch: Vec<Result<Action, Problem>>,
    ) -> Vec<Problem> {
        let view = match access {
            Some(access) => self.view(access).await.ok(),
            None => None,
        };
        let readable: Vec<&Action> = batch.iter().flatten().collect();
        let off_screen = view.map(|view| plan(&readable, view.size, view.pointer));
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

    async fn view(&self, access: Access) -> Result<View, ComputerError> {
        let answer = timeout(VIEW_LIMIT, self.input.view(access)).await;
        Ok(answer.map_err(|_| ComputerError::Deadline)??)
    }

    async fn play(
        &self,
        access: Access,
        actions: Vec<Action>,
        name: fn(plan::Problem, &[Action]) -> Problem,
    ) -> Result<Vec<ActionResult>, ComputerError> {
        if self.input.is_busy() {
            // What cannot be done need not wait for its turn.
            let view = self.view(access.clone()).await?;
            planned(&actions, view, name).map_err(ComputerError::Refused)?;
        }
        let kinds: Vec<ActionType> = actions.iter().map(Action::kind).collect();
        let (begin, begun) = oneshot::channel();
        let playing = self.input.play(access, move |view| {
            let _ = begin.send(());
            planned(&actions, view, name)
        });
        let mut playing = std::pin::pin!(playing);
        let played = tokio::select! {
            biased;
            played = &mut playing => played,
            turn = timeout(TURN_LIMIT, begun) => match turn {
                Ok(_) => playing.await,
                Err(_) => return Err(ComputerError::Turn),
            },
        };
        let played = played?.map_err(ComputerError::Refused)?;
        outcome(&kinds, played)
    }
}

fn planned(
    actions: &[Action],
    view: View,
    name: fn(plan::Problem, &[Action]) -> Problem,
) -> Result<Vec<Vec<Step>>, Vec<Problem>> {
    let refs: Vec<&Action> = actions.iter().collect();
    let problems = match plan(&refs, view.size, view.pointer) {
        Ok(plan) => return Ok(plan.actions),
        Err(problems) => problems,
    };
    Err(problems
        .into_iter()
        .map(|problem| name(problem, actions))
        .collect())
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

fn outcome(kinds: &[ActionType], played: Played) -> Result<Vec<ActionResult>, ComputerError> {
    let micros = |took: Duration| u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
    let done = kinds.iter().zip(&played.took).enumerate();
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
        if let Err(error) = input.attend(chromium.screen().ok()) {
            tracing::warn!(%error, "the keyboard's focus is not looked after");
        }
        tokio::select! {
            () = shutdown.stopped() => return,
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
        self.computer.input.end(self.session);
    }
}
