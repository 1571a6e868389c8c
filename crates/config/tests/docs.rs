//! `docs/configuration.md` says what the schema says, and its examples are valid.
//!
//! To write the tables anew after a change of the schema: `ISTHMUS_BLESS=1 cargo test -p isthmus-config`.

#![allow(clippy::unwrap_used, reason = "a failed test is what a panic here means")]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use isthmus_config::schema::{CLIENT, DefaultValue, Key, SERVER, Schema};
use isthmus_config::{ClientConfig, Overrides, ServerConfig};

fn document() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md")
}

fn default_text(key: &Key) -> String {
    match key.default {
        DefaultValue::Required => "**required**".into(),
        DefaultValue::Unset => "not set".into(),
        DefaultValue::Value(toml) => format!("`{toml}`"),
        DefaultValue::Computed(words) => words.into(),
    }
}

/// The tables of one side, section by section.
fn reference(schema: &Schema) -> String {
    let mut text = String::new();
    for section in schema.sections() {
        let title =
            if schema.is_repeated(section) { format!("[[{section}]]") } else { format!("[{section}]") };
        writeln!(text, "\n#### `{title}`\n\n| key | takes | default | what it does |\n|---|---|---|---|")
            .unwrap();
        for key in schema.keys.iter().filter(|key| key.section == section) {
            let row = format!(
                "| `{}` | {} | {} | {} |",
                key.path(),
                key.shape.expected().replace('*', "\\*"),
                default_text(key),
                key.doc
            );
            writeln!(text, "{row}").unwrap();
        }
    }
    text.push('\n');
    text
}

fn between<'t>(text: &'t str, start: &str, end: &str) -> (usize, &'t str) {
    let from = text.find(start).unwrap_or_else(|| panic!("the document has no {start}")) + start.len();
    let len = text[from..].find(end).unwrap_or_else(|| panic!("the document has no {end} after {start}"));
    (from, &text[from..from + len])
}

#[test]
fn the_document_lists_every_key_with_its_default() {
    let mut text = std::fs::read_to_string(document()).unwrap();
    for schema in [&CLIENT, &SERVER] {
        let start = format!("<!-- keys: {} -->\n", schema.side);
        let (from, old) = between(&text, &start, "<!-- end -->");
        let new = reference(schema);
        if std::env::var_os("ISTHMUS_BLESS").is_some() {
            let range = from..from + old.len();
            text.replace_range(range, &new);
            std::fs::write(document(), &text).unwrap();
            continue;
        }
        for (is, was) in new.lines().zip(old.lines()) {
            assert_eq!(is, was, "docs/configuration.md and the schema differ");
        }
        assert_eq!(new.lines().count(), old.lines().count());
    }
}

#[test]
fn the_examples_in_the_document_are_valid() {
    let text = std::fs::read_to_string(document()).unwrap();
    let mut seen = 0;
    for (fence, client) in [("```toml client\n", true), ("```toml server\n", false)] {
        let mut rest = text.as_str();
        while rest.contains(fence) {
            let (from, example) = between(rest, fence, "```");
            let file = Path::new("example.toml");
            if client {
                ClientConfig::parse(example.as_bytes(), file, &Overrides::none())
                    .unwrap_or_else(|e| panic!("{e}\n{example}"));
            } else {
                ServerConfig::parse(example.as_bytes(), file, &Overrides::none())
                    .unwrap_or_else(|e| panic!("{e}\n{example}"));
            }
            seen += 1;
            rest = &rest[from..];
        }
    }
    assert_eq!(text.matches("```toml").count(), seen, "every example says whose it is");
    assert!(seen >= 4);
}
