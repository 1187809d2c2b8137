//! The documents that the program generates from its command line.

use std::{fs, process::Command};

use tempfile::TempDir;

use crate::support::{
    dev::{BERTH, berth},
    printed::print,
};

/// Completes the last word of a command line, as bash does.
const COMPLETE: &str = r#"
    source <("$0" completions bash)
    COMP_WORDS=("$@")
    COMP_CWORD=$(($# - 1))
    $(complete -p berth | sed 's/.*-F \([^ ]*\).*/\1/') berth "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
    printf '%s\n' "${COMPREPLY[@]}"
"#;

#[tokio::test]
async fn commands_and_options_are_completed_in_bash() {
    for (words, expected) in [
        (&["berth", "comp"][..], &["completions"][..]),
        (&["berth", "database", ""], &["migrate", "check"]),
        (
            &["berth", "control", "--database-url-f"],
            &["--database-url-file"],
        ),
        (&["berth", "openapi", ""], &["agent", "control"]),
    ] {
        let mut bash = Command::new("bash");
        bash.args(["-c", COMPLETE, BERTH]).args(words);
        let completed = print(bash).await;
        let found: Vec<&str> = completed.stdout.lines().collect();
        for word in expected {
            assert!(
                found.contains(word),
                "{words:?}: {found:?} {}",
                completed.stderr
            );
        }
    }
    for shell in ["zsh", "fish"] {
        let script = print(berth(&["completions", shell])).await;
        assert!(script.stdout.contains("database-url-file"), "{shell}");
    }
}

#[tokio::test]
async fn each_command_has_a_man_page_with_its_options() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().to_str().unwrap();
    let written = print(berth(&["man-pages", path])).await;
    assert!(written.status.success(), "{}", written.stderr);
    for (page, arguments) in [
        ("berth-agent.1", &["agent", "--help"][..]),
        ("berth-control.1", &["control", "--help"]),
        ("berth-database-check.1", &["database", "check", "--help"]),
    ] {
        let text = fs::read_to_string(directory.path().join(page)).unwrap();
        let text = text.replace("\\-", "-");
        assert!(text.contains(".TH "), "{page}");
        let help = print(berth(arguments)).await.stdout;
        let words = help.split([' ', '\n', ',', '[', ';', ')']);
        let options: Vec<&str> = words.filter(|word| word.starts_with("--")).collect();
        assert!(options.len() > 5, "{help}");
        for option in options {
            let option = option.trim_end_matches('.');
            assert!(text.contains(option), "{page} lacks {option}");
        }
    }
    let missing = print(berth(&["man-pages", "/nonexistent"])).await;
    assert_eq!(missing.status.code(), Some(1));
    assert!(
        missing.stderr.contains("/nonexistent: "),
        "{}",
        missing.stderr
    );
}
