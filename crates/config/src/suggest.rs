//! "Did you mean": unknown keys, and what was probably meant by them.

use crate::error::{ConfigError, ERRORS_MAX, Origin, Problem};
use crate::schema::{CLIENT, SERVER, Schema};
use crate::tree::{Table, Value};

/// Keys longer than this are not compared with others, so that comparing stays cheap.
const COMPARED_LEN_MAX: usize = 64;

/// The sections and keys of `tree` that `schema` does not know; no more than are reported, since looking for what was meant
/// takes time.
pub(crate) fn unknown_keys(schema: &'static Schema, tree: &Table) -> Vec<ConfigError> {
    let mut errors = Vec::new();
    for (name, (origin, node)) in &tree.0 {
        if errors.len() > ERRORS_MAX {
            break;
        }
        if schema.sections().contains(&name.as_str()) {
            check_section(schema, name, &node.value, &mut errors);
        } else {
            errors.push(unknown(origin, name.clone(), section_hint(schema, name)));
        }
    }
    errors
}

/// Why this side must not have a section, if it is one of those.
pub(crate) fn reserved_section(schema: &'static Schema, section: &str) -> Option<String> {
    let is_reserved = section == "keys" && std::ptr::eq(schema, &CLIENT);
    is_reserved.then(|| {
        "secrets that open sessions are kept by the server-side proxy alone, never in a branch or on a laptop; this \
         section belongs to its file"
            .to_string()
    })
}

/// What may have been meant by the path of a flag.
pub(crate) fn hint_for_path(schema: &'static Schema, path: &str) -> Option<String> {
    match path.split_once('.') {
        Some((section, name)) if schema.sections().contains(&section) => {
            let within =
                |repeated: &&&str| path.strip_prefix(**repeated).is_some_and(|it| it.starts_with('.'));
            match schema.repeated.iter().find(within) {
                Some(repeated) => Some(format!("a list of sections is set as a whole: {repeated}=[{{…}}]")),
                None => key_hint(schema, section, name),
            }
        }
        _ => {
            let paths: Vec<String> = schema.keys.iter().map(|key| key.path()).collect();
            let by_name = schema.keys.iter().find(|key| key.name == path).map(|key| key.path());
            by_name
                .or_else(|| nearest(path, paths.iter().map(String::as_str)).map(str::to_string))
                .map(|meant| did_you_mean(&meant))
                .or_else(|| section_hint(schema, path.split('.').next().unwrap_or(path)))
        }
    }
}

/// The candidate that differs from `text` by the fewest typing slips, if they are few.
pub(crate) fn nearest<'c>(text: &str, candidates: impl Iterator<Item = &'c str>) -> Option<&'c str> {
    const SLIPS_MAX: usize = 3;
    if text.len() > COMPARED_LEN_MAX {
        return None;
    }
    let text = text.replace('-', "_").to_ascii_lowercase();
    let slips_allowed = (text.chars().count() / 3).clamp(1, SLIPS_MAX);
    candidates
        .map(|candidate| (strsim::damerau_levenshtein(&text, &candidate.to_ascii_lowercase()), candidate))
        .filter(|(slips, _)| *slips <= slips_allowed)
        .min_by_key(|(slips, _)| *slips)
        .map(|(_, candidate)| candidate)
}

fn check_section(schema: &'static Schema, section: &str, value: &Value, errors: &mut Vec<ConfigError>) {
    match value {
        Value::Table(table) => check_table(schema, section, section, table, errors),
        Value::List(items) => {
            for (index, item) in items.iter().enumerate() {
                if let Value::Table(table) = &item.value {
                    check_table(schema, section, &format!("{section}[{}]", index + 1), table, errors);
                }
            }
        }
        _ => {}
    }
}

fn check_table(
    schema: &'static Schema,
    section: &str,
    title: &str,
    table: &Table,
    errors: &mut Vec<ConfigError>,
) {
    for (name, (origin, node)) in &table.0 {
        if errors.len() > ERRORS_MAX {
            return;
        }
        let inner = schema.within(section).into_iter().find(|inner| last(inner) == name);
        if let Some(inner) = inner {
            check_section(schema, inner, &node.value, errors);
        } else if schema.key(section, name).is_none() {
            errors.push(unknown(origin, format!("{title}.{name}"), key_hint(schema, section, name)));
        }
    }
}

fn unknown(place: &Origin, key: String, hint: Option<String>) -> ConfigError {
    let key = key.chars().map(|c| if c.is_control() { ' ' } else { c }).take(COMPARED_LEN_MAX * 2).collect();
    ConfigError { place: place.clone(), key, problem: Problem::UnknownKey { hint } }
}

fn section_hint(schema: &'static Schema, name: &str) -> Option<String> {
    if let Some(hint) = reserved_section(schema, name) {
        return Some(hint);
    }
    let other = if std::ptr::eq(schema, &CLIENT) { &SERVER } else { &CLIENT };
    if other.sections().contains(&name) {
        return Some(format!("this section belongs to the {}-side proxy's file", other.side));
    }
    if let Some(section) = nearest(name, schema.sections().into_iter()) {
        let brackets = if schema.is_repeated(section) { ("[[", "]]") } else { ("[", "]") };
        return Some(did_you_mean(&format!("{}{section}{}", brackets.0, brackets.1)));
    }
    let key = schema.keys.iter().find(|key| key.name == name)?;
    Some(format!("did you mean {:?} in section [{}]?", key.name, key.section))
}

fn key_hint(schema: &'static Schema, section: &str, name: &str) -> Option<String> {
    let of_section = schema.keys.iter().filter(|key| key.section == section).map(|key| key.name);
    let inner = schema.within(section);
    let of_section = of_section.chain(inner.iter().map(|inner| last(inner)));
    if let Some(meant) = nearest(name, of_section) {
        return Some(did_you_mean(meant));
    }
    if let Some(key) = schema.keys.iter().find(|key| key.name == name) {
        return Some(format!("did you mean {:?} in section [{}]?", key.name, key.section));
    }
    let own = schema.keys.iter().filter(|key| key.section == section).map(|key| key.name);
    let names: Vec<&str> = own.chain(inner.iter().map(|inner| last(inner))).collect();
    Some(format!("the keys of this section are {}", names.join(", ")))
}

/// The last part of a section's path.
fn last(section: &str) -> &str {
    section.rsplit('.').next().unwrap_or(section)
}

fn did_you_mean(what: &str) -> String {
    format!("did you mean {what:?}?")
}
