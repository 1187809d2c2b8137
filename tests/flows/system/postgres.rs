//! Several control processes on PostgreSQL, any of which is killed. Sessions survive that, and the
//! end of any process of their host.

use super::{Rules, installation::RegisteredInstallation, max_sessions, run};

#[tokio::test]
async fn clients_of_several_control_processes_lose_nothing_after_random_kills() {
    let max_sessions = max_sessions();
    let installation = RegisteredInstallation::start(max_sessions + 1, max_sessions).await;
    let rules = Rules {
        max_sessions,
        sessions_end_with_control: false,
        agent_restarts: usize::MAX,
    };
    run(installation, rules).await;
}
