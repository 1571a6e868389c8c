//! The configuration as it holds after file, environment, flags and defaults, written back as TOML.

use std::fmt;

use crate::error::Origin;
use crate::schema::{Key, Schema};

/// Something that is allowed but probably not meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    pub place: Origin,
    pub key: String,
    pub text: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.place, self.key, self.text)
    }
}

/// Every value that holds, and where it came from. Paths of keys are in it, their content never is.
///
/// Displayed, it is TOML that parses to the same configuration; a comment tells the source of each value.
#[derive(Clone, Debug)]
pub struct Effective {
    schema: &'static Schema,
    entries: Vec<Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    index: Option<usize>,
    key: &'static Key,
    toml: String,
    origin: Origin,
}

impl Effective {
    pub(crate) fn new(schema: &'static Schema) -> Effective {
        Effective { schema, entries: Vec::new() }
    }

    pub(crate) fn push(&mut self, index: Option<usize>, key: &'static Key, toml: String, origin: Origin) {
        self.entries.push(Entry { index, key, toml, origin });
    }

    /// The TOML text of the value of `section.name` (of the first table, for a list of tables), and where it came from.
    pub fn value(&self, section: &str, name: &str) -> Option<(&str, &Origin)> {
        self.entries
            .iter()
            .find(|entry| entry.key.section == section && entry.key.name == name)
            .map(|entry| (entry.toml.as_str(), &entry.origin))
    }

    /// Every text in the values (not numbers, not booleans), with its key.
    pub fn texts(&self) -> Vec<(&'static Key, String)> {
        let mut texts = Vec::new();
        for entry in &self.entries {
            entry.map_texts(&mut |text| {
                texts.push((entry.key, text.to_owned()));
                text.to_owned()
            });
        }
        texts
    }

    /// As displayed, with each text of the values replaced by what `change` makes of it, and no names of files, variables or
    /// flags in the comments.
    pub fn with_texts(&self, change: &mut dyn FnMut(&'static Key, &str) -> String) -> String {
        let entries = self.entries.iter().map(|entry| {
            let origin = match &entry.origin {
                Origin::File { line, .. } => Origin::Flag(format!("line {line}").into()),
                Origin::Environment(_) => Origin::Flag("environment".into()),
                Origin::Flag(_) => Origin::Flag("command line".into()),
                Origin::Default => Origin::Default,
            };
            let toml = entry.map_texts(&mut |text| change(entry.key, text));
            Entry { index: entry.index, key: entry.key, toml, origin }
        });
        Effective { schema: self.schema, entries: entries.collect() }.to_string()
    }
}

impl Entry {
    /// The value as TOML, with its texts changed.
    fn map_texts(&self, change: &mut dyn FnMut(&str) -> String) -> String {
        // What was written as TOML can be read; were it not, nothing of it is shown.
        let table: Option<toml::Table> = toml::from_str(&format!("value = {}", self.toml)).ok();
        let Some(mut value) = table.and_then(|mut table| table.remove("value")) else {
            return format!("{:?}", change(&self.toml));
        };
        map_value(&mut value, change);
        value.to_string()
    }
}

fn map_value(value: &mut toml::Value, change: &mut dyn FnMut(&str) -> String) {
    match value {
        toml::Value::String(text) => *text = change(text),
        toml::Value::Array(items) => items.iter_mut().for_each(|item| map_value(item, change)),
        _ => {}
    }
}

impl fmt::Display for Effective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for section in self.schema.sections() {
            let of_section = |entry: &&Entry| entry.key.section == section;
            let tables = self.entries.iter().filter(of_section).filter_map(|entry| entry.index).max();
            if tables.is_none() && self.schema.is_repeated(section) {
                writeln!(f, "{separator}# There is no [[{section}]].")?;
                separator = "\n";
                continue;
            }
            let indices = tables.map_or_else(|| vec![None], |last| (0..=last).map(Some).collect());
            for index in indices {
                let (open, close) = if index.is_some() { ("[[", "]]") } else { ("[", "]") };
                writeln!(f, "{separator}{open}{section}{close}")?;
                separator = "\n";
                for key in self.schema.keys.iter().filter(|key| key.section == section) {
                    let found = self.entries.iter().find(|e| e.index == index && std::ptr::eq(e.key, *key));
                    match found {
                        Some(entry) => {
                            writeln!(f, "{} = {} # {}", key.name, entry.toml, comment(&entry.origin))?
                        }
                        None => writeln!(f, "# {} is not set", key.name)?,
                    }
                }
            }
        }
        Ok(())
    }
}

/// The origin, fit for a comment: control characters would end it.
fn comment(origin: &Origin) -> String {
    origin.to_string().chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
