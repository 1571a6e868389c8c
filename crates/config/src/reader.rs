//! From the raw tree to typed values: every key is read by its schema entry, every fault is collected, and what was read
//! is kept as the effective configuration.

use std::borrow::Cow;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use crate::address::HostPort;
use crate::effective::{Effective, Warning};
use crate::error::{ConfigError, Origin, Problem};
use crate::schema::{DefaultValue, Key, Schema, Shape};
use crate::tree::{Node, Table, Value, parse_value, secret, shown};
use crate::units::{Size, format_duration, parse_duration};

/// Longest free text, in bytes.
const TEXT_LEN_MAX: usize = 64;
/// Longest path, in bytes (Linux `PATH_MAX`).
const PATH_LEN_MAX: usize = 4096;

/// A table that keys are read from; without a table, every key is absent.
#[derive(Clone, Debug)]
pub(crate) struct Section<'t> {
    name: &'static str,
    /// Place in a list of tables, from 0.
    index: Option<usize>,
    table: Option<&'t Table>,
    place: Origin,
}

/// One value that is wrong, or one entry of a list.
struct Fault {
    origin: Origin,
    problem: Problem,
}

pub(crate) struct Reader<'t> {
    tree: &'t Table,
    file: Arc<str>,
    /// What relative paths of the file are relative to, and what those of overrides are.
    bases: (PathBuf, PathBuf),
    pub errors: Vec<ConfigError>,
    pub warnings: Vec<Warning>,
    pub effective: Effective,
}

impl Section<'_> {
    /// `section.name`, or `section[2].name` for the second table of a list.
    pub fn path(&self, name: &str) -> String {
        format!("{}.{name}", self.title())
    }

    pub fn title(&self) -> String {
        self.index.map_or_else(|| self.name.to_string(), |index| format!("{}[{}]", self.name, index + 1))
    }

    /// Whether the key is there, right or wrong.
    pub fn has(&self, key: &Key) -> bool {
        self.table.is_some_and(|table| table.node(key.name).is_some())
    }

    /// Where the key stands; where its section stands if it does not.
    pub fn place(&self, key: &Key) -> Origin {
        self.table
            .and_then(|t| t.node(key.name))
            .map_or_else(|| self.place.clone(), |node| node.origin.clone())
    }
}

impl<'t> Reader<'t> {
    pub fn new(schema: &'static Schema, tree: &'t Table, file: &Path) -> Reader<'t> {
        let here = std::env::current_dir().unwrap_or_default();
        let folder = here.join(file).parent().map(Path::to_path_buf).unwrap_or_default();
        Reader {
            tree,
            file: file.to_string_lossy().into(),
            bases: (folder, here),
            errors: Vec::new(),
            warnings: Vec::new(),
            effective: Effective::new(schema),
        }
    }

    /// The section `[name]`; an empty one if it is not there.
    pub fn section(&mut self, name: &'static str) -> Section<'t> {
        let mut section = Section { name, index: None, table: None, place: self.start_of_file() };
        if let Some((origin, node)) = self.tree.at(name) {
            section.place = origin.clone();
            match &node.value {
                Value::Table(table) => section.table = Some(table),
                other => self.fault(origin, name, wrong_type(format!("a section [{name}]"), other)),
            }
        }
        section
    }

    /// The sections `[[name]]`, in order. More than `most` of them is an error.
    pub fn sections(&mut self, name: &'static str, most: usize) -> Vec<Section<'t>> {
        let expected = format!("a list of sections, each starting with [[{name}]]");
        let Some((origin, node)) = self.tree.at(name) else { return Vec::new() };
        let Value::List(items) = &node.value else {
            self.fault(origin, name, wrong_type(expected, &node.value));
            return Vec::new();
        };
        if items.len() > most {
            let why = format!("has {} entries", items.len());
            let expected = format!("at most {most}");
            self.fault(origin, name, Problem::Impossible { found: "the list".into(), why, expected });
        }
        let mut sections = Vec::new();
        for (index, item) in items.iter().take(most).enumerate() {
            let mut section = Section { name, index: Some(index), table: None, place: item.origin.clone() };
            match &item.value {
                Value::Table(table) => section.table = Some(table),
                other => self.fault(&item.origin, &section.title(), wrong_type(expected.clone(), other)),
            }
            sections.push(section);
        }
        sections
    }

    /// Records a fault that no single key shows.
    pub fn conflict(&mut self, section: &Section<'_>, key: &Key, message: impl Into<String>) {
        self.fault(&section.place(key), &section.path(key.name), Problem::Conflict(message.into()));
    }

    /// Records that a whole section is missing.
    pub fn missing_section(&mut self, name: &str, expected: &str) {
        self.fault(&self.start_of_file(), name, Problem::Missing { expected: expected.into() });
    }

    pub fn warn(&mut self, section: &Section<'_>, key: &Key, text: impl Into<String>) {
        let warning = Warning { place: section.place(key), key: section.path(key.name), text: text.into() };
        self.warnings.push(warning);
    }

    /// Records the value of a key that was computed from others.
    pub fn computed(&mut self, section: &Section<'_>, key: &'static Key, toml: String) {
        self.effective.push(section.index, key, toml, Origin::Default);
    }

    pub fn boolean(&mut self, section: &Section<'_>, key: &'static Key) -> Option<bool> {
        let convert = |node: &Node| match node.value {
            Value::Boolean(boolean) => Ok(boolean),
            _ => Err(vec![mistyped(node, key)]),
        };
        self.read(section, key, convert, bool::to_string)
    }

    pub fn integer(&mut self, section: &Section<'_>, key: &'static Key) -> Option<u32> {
        let convert = |node: &Node| match (&node.value, key.shape) {
            (Value::Integer(integer), Shape::Integer(least, most)) => u32::try_from(*integer)
                .ok()
                .filter(|_| (least..=most).contains(integer))
                .ok_or_else(|| vec![impossible(node, key, "is out of range")]),
            _ => Err(vec![mistyped(node, key)]),
        };
        self.read(section, key, convert, u32::to_string)
    }

    pub fn size(&mut self, section: &Section<'_>, key: &'static Key) -> Option<Size> {
        let parse = |text: &str| match (text.parse::<Size>()?, key.shape) {
            (size, Shape::Size(least, most)) if size < least || size > most => {
                Err("is out of range".to_string())
            }
            (size, _) => Ok(size),
        };
        self.text(section, key, parse, |size| quoted(&size.to_string()))
    }

    pub fn duration(&mut self, section: &Section<'_>, key: &'static Key) -> Option<Duration> {
        let parse = |text: &str| match (parse_duration(text)?, key.shape) {
            (d, Shape::Duration(least, most)) if d < least || d > most => Err("is out of range".to_string()),
            (duration, _) => Ok(duration),
        };
        self.text(section, key, parse, |duration| quoted(&format_duration(*duration)))
    }

    /// An absolute path. A relative one starts at the folder of the file it stands in, or, from the environment or a
    /// flag, at the current folder.
    pub fn path(&mut self, section: &Section<'_>, key: &'static Key) -> Option<PathBuf> {
        let base = self.base(section, key);
        self.text(section, key, |text| absolute(&base, text), |path| quoted(&path.to_string_lossy()))
    }

    /// As [`Reader::path`], several of them.
    pub fn paths(&mut self, section: &Section<'_>, key: &'static Key) -> Option<Vec<PathBuf>> {
        let base = self.base(section, key);
        self.entries(section, key, |text| absolute(&base, text), |path| quoted(&path.to_string_lossy()))
    }

    fn base(&self, section: &Section<'_>, key: &Key) -> PathBuf {
        let from_file = matches!(section.place(key), Origin::File { .. });
        if from_file { self.bases.0.clone() } else { self.bases.1.clone() }
    }

    pub fn host_port(&mut self, section: &Section<'_>, key: &'static Key) -> Option<HostPort> {
        let default_port = if let Shape::HostPort(port) = key.shape { port } else { 0 };
        self.text(
            section,
            key,
            |text| HostPort::parse(text, default_port),
            |value| quoted(&value.to_string()),
        )
    }

    /// Free text for people: one line, not too long.
    pub fn label(&mut self, section: &Section<'_>, key: &'static Key) -> Option<String> {
        let parse = |text: &str| {
            if text.is_empty() || text.len() > TEXT_LEN_MAX {
                Err(format!("is not 1 to {TEXT_LEN_MAX} bytes long"))
            } else if text.contains(char::is_control) {
                Err("has control characters".into())
            } else {
                Ok(text.to_string())
            }
        };
        self.text(section, key, parse, |text| quoted(text))
    }

    /// Anything written as text. `T`'s own reading and writing are used.
    pub fn parsed<T: FromStr<Err = String> + Display>(
        &mut self,
        section: &Section<'_>,
        key: &'static Key,
    ) -> Option<T> {
        self.text(section, key, str::parse, |value: &T| quoted(&value.to_string()))
    }

    /// Written as text or as an integer, such as a compression level.
    pub fn parsed_or_integer<T: FromStr<Err = String> + Display>(
        &mut self,
        section: &Section<'_>,
        key: &'static Key,
    ) -> Option<T> {
        let convert = |node: &Node| scalar(node, key, true, str::parse).map_err(|fault| vec![fault]);
        self.read(section, key, convert, |value: &T| bare_or_quoted(&value.to_string()))
    }

    /// A list; a single entry may stand without brackets. Entries may be integers where they are ports.
    pub fn list<T: FromStr<Err = String> + Display>(
        &mut self,
        section: &Section<'_>,
        key: &'static Key,
    ) -> Option<Vec<T>> {
        let integers = key.shape == Shape::Ports;
        let show = |value: &T| {
            if integers { bare_or_quoted(&value.to_string()) } else { quoted(&value.to_string()) }
        };
        self.entries(section, key, str::parse, show)
    }

    /// As [`Reader::list`], with a reading and a writing of its own.
    pub fn entries<T>(
        &mut self,
        section: &Section<'_>,
        key: &'static Key,
        parse: impl Fn(&str) -> Result<T, String>,
        show: impl Fn(&T) -> String,
    ) -> Option<Vec<T>> {
        let integers = key.shape == Shape::Ports;
        let most = key.shape.entries_max();
        let convert = |node: &Node| {
            let items = match &node.value {
                Value::List(items) => items.as_slice(),
                _ => std::slice::from_ref(node),
            };
            if items.len() > most {
                return Err(vec![impossible(node, key, &format!("has more than {most} entries"))]);
            }
            let (good, bad): (Vec<_>, Vec<_>) =
                items.iter().map(|item| scalar(item, key, integers, &parse)).partition(Result::is_ok);
            if bad.is_empty() {
                Ok(good.into_iter().filter_map(Result::ok).collect())
            } else {
                Err(bad.into_iter().filter_map(Result::err).collect())
            }
        };
        self.read(section, key, convert, |values: &Vec<T>| {
            format!("[{}]", values.iter().map(&show).collect::<Vec<_>>().join(", "))
        })
    }

    fn text<T>(
        &mut self,
        section: &Section<'_>,
        key: &'static Key,
        parse: impl Fn(&str) -> Result<T, String>,
        show: impl Fn(&T) -> String,
    ) -> Option<T> {
        let convert = |node: &Node| match &node.value {
            Value::Text(text) => parse(text).map_err(|why| vec![impossible(node, key, &why)]),
            _ => Err(vec![mistyped(node, key)]),
        };
        self.read(section, key, convert, show)
    }

    /// Finds the key or its default, converts it, and records the value or the faults.
    fn read<T>(
        &mut self,
        section: &Section<'_>,
        key: &'static Key,
        convert: impl Fn(&Node) -> Result<T, Vec<Fault>>,
        show: impl Fn(&T) -> String,
    ) -> Option<T> {
        let node = match (section.table.and_then(|table| table.node(key.name)), key.default) {
            (Some(node), _) => Cow::Borrowed(node),
            (None, DefaultValue::Value(text)) => match parse_value(text, &Origin::Default) {
                Ok(node) => Cow::Owned(node),
                Err(message) => {
                    self.fault(&Origin::Default, &section.path(key.name), Problem::Syntax(message));
                    return None;
                }
            },
            (None, DefaultValue::Required) => {
                let expected = key.shape.expected();
                self.fault(&section.place, &section.path(key.name), Problem::Missing { expected });
                return None;
            }
            (None, DefaultValue::Unset | DefaultValue::Computed(_)) => return None,
        };
        match convert(&node) {
            Ok(value) => {
                self.effective.push(section.index, key, show(&value), node.origin.clone());
                Some(value)
            }
            Err(faults) => {
                for fault in faults {
                    self.fault(&fault.origin, &section.path(key.name), fault.problem);
                }
                None
            }
        }
    }

    fn fault(&mut self, place: &Origin, key: &str, problem: Problem) {
        self.errors.push(ConfigError { place: place.clone(), key: key.to_string(), problem });
    }

    fn start_of_file(&self) -> Origin {
        Origin::File { name: Arc::clone(&self.file), line: 1 }
    }
}

/// `text` as a TOML string.
pub(crate) fn quoted(text: &str) -> String {
    toml::Value::String(text.to_string()).to_string()
}

fn bare_or_quoted(text: &str) -> String {
    if text.parse::<u32>().is_ok() { text.to_string() } else { quoted(text) }
}

fn absolute(base: &Path, text: &str) -> Result<PathBuf, String> {
    if text.is_empty() {
        Err("names nothing".to_string())
    } else if text.contains("-----BEGIN") {
        Err("is a PEM block itself, not the path of a file with it".into())
    } else if text.contains(':') && secret(text).is_some() {
        Err("is a line of a password hash file itself, not the path of that file".into())
    } else if text.len() > PATH_LEN_MAX || text.contains(char::is_control) {
        Err("cannot be a path".into())
    } else {
        Ok(base.join(text))
    }
}

fn scalar<T>(
    node: &Node,
    key: &Key,
    integers: bool,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<T, Fault> {
    let text = match &node.value {
        Value::Text(text) => Cow::Borrowed(text.as_str()),
        Value::Integer(integer) if integers => Cow::Owned(integer.to_string()),
        _ => return Err(mistyped(node, key)),
    };
    parse(&text).map_err(|why: String| impossible(node, key, &why))
}

fn mistyped(node: &Node, key: &Key) -> Fault {
    Fault { origin: node.origin.clone(), problem: wrong_type(key.shape.expected(), &node.value) }
}

fn wrong_type(expected: String, found: &Value) -> Problem {
    Problem::WrongType { expected, found: found.to_string() }
}

fn impossible(node: &Node, key: &Key, why: &str) -> Fault {
    let found = match &node.value {
        Value::Text(text) => shown(text),
        other => other.to_string(),
    };
    let problem = Problem::Impossible { found, why: why.to_string(), expected: key.shape.expected() };
    Fault { origin: node.origin.clone(), problem }
}
