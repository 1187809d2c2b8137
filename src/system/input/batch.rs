//! A batch on its way to whoever plays it, and the way back of what came of it.

use tokio::sync::oneshot;

use super::{InputError, Played, Step, View};

type Answer = Result<Option<Played>, InputError>;

/// Planned once it is its turn; whoever waits for it may have left by then, and the reply is closed.
pub struct Batch {
    /// The steps of each action, where they can be done on the screen as it is. Else nothing is to be done.
    pub plan: Box<dyn FnOnce(View) -> Option<Vec<Vec<Step>>> + Send>,
    pub reply: oneshot::Sender<Answer>,
}

impl Batch {
    pub fn new<E: Send + 'static>(
        plan: impl FnOnce(View) -> Result<Vec<Vec<Step>>, E> + Send + 'static,
    ) -> (Self, Outcome<E>) {
        let (reply, answer) = oneshot::channel();
        let (refuse, refusal) = oneshot::channel();
        let plan = Box::new(move |view| plan(view).map_err(|error| refuse.send(error)).ok());
        (Self { plan, reply }, Outcome { answer, refusal })
    }
}

pub struct Outcome<E> {
    answer: oneshot::Receiver<Answer>,
    refusal: oneshot::Receiver<E>,
}

impl<E> Outcome<E> {
    /// What came of it, or why the plan was refused.
    pub async fn wait(mut self) -> Result<Result<Played, E>, InputError> {
        match self.answer.await.map_err(|_| InputError::Ended)?? {
            Some(played) => Ok(Ok(played)),
            None => {
                let refusal = self.refusal.try_recv();
                refusal.map(Err).map_err(|_| InputError::Ended)
            }
        }
    }
}
