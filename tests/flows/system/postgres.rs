//! Several control processes on PostgreSQL, any of which is killed. Sessions survive that, and the
//! end of any process of their host.

use std::path::PathBuf;

use super::{OTHER_MAX_SESSIONS, Rules, installation::RegisteredInstallation, max_sessions, run};

/// An older build of the program, with which the test is a rolling upgrade.
const OLDER_VARIABLE: &str = "BERTH_TEST_SYSTEM_OLDER";

#[tokio::test]
async fn clients_of_several_control_processes_lose_nothing_after_random_kills() {
    let max_sessions = max_sessions();
    let older = std::env::var_os(OLDER_VARIABLE)
        .map(|path| PathBuf::from(path).canonicalize().expect(OLDER_VARIABLE));
    let hosts = max_sessions + OTHER_MAX_SESSIONS + 1;
    let installation = RegisteredInstallation::start(hosts, max_sessions, older.as_deref()).await;
    let rules = Rules {
        max_sessions,
        other_max_sessions: OTHER_MAX_SESSIONS,
        sessions_end_with_control: false,
        agent_restarts: usize::MAX,
    };
    run(installation, rules).await;
}
