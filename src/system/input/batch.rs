//! A batch on its way to whoever plays it, and the way back of what came of it.

use tokio::sync::oneshot;

use super::{Played, Step, View};

/// What came of it; nothing where nothing was to be done.
pub type Answer<F> = Result<Option<Played>, F>;

/// Planned once it is its turn; whoever waits for it may have left by then, and the reply is closed.
pub struct Batch<F> {
    /// The steps of each action, where they can be done on the screen as it is. Else nothing is to be done.
    plan: Box<dyn FnOnce(View) -> Option<Vec<Vec<Step>>> + Send>,
    pub reply: oneshot::Sender<Answer<F>>,
}

impl<F> Batch<F> {
    pub fn new<E: Send + 'static>(
        plan: impl FnOnce(View) -> Result<Vec<Vec<Step>>, E> + Send + 'static,
    ) -> (Self, Outcome<E, F>) {
        let (reply, answer) = oneshot::channel();
        let (refuse, refusal) = oneshot::channel();
        let plan = Box::new(move |view| plan(view).map_err(|error| refuse.send(error)).ok());
        (Self { plan, reply }, Outcome { answer, refusal })
    }
}

/// A batch that is to be done.
pub struct Begun<F> {
    pub actions: Vec<Vec<Step>>,
    pub reply: oneshot::Sender<Answer<F>>,
}

impl<F> Batch<F> {
    /// Plans it for what there is now. Where nothing is to be done, whoever waits for it is told.
    pub fn begin(self, view: Result<View, F>) -> Option<Begun<F>> {
        let Self { plan, reply } = self;
        let nothing = match view.map(plan) {
            Ok(Some(actions)) => return Some(Begun { actions, reply }),
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        let _ = reply.send(nothing);
        None
    }
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
