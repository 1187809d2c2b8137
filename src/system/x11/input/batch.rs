//! A batch on its way to the task or thread that plays it, and the result on its way back.

use tokio::sync::oneshot;

use super::{PlayResult, Point, Size, Step};

/// The reply to a batch. `None` if its plan failed.
pub(super) type BatchReply<F> = Result<Option<PlayResult>, F>;

/// Returns the steps of each action for a screen of that size, or `None` if they are not possible.
type Plan = dyn FnOnce(Size, Option<Point>) -> Option<Vec<Vec<Step>>> + Send;

/// A queued batch. It is planned when its turn comes. If the caller has gone by then, `reply` is
/// closed.
pub struct Batch<F> {
    plan: Box<Plan>,
    pub reply: oneshot::Sender<BatchReply<F>>,
}

impl<F> Batch<F> {
    /// Returns a batch and the receiver of its result.
    pub fn new<E: Send + 'static>(
        plan: impl FnOnce(Size, Option<Point>) -> Result<Vec<Vec<Step>>, E> + Send + 'static,
    ) -> (Self, BatchOutcome<E, F>) {
        let (reply, result) = oneshot::channel();
        let (plan_error_sender, plan_error) = oneshot::channel();
        let plan = move |size, pointer| {
            plan(size, pointer)
                .map_err(|error| plan_error_sender.send(error))
                .ok()
        };
        let batch = Self {
            plan: Box::new(plan),
            reply,
        };
        (batch, BatchOutcome { result, plan_error })
    }

    /// Plans the batch for the current screen. If that fails, or the screen is not available,
    /// replies with the error and returns `None`.
    pub fn start(self, screen: Result<(Size, Option<Point>), F>) -> Option<StartedBatch<F>> {
        let Self { plan, reply } = self;
        let failed = match screen.map(|(size, pointer)| plan(size, pointer)) {
            Ok(Some(actions)) => return Some(StartedBatch { actions, reply }),
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        let _ = reply.send(failed);
        None
    }
}

/// A planned batch.
pub struct StartedBatch<F> {
    pub actions: Vec<Vec<Step>>,
    pub reply: oneshot::Sender<BatchReply<F>>,
}

/// Receives a batch's result.
pub struct BatchOutcome<E, F> {
    result: oneshot::Receiver<BatchReply<F>>,
    plan_error: oneshot::Receiver<E>,
}

impl<E, F> BatchOutcome<E, F> {
    /// Returns the result or the plan's error. `None` if the player has terminated.
    pub async fn wait(mut self) -> Option<Result<Result<PlayResult, E>, F>> {
        match self.result.await.ok()? {
            Ok(Some(result)) => Some(Ok(Ok(result))),
            Ok(None) => {
                let error = self.plan_error.try_recv().ok()?;
                Some(Ok(Err(error)))
            }
            Err(error) => Some(Err(error)),
        }
    }
}
