//! A batch on its way to whoever plays it, and the way back of what came of it.

use tokio::sync::oneshot;

use super::{Played, Point, Size, Step};

/// What came of it; nothing where nothing was to be done.
pub type Answer<F> = Result<Option<Played>, F>;

/// The steps of each action, where they can be done on the screen as it is. Else nothing is to be done.
type Plan = dyn FnOnce(Size, Option<Point>) -> Option<Vec<Vec<Step>>> + Send;

/// Planned once it is its turn; whoever waits for it may have left by then, and the reply is closed.
pub struct Batch<F> {
    plan: Box<Plan>,
    pub reply: oneshot::Sender<Answer<F>>,
}

impl<F> Batch<F> {
    pub fn new<E: Send + 'static>(
        plan: impl FnOnce(Size, Option<Point>) -> Result<Vec<Vec<Step>>, E> + Send + 'static,
    ) -> (Self, Outcome<E, F>) {
        let (reply, answer) = oneshot::channel();
        let (refuse, refusal) = oneshot::channel();
        let plan = move |size, pointer| {
            let planned = plan(size, pointer);
            planned.map_err(|error| refuse.send(error)).ok()
        };
        let batch = Self {
            plan: Box::new(plan),
            reply,
        };
        (batch, Outcome { answer, refusal })
    }

    /// Plans it for what there is now. Where nothing is to be done, whoever waits for it is told.
    pub fn begin(self, found: Result<(Size, Option<Point>), F>) -> Option<Begun<F>> {
        let Self { plan, reply } = self;
        let nothing = match found.map(|(size, pointer)| plan(size, pointer)) {
            Ok(Some(actions)) => return Some(Begun { actions, reply }),
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        let _ = reply.send(nothing);
        None
    }
}

/// A batch that is to be done.
pub struct Begun<F> {
    pub actions: Vec<Vec<Step>>,
    pub reply: oneshot::Sender<Answer<F>>,
}

pub struct Outcome<E, F> {
    answer: oneshot::Receiver<Answer<F>>,
    refusal: oneshot::Receiver<E>,
}

impl<E, F> Outcome<E, F> {
    /// What came of it, or why the plan was refused; `None` where whoever was to play it has ended.
    pub async fn wait(mut self) -> Option<Result<Result<Played, E>, F>> {
        match self.answer.await.ok()? {
            Ok(Some(played)) => Some(Ok(Ok(played))),
            Ok(None) => {
                let refusal = self.refusal.try_recv().ok()?;
                Some(Ok(Err(refusal)))
            }
            Err(error) => Some(Err(error)),
        }
    }
}
