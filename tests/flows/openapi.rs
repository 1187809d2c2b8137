//! The OpenAPI documents: validated, used to generate clients, and compared with how the servers
//! respond to generated requests.

use std::{fs, path::Path};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::support::{
    agent::{Start, TOKEN},
    dev::{Dev, berth},
    printed::print,
    python::{clients, output_of, python},
};

/// Generated requests per operation, unless the variable sets their number. With the variable, each
/// constraint of the document is also violated once.
const EXAMPLES: &str = "4";
const EXAMPLES_VARIABLE: &str = "BERTH_TEST_API_EXAMPLES";
/// The default seed of the generated requests.
const SEED: &str = "4";
const SEED_VARIABLE: &str = "BERTH_TEST_API_SEED";

/// Writes the document of a server to a file of the directory.
async fn write_document(server: &str, directory: &Path) -> String {
    let printed = print(berth(&["openapi", server])).await;
    assert!(printed.status.success(), "{}", printed.stderr);
    let file = directory.join(format!("{server}.json"));
    fs::write(&file, printed.stdout).unwrap();
    file.to_str().unwrap().to_owned()
}

fn script(name: &str) -> Command {
    let mut command = Command::new(python());
    command
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .arg(clients().join("openapi").join(name));
    command
}

#[tokio::test]
async fn documents_are_valid_openapi() {
    let directory = TempDir::new().unwrap();
    let mut validator = script("validate.py");
    for server in ["agent", "control"] {
        validator.arg(write_document(server, directory.path()).await);
    }
    output_of(&mut validator).await;
}

/// Generates a client of a server, uses it, and returns its results.
async fn use_generated_client(server: &str, base_url: &str, token: &str) -> Value {
    let directory = TempDir::new().unwrap();
    let document = write_document(server, directory.path()).await;
    let package = directory.path().join(format!("berth_{server}"));
    let files = directory.path().join("files");
    fs::create_dir(&files).unwrap();
    let mut generator = Command::new(python());
    generator
        .current_dir(directory.path())
        .args(["-m", "openapi_python_client", "generate", "--meta", "none"])
        .args(["--fail-on-warning", "--path", &document, "--config"])
        .arg(clients().join("openapi/client.yml"))
        .arg("--output-path")
        .arg(&package);
    output_of(&mut generator).await;
    let mut user = script("use_client.py");
    user.env("PYTHONPATH", directory.path())
        .args([server, base_url, token])
        .arg(&files);
    let results = serde_json::from_str(&output_of(&mut user).await).unwrap();
    assert_eq!(fs::read_dir(&files).unwrap().count(), 0);
    results
}

/// The results that both clients have of files and processes.
fn expected(mut more: Value) -> Value {
    let common = json!({
        "written": true,
        "read": "hello from a generated client",
        "listed": ["greeting.txt"],
        "missing": [404, "not_found"],
        "stdout": "ready\n",
        "exit_code": 0,
        "deleted": true,
    });
    let common = common.as_object().unwrap().clone();
    more.as_object_mut().unwrap().extend(common);
    more
}

#[tokio::test]
async fn generated_client_of_the_agent_works() {
    let agent = Start::without_browser().listening().await;
    let results = use_generated_client("agent", &agent.base_url, TOKEN).await;
    assert_eq!(results, expected(json!({"health": "ok"})));
    agent.stop().await;
}

#[tokio::test]
async fn generated_client_of_control_works() {
    let dev = Dev::start().await;
    let results = use_generated_client("control", &dev.base_url, &dev.api_key).await;
    let own = json!({
        "created": "generated",
        "browsers": [true],
        "browser_deleted": 204,
        "gone": [404, "not_found"],
    });
    assert_eq!(results, expected(own));
    dev.finish().await;
}

/// Sends generated requests to a server in namespaces of its own, where it can change no file and
/// reach no network. Fails for a server error, and for a response that the document does not
/// describe.
async fn fuzz(server: &str) {
    let examples = std::env::var(EXAMPLES_VARIABLE);
    let phases = match examples {
        Ok(_) => "examples,coverage,fuzzing",
        Err(_) => "examples,fuzzing",
    };
    let root = TempDir::new().unwrap();
    let program = Path::new(env!("CARGO_BIN_EXE_berth"));
    let mut unshare = Command::new("unshare");
    unshare
        .args(["--user", "--map-root-user", "--mount", "--net"])
        .args(["--pid", "--fork", "--kill-child"])
        .arg(python())
        .arg(clients().join("openapi/fuzz.py"))
        .arg(server)
        .args([program, root.path()])
        .args([phases, examples.as_deref().unwrap_or(EXAMPLES)])
        .arg(std::env::var(SEED_VARIABLE).unwrap_or_else(|_| SEED.to_owned()))
        .arg(program.parent().unwrap())
        .env("PYTHONDONTWRITEBYTECODE", "1");
    println!("{}", output_of(&mut unshare).await);
}

#[tokio::test]
async fn agent_responds_as_its_document_describes() {
    fuzz("agent").await;
}

#[tokio::test]
async fn control_responds_as_its_document_describes() {
    fuzz("control").await;
}
