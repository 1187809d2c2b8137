//! On whose behalf a task works: the names of the request that asked for it, which go along to whoever is asked in turn.

use std::future::Future;

use tracing::Instrument;

tokio::task_local! {
    static CURRENT: RequestScope;
}

/// What a request is known by, as headers have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestScope {
    pub request_id: String,
    /// W3C Trace Context.
    pub traceparent: String,
}

impl RequestScope {
    /// That of the task this is called in; none where no request asked for it.
    #[must_use]
    pub fn current() -> Option<Self> {
        CURRENT.try_with(Clone::clone).ok()
    }

    /// Does something for the request.
    pub async fn run<F: Future>(self, work: F) -> F::Output {
        CURRENT.scope(self, work).await
    }
}

/// Work for a task of its own, in the scope and the log span of whoever asks for it.
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
    async fn a_task_works_on_behalf_of_the_request_that_asked_for_it() {
        let scope = RequestScope {
            request_id: "req_1".to_owned(),
            traceparent: "00-1-2-00".to_owned(),
        };
        let found = scope.clone().run(async {
            let alone = tokio::spawn(async { RequestScope::current() });
            let inherited = tokio::spawn(inherit(async { RequestScope::current() }));
            (alone.await.unwrap(), inherited.await.unwrap())
        });
        assert_eq!(found.await, (None, Some(scope)));
        assert_eq!(inherit(async { RequestScope::current() }).await, None);
    }
}
