//! A control that is killed while it has secrets in its memory.

use std::{fs, os::unix::process::ExitStatusExt};

use serde_json::json;

use super::{
    assert_no_leak,
    encodings::PlantedSecret,
    outputs::{ObservedClient, Outputs, core_limit},
    plant::{keys, use_credentials, use_provider},
    search::{LeakSearch, OutputKind, kind_of_state_file},
};
use crate::support::{
    dev::{Dev, State, command_with_limit},
    fleet_host::join_token,
    provider_server::ProviderServer,
};

#[tokio::test]
async fn killed_control_leaves_no_core_file() {
    let (directory, state) = (tempfile::tempdir().unwrap(), State::new());
    let mut command = command_with_limit("-c unlimited", &state.path());
    command
        .current_dir(directory.path())
        .envs(state.variables());
    command.env("TMPDIR", directory.path());
    let dev = Dev::run(state, command).await;
    let outputs = Outputs::default();
    let client = ObservedClient {
        dev: &dev,
        outputs: &outputs,
    };
    let server = ProviderServer::start().await;
    use_provider(&client, &server).await;
    let codes = use_credentials(&client).await;
    let token = join_token(&dev, json!({})).await;
    let mut secrets = keys(&client).await;
    let codes = codes.iter().map(|code| ("a one-time code", code));
    for (name, text) in codes.chain([("a join token", &token), ("the first key", &dev.api_key)]) {
        secrets.push(PlantedSecret::new(name, text.as_str()));
    }
    let limit = core_limit(dev.pid().as_raw().cast_unsigned());
    assert_eq!(limit.as_deref(), Some("0"));

    let (status, state) = dev.abort().await;
    assert!(!status.core_dumped(), "{status}");
    assert_eq!(status.signal(), Some(6));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    let mut search = LeakSearch::new(&secrets);
    outputs.add_log(&state.log());
    search.outputs(&outputs);
    search.files(&state.path(), kind_of_state_file);
    search.files(directory.path(), |_| Some(OutputKind::CoreFile));
    assert_no_leak(&search);
}
