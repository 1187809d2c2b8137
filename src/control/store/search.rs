//! Conditions that search for a text in columns.

use sea_orm::{
    ColumnTrait, Condition, ExprTrait,
    sea_query::{BinOper, Expr, Func},
};

/// Returns the condition that one of `columns` contains `text`, ignoring case. SQLite ignores the
/// case of ASCII letters only.
pub(super) fn contains<C: ColumnTrait>(text: &str, columns: &[C]) -> Condition {
    let pattern = like_pattern(text);
    columns.iter().fold(Condition::any(), |any, column| {
        any.add(matches(Expr::col(column.as_column_ref()), &pattern))
    })
}

/// Returns the condition that `column` ends with `text`, ignoring case.
pub(super) fn ends_with<C: ColumnTrait>(text: &str, column: C) -> Condition {
    let pattern = format!("%{}", escape(text));
    Condition::all().add(matches(Expr::col(column.as_column_ref()), &pattern))
}

/// Compares both sides in lower case as the database converts it, because databases differ in the
/// letters that they convert.
fn matches(column: Expr, pattern: &str) -> Expr {
    let pattern = Expr::from(Func::lower(Expr::value(pattern)));
    let escaped = pattern.binary(BinOper::Escape, Expr::Constant('\\'.into()));
    Expr::from(Func::lower(column)).binary(BinOper::Like, escaped)
}

/// Returns the pattern for `text` anywhere in a column.
fn like_pattern(text: &str) -> String {
    format!("%{}%", escape(text))
}

/// Escapes the wildcards of patterns.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '%' | '_' | '\\') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_in_the_text_are_escaped() {
        assert_eq!(like_pattern("A%_\\b"), "%A\\%\\_\\\\b%");
    }
}
