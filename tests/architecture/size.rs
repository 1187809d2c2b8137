//! The length of source files. The length of functions is a lint (clippy.toml).

use super::source::{assert_none, sources};

const MAX_LINES: usize = 500;

#[test]
fn source_files_have_at_most_500_lines() {
    let offences: Vec<String> = sources("src")
        .into_iter()
        .chain(sources("runtime"))
        .chain(sources("benches"))
        .chain(sources("tests/support"))
        .chain(sources("tests/architecture"))
        .filter(|source| !source.is_unit_tests())
        .filter_map(|source| {
            let count = source.text.lines().count();
            (count > MAX_LINES).then(|| {
                format!(
                    "{} has {count} lines: split it, or move its unit tests to tests.rs",
                    source.path
                )
            })
        })
        .collect();
    assert_none(&offences);
}
