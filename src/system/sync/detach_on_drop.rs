//! Work that must not stop in the middle.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use tokio::runtime::Handle;

/// A future that runs its work within the task that awaits it, which wakes no other thread. If it
/// is dropped before the end, the rest of the work runs as a task of its own.
#[derive(Debug)]
#[must_use = "the work starts when it is awaited"]
pub struct DetachOnDrop<F: Future<Output: Send + 'static> + Send + 'static> {
    /// `None` once it has ended.
    work: Option<Pin<Box<F>>>,
}

impl<F: Future<Output: Send + 'static> + Send + 'static> DetachOnDrop<F> {
    pub fn new(work: F) -> Self {
        DetachOnDrop {
            work: Some(Box::pin(work)),
        }
    }
}

impl<F: Future<Output: Send + 'static> + Send + 'static> Future for DetachOnDrop<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // Work that panics is not continued.
        let Some(mut work) = self.work.take() else {
            return Poll::Pending;
        };
        let polled = work.as_mut().poll(context);
        if polled.is_pending() {
            self.work = Some(work);
        }
        polled
    }
}

impl<F: Future<Output: Send + 'static> + Send + 'static> Drop for DetachOnDrop<F> {
    fn drop(&mut self) {
        if let (Some(work), Ok(runtime)) = (self.work.take(), Handle::try_current()) {
            runtime.spawn(work);
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    #[tokio::test]
    async fn work_is_finished_after_its_future_was_dropped() {
        assert_eq!(DetachOnDrop::new(async { 1 }).await, 1);
        let (resume, resumed) = oneshot::channel::<()>();
        let (finish, finished) = oneshot::channel();
        let mut work = Box::pin(DetachOnDrop::new(async move {
            let _ = resumed.await;
            let _ = finish.send(2);
        }));
        assert!(futures::poll!(&mut work).is_pending());
        drop(work);
        resume.send(()).unwrap();
        assert_eq!(finished.await, Ok(2));
    }
}
