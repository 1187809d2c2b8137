//! The request that a task works for: its id and trace, which calls to other servers carry on.

use std::future::Future;

use tracing::Instrument;

tokio::task_local! {
    static CURRENT: RequestScope;
}

/// The identity of a request, in the form of header values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestScope {
    pub request_id: String,
    /// W3C Trace Context.
    pub traceparent: String,
}

impl RequestScope {
    /// Returns the scope of the current task; `None` outside of requests.
    #[must_use]
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Clone::clone).ok()
    }

    /// Runs a future in this scope.
    pub async fn run<F: Future>(self, work: F) -> F::Output {
        CURRENT.scope(self, work).await
    }
}

/// Wraps a future for a new task, so that it runs in the caller's scope and log span.
pub fn inherit<F: Future>(work: F) -> impl Future<Output = F::Output> {
    let scope = RequestScope::current();
    async move {
        match scope {
            Some(scope) => scope.run(work).await,
            None => work.await,
        }
    }
    .in_current_span()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn spawned_task_has_the_scope_only_if_it_inherits_it() {
        let scope = RequestScope {
            request_id: "req_1".to_owned(),
            traceparent: "00-1-2-00".to_owned(),
        };
        let scopes = scope.clone().run(async {
            let separate = tokio::spawn(async { RequestScope::current() });
            let inherited = tokio::spawn(inherit(async { RequestScope::current() }));
            (separate.await.unwrap(), inherited.await.unwrap())
        });
        assert_eq!(scopes.await, (None, Some(scope)));
        assert_eq!(inherit(async { RequestScope::current() }).await, None);
    }
}
