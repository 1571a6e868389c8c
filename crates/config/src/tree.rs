//! The raw configuration: values with the places they came from, file and overrides merged, nothing interpreted yet.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeInteger, DeTable, DeValue};

use crate::error::{ConfigError, Origin, Problem};

/// Longest piece of a value that an error message repeats, in characters.
const SHOWN_CHARS_MAX: usize = 60;
/// Longest piece of a line that a syntax error repeats, in characters.
const LINE_CHARS_MAX: usize = 40;

/// A value and where it came from.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub value: Value,
    pub origin: Origin,
}

/// A TOML value. Integers are those of 64 bits; what has another type is kept as its description.
#[derive(Clone, Debug)]
pub(crate) enum Value {
    Text(String),
    Integer(i64),
    Boolean(bool),
    List(Vec<Node>),
    Table(Table),
    Other(String),
}

/// A table: key, place of the key, value.
#[derive(Clone, Debug, Default)]
pub(crate) struct Table(pub BTreeMap<String, (Origin, Node)>);

impl Table {
    pub fn node(&self, key: &str) -> Option<&Node> {
        self.0.get(key).map(|(_, node)| node)
    }

    /// What stands at a section's path, such as `keys.command`, and where its name stands.
    pub fn at(&self, path: &str) -> Option<&(Origin, Node)> {
        match path.split_once('.') {
            None => self.0.get(path),
            Some((first, rest)) => match &self.0.get(first)?.1.value {
                Value::Table(table) => table.at(rest),
                _ => None,
            },
        }
    }

    /// Puts a node at a section's path. A section on the way that is not a table stays as it is, to be reported when it
    /// is read.
    pub fn put(&mut self, path: &str, origin: &Origin, node: Node) {
        match path.split_once('.') {
            None => {
                self.0.insert(path.to_string(), (origin.clone(), node));
            }
            Some((first, rest)) => {
                let empty = || Node { value: Value::Table(Table::default()), origin: origin.clone() };
                let (_, section) =
                    self.0.entry(first.to_string()).or_insert_with(|| (origin.clone(), empty()));
                if let Value::Table(table) = &mut section.value {
                    table.put(rest, origin, node);
                }
            }
        }
    }
}

impl fmt::Display for Value {
    /// A short description for error messages, such as `the integer 7`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Text(text) => write!(f, "the text {}", shown(text)),
            Value::Integer(integer) => write!(f, "the integer {integer}"),
            Value::Boolean(boolean) => write!(f, "the boolean {boolean}"),
            Value::List(_) => f.write_str("a list"),
            Value::Table(_) => f.write_str("a table"),
            Value::Other(description) => f.write_str(description),
        }
    }
}

/// `text` in quotes, cut if long; keys and hashes that strayed into a configuration are not repeated.
pub(crate) fn shown(text: &str) -> String {
    if let Some(secret) = secret(text) {
        return secret.into();
    }
    let mut short: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    format!("{short:?}")
}

/// What to call a text that is a secret itself and not the name of a file with one.
pub(crate) fn secret(text: &str) -> Option<&'static str> {
    if text.contains("-----BEGIN") {
        return Some("(a PEM block)");
    }
    let longest = text.split(|c: char| !c.is_ascii_hexdigit()).map(str::len).max().unwrap_or_default();
    (longest >= HASH_DIGITS).then_some("(what may be a key or a password hash)")
}

/// Digits of an NT hash, the shortest secret that is written in hex.
const HASH_DIGITS: usize = 32;

/// Reads a whole file. Syntax errors leave what could be read around them.
pub(crate) fn parse_document(text: &str, name: &Arc<str>) -> (Table, Vec<ConfigError>) {
    let lines = Lines::new(text);
    let place = |offset: usize| Origin::File { name: Arc::clone(name), line: lines.line(offset) };
    let (table, errors) = DeTable::parse_recoverable(text);
    let errors = errors
        .into_iter()
        .map(|error| {
            let offset = error.span().map_or(0, |span| span.start);
            ConfigError {
                place: place(offset),
                key: lines.key_text(offset),
                problem: Problem::Syntax(error.message().replace('\n', ", ")),
            }
        })
        .collect();
    (convert_table(table.into_inner(), &place), errors)
}

/// Reads one TOML value, all of it from `origin`.
pub(crate) fn parse_value(text: &str, origin: &Origin) -> Result<Node, String> {
    let value = DeValue::parse(text).map_err(|error| error.message().replace('\n', ", "))?;
    Ok(convert(value, &|_| origin.clone()))
}

/// The line (from 1) and a message when `bytes` are not UTF-8.
pub(crate) fn utf8(bytes: &[u8]) -> Result<&str, (usize, String)> {
    std::str::from_utf8(bytes).map_err(|error| {
        let line = bytes[..error.valid_up_to()].iter().filter(|&&b| b == b'\n').count() + 1;
        (line, "the line has bytes that are not UTF-8".to_string())
    })
}

fn convert_table(table: DeTable<'_>, place: &dyn Fn(usize) -> Origin) -> Table {
    let entry = |(key, value): (Spanned<std::borrow::Cow<'_, str>>, Spanned<DeValue<'_>>)| {
        let origin = place(key.span().start);
        (key.into_inner().into_owned(), (origin, convert(value, place)))
    };
    Table(table.into_iter().map(entry).collect())
}

fn convert(value: Spanned<DeValue<'_>>, place: &dyn Fn(usize) -> Origin) -> Node {
    let origin = place(value.span().start);
    let value = match value.into_inner() {
        DeValue::String(text) => Value::Text(text.into_owned()),
        DeValue::Integer(integer) => integer_value(&integer),
        DeValue::Float(float) => Value::Other(format!("the number {}", float.as_str())),
        DeValue::Boolean(boolean) => Value::Boolean(boolean),
        DeValue::Datetime(datetime) => Value::Other(format!("the date or time {datetime}")),
        DeValue::Array(items) => Value::List(items.into_iter().map(|item| convert(item, place)).collect()),
        DeValue::Table(table) => Value::Table(convert_table(table, place)),
    };
    Node { value, origin }
}

fn integer_value(integer: &DeInteger<'_>) -> Value {
    i64::from_str_radix(integer.as_str(), integer.radix()).map_or_else(
        |_| Value::Other(format!("the integer {}", shown(integer.as_str()).trim_matches('"'))),
        Value::Integer,
    )
}

/// Line numbers by byte offset.
struct Lines<'t> {
    text: &'t str,
    starts: Vec<usize>,
}

impl<'t> Lines<'t> {
    fn new(text: &'t str) -> Lines<'t> {
        let newlines = text.bytes().enumerate().filter(|&(_, b)| b == b'\n').map(|(i, _)| i + 1);
        Lines { text, starts: std::iter::once(0).chain(newlines).collect() }
    }

    fn line(&self, offset: usize) -> usize {
        self.starts.partition_point(|&start| start <= offset.min(self.text.len())).max(1)
    }

    /// What stands before the `=` on the line, or the line: the nearest thing to a key that broken text has.
    fn key_text(&self, offset: usize) -> String {
        let line = self.line(offset);
        let start = self.starts.get(line - 1).copied().unwrap_or(0);
        let text = self.text.get(start..).unwrap_or("").lines().next().unwrap_or("");
        let key: String = text.split('=').next().unwrap_or("").trim().chars().take(LINE_CHARS_MAX).collect();
        if key.is_empty() { "(empty line)".into() } else { key }
    }
}
