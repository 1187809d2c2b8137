//! TypeScript to JavaScript.
//!
//! The code is parsed as what stands between a function's braces, on its own and not inside a wrapper: so positions are the
//! caller's, and a stray `}` is a syntax error and not a way out of the function. What is printed from the parsed tree is
//! wrapped afterwards.

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

/// A script as the engine takes it.
pub struct Compiled {
    /// An expression: one async function.
    pub javascript: String,
    /// From `javascript` to the caller's code, as JSON.
    pub source_map: String,
}

/// Code that cannot be run, in the caller's own line numbers.
#[derive(Debug, PartialEq)]
pub struct CodeError {
    /// One line.
    pub message: String,
    /// The message with the line it is about.
    pub detail: String,
}

/// Makes `code`, the body of an async function with `parameters`, ready to run.
pub fn compile(code: &str, file_name: &str, parameters: &[String]) -> Result<Compiled, CodeError> {
    let allocator = Allocator::default();
    // A module's rules: strict, with `await`. TypeScript is written so.
    let source_type = SourceType::ts().with_module(true);
    let parsed = Parser::new(&allocator, code, source_type)
        .with_options(ParseOptions {
            allow_return_outside_function: true,
            parse_regular_expression: true,
            ..ParseOptions::default()
        })
        .parse();
    let fail = |diagnostics: &[OxcDiagnostic]| describe(diagnostics, code, file_name);
    if let Some(error) = fail(&parsed.diagnostics) {
        return Err(error);
    }
    let mut program = parsed.program;
    let analysed = SemanticBuilder::new()
        .with_check_syntax_error(true)
        .with_excess_capacity(2.0)
        .with_enum_eval(true)
        .build(&program);
    if let Some(error) = fail(&analysed.diagnostics) {
        return Err(error);
    }
    let scoping = analysed.semantic.into_scoping();
    let transformed = Transformer::new(
        &allocator,
        Path::new(file_name),
        &TransformOptions::default(),
    )
    .build_with_scoping(scoping, &mut program);
    if let Some(error) = fail(&transformed.diagnostics) {
        return Err(error);
    }
    refuse_module_syntax(&mut program, code, file_name)?;

    let printed = Codegen::new()
        .with_options(CodegenOptions {
            source_map_path: Some(file_name.into()),
            ..CodegenOptions::default()
        })
        .build(&program);
    // The head is one line, hence one more line without mappings. The inner block lets a script declare a `page` of its own.
    let javascript = format!(
        "(async function ({}) {{ \"use strict\"; {{\n{}\n}}}})",
        parameters.join(", "),
        printed.code
    );
    let mappings = printed
        .map
        .map(|map| map.to_json().mappings)
        .unwrap_or_default();
    let source_map = serde_json::json!({
        "version": 3,
        "sources": [file_name],
        "names": [],
        "mappings": format!(";{mappings}"),
    });
    Ok(Compiled {
        javascript,
        source_map: source_map.to_string(),
    })
}

/// Imports of types are gone by now. What is left asks for modules, which a function body has none of.
fn refuse_module_syntax(
    program: &mut Program,
    code: &str,
    file_name: &str,
) -> Result<(), CodeError> {
    // The transformer leaves an empty `export {}` to mark a module that had imports.
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
            let what = if matches!(statement, Statement::ImportDeclaration(_)) {
                "import"
            } else {
                "export"
            };
            Err(at(
                &format!(
                    "{what} is not available in a script, which is the body of a function: page, context, browser, playwright and fs are in scope"
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
    Some(at(&message, offset, code, file_name))
}

fn at(message: &str, offset: usize, code: &str, file_name: &str) -> CodeError {
    let before = code.get(..offset).unwrap_or(code);
    let line = before.matches('\n').count() + 1;
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let column = before[line_start..].chars().count() + 1;
    let text = code[line_start..].lines().next().unwrap_or_default();
    let message = format!("SyntaxError: {message} ({file_name}:{line}:{column})");
    // A very long line is shown around the place it is about.
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

    fn compiled(code: &str) -> Result<Compiled, CodeError> {
        compile(code, "script.ts", &["page".to_owned(), "fs".to_owned()])
    }

    fn refusal(code: &str) -> String {
        match compiled(code) {
            Ok(script) => panic!("{code} became {}", script.javascript),
            Err(err) => err.message,
        }
    }

    #[test]
    fn types_go_and_the_rest_stands_in_one_async_function() {
        let script = compiled("const a: number = 1;\nreturn await page.title() as string;")
            .expect("compiles");
        assert_eq!(
            script.javascript,
            "(async function (page, fs) { \"use strict\"; {\nconst a = 1;\nreturn await page.title();\n\n}})"
        );
        assert!(script.source_map.contains("\"sources\":[\"script.ts\"]"));
    }

    #[test]
    fn no_brace_leads_out_of_the_function() {
        for code in [
            "}",
            "} async function more() {",
            "}}); evil(); (async function () {{",
            "return 1; }, function () {",
            "/* } */ }",
            "`${'}'}` }",
            "(",
        ] {
            assert!(refusal(code).starts_with("SyntaxError: "), "{code}");
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
            if let Ok(script) = compiled(code) {
                assert!(script.javascript.ends_with("\n}})"), "{code}");
            }
        }
    }

    #[test]
    fn errors_name_the_callers_own_place() {
        assert_eq!(
            refusal("const a = 1;\nconst é = ;"),
            "SyntaxError: Unexpected token (script.ts:2:11)"
        );
        let long = format!("{}const = 1", "x; ".repeat(1000));
        let err = compiled(&long).err().expect("is refused");
        assert!(err.detail.len() < 500, "{}", err.detail);
    }

    #[test]
    fn modules_are_refused_and_types_from_them_are_not() {
        assert!(compiled("import type { Page } from 'playwright'; const p: Page = page;").is_ok());
        assert!(
            refusal("import x from 'x'; x();").starts_with("SyntaxError: import is not available")
        );
        assert!(refusal("export const a = 1;").starts_with("SyntaxError: export is not available"));
    }
}
