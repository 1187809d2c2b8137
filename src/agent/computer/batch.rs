//! Plays a batch of actions: validates it, waits for its turn and converts its result.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use tokio::time::{Instant, timeout, timeout_at};

use super::{
    Computer, ComputerError, FailedAction, Surface, page,
    plan::{PlanError, needs_pointer, plan},
};
use crate::{
    agent::chromium::NoScreen,
    api::computer::{Action, ActionResult, ActionType, InvalidAction},
    system::x11::input::{
        self, InputError, PlayResult, Point, ScreenState, Size, Step, TimeBudget,
    },
};

/// The time a batch may wait for other batches.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(60);
/// The time the result of a batch may be overdue.
const RESULT_GRACE_PERIOD: Duration = Duration::from_secs(30);

/// Names the field that an error concerns for the client.
type NameField = fn(PlanError, &[Action]) -> InvalidAction;

impl Computer {
    /// Performs one action. Errors name the action's fields.
    pub async fn perform_one(&self, action: Action) -> Result<ActionResult, ComputerError> {
        let surface = self.surface()?;
        let name_field = |error: PlanError, _: &[Action]| InvalidAction {
            field: error.field.unwrap_or_else(|| "body".to_owned()),
            message: error.message,
        };
        let results = self.play(surface, vec![action], name_field).await?;
        results
            .into_iter()
            .next()
            .ok_or_else(|| InputError::Terminated.into())
    }

    /// Performs actions one after the other, without interleaving those of other clients. Performs
    /// none if any is invalid; the error lists all invalid actions.
    pub async fn perform(
        &self,
        batch: Vec<Result<Action, InvalidAction>>,
    ) -> Result<Vec<ActionResult>, ComputerError> {
        let surface = self.surface();
        if batch.iter().any(Result::is_err) {
            let problems = self.collect_problems(surface.ok(), batch).await;
            return Err(ComputerError::Invalid(problems));
        }
        let actions = batch.into_iter().flatten().collect();
        self.play(surface?, actions, batch_problem).await
    }

    /// Returns the problems of a batch with malformed actions, including those of the well-formed
    /// ones on the current screen.
    async fn collect_problems(
        &self,
        surface: Option<Surface>,
        batch: Vec<Result<Action, InvalidAction>>,
    ) -> Vec<InvalidAction> {
        let state = match surface {
            Some(surface) => self.view(surface).await.ok(),
            None => None,
        };
        let well_formed: Vec<&Action> = batch.iter().flatten().collect();
        let planned = state.map(|state| plan(&well_formed, state.size, Some(state.pointer)));
        let mut plan_errors = planned
            .and_then(Result::err)
            .unwrap_or_default()
            .into_iter()
            .peekable();
        let (mut problems, mut well_formed_index) = (Vec::new(), 0);
        for (index, action) in batch.into_iter().enumerate() {
            match action {
                Err(problem) => problems.push(problem),
                Ok(action) => {
                    let error = plan_errors.next_if(|error| error.index == well_formed_index);
                    problems.extend(error.map(|error| problem(error, index, action.kind())));
                    well_formed_index += 1;
                }
            }
        }
        problems
    }

    async fn play(
        &self,
        mut surface: Surface,
        actions: Vec<Action>,
        name_field: NameField,
    ) -> Result<Vec<ActionResult>, ComputerError> {
        self.check_early(&surface, &actions, name_field).await?;
        if let Surface::Screen(_) = surface {
            // Without a browser on the screen, input would be lost.
            self.chromium.wait_for_restart().await?;
            self.chromium.wait_until_focused().await;
            // It may be on another screen by now.
            surface = self.surface()?;
        }
        let kinds: Vec<ActionType> = actions.iter().map(Action::kind).collect();
        let grace_period = match surface {
            Surface::Screen(_) => input::BATCH_GRACE_PERIOD,
            Surface::Page => page::BATCH_GRACE_PERIOD,
        };
        // Set when the batch is started.
        let deadline = Arc::new(OnceLock::new());
        let set_deadline = deadline.clone();
        let needs_pointer = needs_pointer(&actions);
        let plan = move |size, pointer| {
            let steps = plan_all(&actions, size, pointer, name_field);
            let budget = steps
                .as_ref()
                .map(|steps| TimeBudget::new(steps, grace_period).total());
            let timeout = budget.unwrap_or_default() + RESULT_GRACE_PERIOD;
            let _ = set_deadline.set(BatchDeadline::after(timeout));
            steps
        };
        let playing = async {
            match surface {
                Surface::Screen(access) => {
                    Ok::<_, ComputerError>(self.input.play(access, needs_pointer, plan).await?)
                }
                Surface::Page => Ok(self.page.play(plan).await?),
            }
        };
        let result = with_deadline(QUEUE_TIMEOUT, playing, &deadline).await?;
        let result = result.map_err(ComputerError::Invalid)?;
        to_action_results(&kinds, result)
    }

    /// Rejects what can be rejected before the batch waits for others.
    async fn check_early(
        &self,
        surface: &Surface,
        actions: &[Action],
        name_field: NameField,
    ) -> Result<(), ComputerError> {
        let mut kinds = actions.iter().map(Action::kind);
        // A page has no pointer to hide.
        if matches!(surface, Surface::Page) && kinds.any(|kind| kind == ActionType::SetCursor) {
            return Err(NoScreen::Headless.into());
        }
        let is_busy = match surface {
            Surface::Screen(_) => self.input.is_busy(),
            Surface::Page => self.page.is_busy(),
        };
        if is_busy {
            let ScreenState { size, pointer } = self.view(surface.clone()).await?;
            plan_all(actions, size, Some(pointer), name_field).map_err(ComputerError::Invalid)?;
        }
        Ok(())
    }
}

/// The deadline of a started batch.
struct BatchDeadline {
    timeout: Duration,
    at: Instant,
}

impl BatchDeadline {
    fn after(timeout: Duration) -> Self {
        Self {
            timeout,
            at: Instant::now() + timeout,
        }
    }
}

/// Waits for a batch: up to `queue_timeout` for its start and, if it was started in time, until its
/// deadline. The start does not wake this task, which would cost more than a click.
async fn with_deadline<T>(
    queue_timeout: Duration,
    playing: impl Future<Output = Result<T, ComputerError>>,
    deadline: &OnceLock<BatchDeadline>,
) -> Result<T, ComputerError> {
    let mut playing = std::pin::pin!(playing);
    if let Ok(result) = timeout(queue_timeout, &mut playing).await {
        return result;
    }
    let deadline = deadline.get().ok_or(ComputerError::Busy(queue_timeout))?;
    // The player may be blocked forever by a screen that does not respond.
    let result = timeout_at(deadline.at, playing).await;
    result.map_err(|_| ComputerError::ResultTimeout(deadline.timeout))?
}

fn plan_all(
    actions: &[Action],
    screen: Size,
    pointer: Option<Point>,
    name_field: NameField,
) -> Result<Vec<Vec<Step>>, Vec<InvalidAction>> {
    let refs: Vec<&Action> = actions.iter().collect();
    plan(&refs, screen, pointer).map_err(|errors| {
        let problems = errors.into_iter().map(|error| name_field(error, actions));
        problems.collect()
    })
}

fn batch_problem(error: PlanError, actions: &[Action]) -> InvalidAction {
    let (index, kind) = (error.index, actions[error.index].kind());
    problem(error, index, kind)
}

fn problem(error: PlanError, index: usize, kind: ActionType) -> InvalidAction {
    let action = format!("actions[{index}].{}", kind.name());
    InvalidAction {
        field: match error.field {
            Some(field) => format!("{action}.{field}"),
            None => action,
        },
        message: error.message,
    }
}

fn to_action_results(
    kinds: &[ActionType],
    result: PlayResult,
) -> Result<Vec<ActionResult>, ComputerError> {
    let micros = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    let completed = kinds.iter().zip(&result.durations).enumerate();
    let mut results: Vec<ActionResult> = completed
        .map(|(index, (kind, duration))| ActionResult {
            index,
            r#type: *kind,
            ok: true,
            duration_us: micros(*duration),
        })
        .collect();
    let Some((cause, duration)) = result.failure else {
        return Ok(results);
    };
    // If all actions were played, the final confirmation failed: that of the last action.
    let index = results.len().min(kinds.len().saturating_sub(1));
    results.truncate(index);
    results.push(ActionResult {
        index,
        r#type: kinds[index],
        ok: false,
        duration_us: micros(duration),
    });
    Err(ComputerError::Failed(Box::new(FailedAction {
        index,
        kind: kinds[index],
        cause,
        results,
    })))
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::time::sleep;

    use super::*;

    const QUEUE_TIMEOUT: Duration = Duration::from_millis(20);
    const LONGER: Duration = Duration::from_millis(60);

    #[tokio::test]
    async fn batch_times_out_if_it_is_not_started_or_does_not_end() {
        let result = with_deadline::<()>(QUEUE_TIMEOUT, pending(), &OnceLock::new()).await;
        assert!(matches!(result, Err(ComputerError::Busy(_))));

        let deadline = BatchDeadline::after(LONGER);
        let at = deadline.at;
        let result = with_deadline::<()>(QUEUE_TIMEOUT, pending(), &deadline.into()).await;
        assert!(matches!(result, Err(ComputerError::ResultTimeout(timeout)) if timeout == LONGER));
        assert!(Instant::now() >= at);
    }

    #[tokio::test]
    async fn started_batch_may_take_longer_than_the_queue_timeout() {
        let deadline = OnceLock::from(BatchDeadline::after(Duration::from_secs(3600)));
        let slow = async {
            sleep(LONGER).await;
            Ok(())
        };
        assert!(with_deadline(QUEUE_TIMEOUT, slow, &deadline).await.is_ok());
    }
}
