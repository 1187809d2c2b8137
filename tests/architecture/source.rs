//! The project's Rust files, and what can be read from their text.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// A source file.
pub struct Source {
    /// Relative to the package.
    pub path: String,
    pub text: String,
    /// The text without lines that are comments.
    pub code: String,
    /// The code without its unit tests.
    shipped: String,
}

/// Returns all Rust files below a directory of the package.
pub fn sources(directory: &str) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut directories = vec![root.join(directory)];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path: PathBuf = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("node_modules") {
                directories.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                let path = path.strip_prefix(root).unwrap().to_str().unwrap();
                let code = without_comments(&text);
                found.push(Source {
                    path: path.to_owned(),
                    shipped: without_unit_tests(&code),
                    code,
                    text,
                });
            }
        }
    }
    assert!(!found.is_empty(), "no source below {directory}");
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn without_comments(text: &str) -> String {
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .collect::<Vec<_>>()
        .join("\n")
}

/// Returns the code up to an inline module of unit tests, which is the last item of its file, and
/// without declarations of such modules: `mod tests;`.
fn without_unit_tests(code: &str) -> String {
    let mut parts = code.split("#[cfg(test)]");
    let mut shipped = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once(';') {
            Some((declaration, rest)) if !declaration.contains('{') => shipped.push_str(rest),
            _ => break,
        }
    }
    shipped
}

impl Source {
    pub fn is_in(&self, places: &[&str]) -> bool {
        places.iter().any(|place| self.path.starts_with(place))
    }

    /// Whether the whole file is unit tests.
    pub fn is_unit_tests(&self) -> bool {
        let is_test_module = |name: &&str| self.path.ends_with(name);
        ["/tests.rs", "/fuzz.rs"].iter().any(is_test_module) || self.path.contains("/tests/")
    }

    /// Returns the code without its unit tests, which may import more than the code itself.
    pub fn shipped(&self) -> &str {
        if self.is_unit_tests() {
            return "";
        }
        &self.shipped
    }

    /// Returns the paths within this crate that the file names, without `crate`:
    /// `["http", "sse"]` for `crate::http::sse`, and for `super::sse` in a file of `src/http`.
    pub fn own_paths(&self) -> BTreeSet<Vec<String>> {
        let mut paths = BTreeSet::new();
        let code = self.shipped();
        for end in occurrences(code, "crate::") {
            read_tree(&code[end..], &mut Vec::new(), &mut paths);
        }
        for start in occurrences(code, "super::").map(|end| end - "super::".len()) {
            // Only the first of `super::super::`.
            if code[..start].ends_with("super::") {
                continue;
            }
            let mut module = self.module();
            let mut rest = &code[start..];
            while let Some(after) = rest.strip_prefix("super::") {
                module.pop();
                rest = after;
            }
            read_tree(rest, &mut module, &mut paths);
        }
        paths
    }

    /// Returns the top-level modules of this crate that the file names.
    pub fn own_modules(&self) -> BTreeSet<String> {
        let paths = self.own_paths().into_iter();
        paths.filter_map(|path| path.into_iter().next()).collect()
    }

    /// Returns the path of the file's module within the crate.
    pub fn module(&self) -> Vec<String> {
        let path = self.path.trim_end_matches(".rs").trim_end_matches("/mod");
        path.split('/').skip(1).map(str::to_owned).collect()
    }

    pub fn names_crate(&self, name: &str) -> bool {
        occurrences(&self.code, name).any(|end| {
            let before = self.code[..end - name.len()].chars().next_back();
            let after = &self.code[end..];
            !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':' || c == '"')
                && (after.starts_with("::") || after.starts_with(';'))
        })
    }
}

/// Returns where each occurrence ends.
pub fn occurrences<'a>(text: &'a str, part: &'a str) -> impl Iterator<Item = usize> + 'a {
    text.match_indices(part)
        .map(|(start, found)| start + found.len())
}

/// Returns the identifier at the start of the text.
pub fn identifier(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
    &text[..end.unwrap_or(text.len())]
}

/// Reads a path or a `{…}` group of paths, and returns the text after it.
fn read_tree<'a>(
    text: &'a str,
    prefix: &mut Vec<String>,
    paths: &mut BTreeSet<Vec<String>>,
) -> &'a str {
    let text = text.trim_start();
    if let Some(group) = text.strip_prefix('{') {
        let mut rest = group.trim_start();
        while !rest.is_empty() && !rest.starts_with('}') {
            rest = read_tree(rest, prefix, paths);
            // To the next element: over `as name`, for instance.
            let next = rest.find([',', '}']).unwrap_or(rest.len());
            rest = rest[next..].trim_start_matches(',').trim_start();
        }
        return rest.strip_prefix('}').unwrap_or(rest);
    }
    let name = identifier(text);
    if name.is_empty() {
        paths.insert(prefix.clone());
        return text;
    }
    prefix.push(name.to_owned());
    let rest = &text[name.len()..];
    let rest = match rest.strip_prefix("::") {
        Some(rest) => read_tree(rest, prefix, paths),
        None => {
            paths.insert(prefix.clone());
            rest
        }
    };
    prefix.pop();
    rest
}

/// Fails with the list of all offences.
pub fn assert_none(offences: &[String]) {
    assert!(offences.is_empty(), "\n{}\n", offences.join("\n"));
}

#[test]
fn import_tree_is_flattened() {
    let mut paths = BTreeSet::new();
    let rest = read_tree(
        "{a::{b, c::d as e}, f};",
        &mut vec!["x".to_owned()],
        &mut paths,
    );
    let joined: Vec<String> = paths.iter().map(|path| path.join("::")).collect();
    assert_eq!(joined, ["x::a::b", "x::a::c::d", "x::f"]);
    assert_eq!(rest, ";");
}

#[test]
fn only_unit_tests_are_left_out_of_shipped_code() {
    let code = "mod a;\n#[cfg(test)]\nmod tests;\nmod b;\n#[cfg(test)]\nmod more { use c; }\n";
    assert_eq!(without_unit_tests(code), "mod a;\n\nmod b;\n");
}
