//! Compiles TypeScript to JavaScript.
//!
//! The code is parsed as the body of a function, without a wrapper: so positions are those of the
//! original code, and a stray `}` is a syntax error instead of an escape from the function. The
//! JavaScript that is printed from the syntax tree is wrapped afterwards.

use std::path::Path;

use oxc::{
    allocator::Allocator,
    ast::ast::{Program, Statement},
    codegen::{Codegen, CodegenOptions},
    diagnostics::OxcDiagnostic,
    parser::{ParseOptions, Parser},
    semantic::SemanticBuilder,
    span::{GetSpan, SourceType},
    transformer::{TransformOptions, Transformer},
};

/// A compiled script.
pub(crate) struct CompiledScript {
    /// An expression: one async function.
    pub(crate) javascript: String,
    /// Maps positions in `javascript` to the original code, as JSON.
    pub(crate) source_map: String,
}

/// A syntax error, with line numbers of the original code.
#[derive(Debug, PartialEq)]
pub(crate) struct CodeError {
    /// A single line.
    pub(crate) message: String,
    /// The message with the line of code.
    pub(crate) detail: String,
}

/// Compiles `code`, the body of an async function with `parameters`.
pub(crate) fn compile(
    code: &str,
    file_name: &str,
    parameters: &[String],
) -> Result<CompiledScript, CodeError> {
    let allocator = Allocator::default();
    // The rules of modules: strict mode, with `await`.
    let source_type = SourceType::ts().with_module(true);
    let parsed = Parser::new(&allocator, code, source_type)
        .with_options(ParseOptions {
            allow_return_outside_function: true,
            parse_regular_expression: true,
            ..ParseOptions::default()
        })
        .parse();
    let first_error = |diagnostics: &[OxcDiagnostic]| describe(diagnostics, code, file_name);
    if let Some(error) = first_error(&parsed.diagnostics) {
        return Err(error);
    }
    let mut program = parsed.program;
    let analysed = SemanticBuilder::new()
        .with_check_syntax_error(true)
        .with_excess_capacity(2.0)
        .with_enum_eval(true)
        .build(&program);
    if let Some(error) = first_error(&analysed.diagnostics) {
        return Err(error);
    }
    let scoping = analysed.semantic.into_scoping();
    let transformed = Transformer::new(
        &allocator,
        Path::new(file_name),
        &TransformOptions::default(),
    )
    .build_with_scoping(scoping, &mut program);
    if let Some(error) = first_error(&transformed.diagnostics) {
        return Err(error);
    }
    reject_module_syntax(&mut program, code, file_name)?;

    let printed = Codegen::new()
        .with_options(CodegenOptions {
            source_map_path: Some(file_name.into()),
            ..CodegenOptions::default()
        })
        .build(&program);
    // The first line is added, so the source map starts with a line without mappings. The inner
    // block lets a script declare its own `page`.
    let javascript = format!(
        "(async function ({}) {{ \"use strict\"; {{\n{}\n}}}})",
        parameters.join(", "),
        printed.code
    );
    let mappings = printed
        .map
        .map(|map| map.to_json().mappings)
        .unwrap_or_default();
    Ok(CompiledScript {
        javascript,
        source_map: source_map(file_name, &mappings),
    })
}

/// Returns the source map of the wrapped code, which has one more line at the start.
fn source_map(file_name: &str, mappings: &str) -> String {
    let source_map = serde_json::json!({
        "version": 3,
        "sources": [file_name],
        "names": [],
        "mappings": format!(";{mappings}"),
    });
    source_map.to_string()
}

/// Rejects imports and exports, which a function body cannot have. Imports of types are already
/// removed.
fn reject_module_syntax(
    program: &mut Program,
    code: &str,
    file_name: &str,
) -> Result<(), CodeError> {
    // The transformer leaves an empty `export {}` in a module that had imports.
    program.body.retain(|statement| {
        !matches!(statement, Statement::ExportNamedDeclaration(export)
            if export.specifiers.is_empty())
    });
    match program
        .body
        .iter()
        .find(|statement| statement.is_module_declaration())
    {
        None => Ok(()),
        Some(statement) => {
            let keyword = if matches!(statement, Statement::ImportDeclaration(_)) {
                "import"
            } else {
                "export"
            };
            Err(error_at(
                &format!(
                    "{keyword} is not available in a script, which is the body of a function: page, context, browser, playwright and fs are in scope"
                ),
                statement.span().start as usize,
                code,
                file_name,
            ))
        }
    }
}

fn describe(diagnostics: &[OxcDiagnostic], code: &str, file_name: &str) -> Option<CodeError> {
    let diagnostic = diagnostics.first()?;
    let offset = diagnostic
        .labels
        .first()
        .map_or(0, |label| label.offset() as usize);
    let message = match &diagnostic.help {
        Some(help) => format!("{}. {help}", diagnostic.message.trim_end_matches('.')),
        None => diagnostic.message.to_string(),
    };
    Some(error_at(&message, offset, code, file_name))
}

fn error_at(message: &str, offset: usize, code: &str, file_name: &str) -> CodeError {
    let before = code.get(..offset).unwrap_or(code);
    let line = before.matches('\n').count() + 1;
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let column = before[line_start..].chars().count() + 1;
    let text = code[line_start..].lines().next().unwrap_or_default();
    let message = format!("SyntaxError: {message} ({file_name}:{line}:{column})");
    // Shows only the part of a very long line that is around the error.
    let shown_from = column.saturating_sub(80);
    let shown: String = text.chars().skip(shown_from).take(160).collect();
    let gutter = format!("{line} | ");
    let caret = " ".repeat(gutter.len() + column - 1 - shown_from);
    CodeError {
        detail: format!("{message}\n{gutter}{shown}\n{caret}^"),
        message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compile_script(code: &str) -> Result<CompiledScript, CodeError> {
        compile(code, "script.ts", &["page".to_owned(), "fs".to_owned()])
    }

    fn syntax_error(code: &str) -> String {
        match compile_script(code) {
            Ok(script) => panic!("{code} compiled to {}", script.javascript),
            Err(err) => err.message,
        }
    }

    #[test]
    fn types_are_removed_and_code_is_wrapped_in_async_function() {
        let script = compile_script("const a: number = 1;\nreturn await page.title() as string;")
            .expect("compiles");
        assert_eq!(
            script.javascript,
            "(async function (page, fs) { \"use strict\"; {\nconst a = 1;\nreturn await page.title();\n\n}})"
        );
        assert!(script.source_map.contains("\"sources\":[\"script.ts\"]"));
    }

    #[test]
    fn stray_brace_is_syntax_error() {
        for code in [
            "}",
            "} async function more() {",
            "}}); evil(); (async function () {{",
            "return 1; }, function () {",
            "/* } */ }",
            "`${'}'}` }",
            "(",
        ] {
            assert!(syntax_error(code).starts_with("SyntaxError: "), "{code}");
        }
        for code in [
            "// no newline at the end",
            "/* { */",
            "'}'",
            "`}`",
            "/}/",
            "<!-- x",
            "--> x",
        ] {
            if let Ok(script) = compile_script(code) {
                assert!(script.javascript.ends_with("\n}})"), "{code}");
            }
        }
    }

    #[test]
    fn syntax_error_has_position_in_original_code() {
        assert_eq!(
            syntax_error("const a = 1;\nconst é = ;"),
            "SyntaxError: Unexpected token (script.ts:2:11)"
        );
        let long = format!("{}const = 1", "x; ".repeat(1000));
        let err = compile_script(&long).err().expect("a syntax error");
        assert!(err.detail.len() < 500, "{}", err.detail);
    }

    #[test]
    fn modules_are_rejected_but_type_imports_are_not() {
        assert!(
            compile_script("import type { Page } from 'playwright'; const p: Page = page;").is_ok()
        );
        assert!(
            syntax_error("import x from 'x'; x();")
                .starts_with("SyntaxError: import is not available")
        );
        assert!(
            syntax_error("export const a = 1;").starts_with("SyntaxError: export is not available")
        );
    }
}
