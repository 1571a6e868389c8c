//! What the environment and the command line say over the file.

use std::sync::Arc;

use crate::effective::Warning;
use crate::error::{ConfigError, Origin, Problem};
use crate::schema::{Key, Schema, Shape};
use crate::suggest::{hint_for_path, nearest, reserved_section};
use crate::tree::{Node, Table, Value, parse_value, secret, shown};

/// Every environment variable of Isthmus starts with this.
pub const VARIABLE_PREFIX: &str = "ISTHMUS_";

/// Longest value of a variable or flag that an error message repeats, in characters.
const SHOWN_CHARS_MAX: usize = 60;

/// Values that stand over those of the file: first the environment, then flags in their order.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    environment: Vec<(String, String)>,
    flags: Vec<Flag>,
}

#[derive(Clone, Debug)]
struct Flag {
    shown: String,
    path: String,
    value: Option<String>,
}

impl Overrides {
    /// None: the file alone counts.
    pub fn none() -> Overrides {
        Overrides::default()
    }

    /// The process's variables that start with [`VARIABLE_PREFIX`].
    pub fn from_environment() -> Overrides {
        let text = |value: std::ffi::OsString| value.to_string_lossy().into_owned();
        Overrides::none().with_environment(std::env::vars_os().map(|(name, value)| (text(name), text(value))))
    }

    /// Adds variables; those without the prefix are left out.
    #[must_use]
    pub fn with_environment(mut self, variables: impl IntoIterator<Item = (String, String)>) -> Overrides {
        self.environment.extend(variables.into_iter().filter(|(name, _)| name.starts_with(VARIABLE_PREFIX)));
        self.environment.sort();
        self
    }

    /// Adds `--set PATH=VALUE`.
    pub fn set(&mut self, assignment: &str) {
        let (path, value) = match assignment.split_once('=') {
            Some((path, value)) => (path, Some(value.trim().to_string())),
            None => (assignment, None),
        };
        self.flags.push(Flag {
            shown: format!("--set {}", cut(assignment)),
            path: path.trim().to_string(),
            value,
        });
    }

    /// Adds a flag of its own, such as `--log-level`, that stands for the key `path`.
    pub fn flag(&mut self, flag: &str, path: &str, value: &str) {
        self.flags.push(Flag {
            shown: format!("{flag} {}", cut(value)),
            path: path.to_string(),
            value: Some(value.to_string()),
        });
    }

    /// Puts the values into `tree`. Errors are about paths that do not exist; values are judged later, like the file's.
    pub(crate) fn apply(
        &self,
        schema: &'static Schema,
        tree: &mut Table,
    ) -> (Vec<ConfigError>, Vec<Warning>) {
        let mut errors = Vec::new();
        let mut warnings = Vec::new();
        let targets = targets(schema);
        for (variable, value) in &self.environment {
            let place = Origin::Environment(variable.as_str().into());
            match targets.iter().find(|target| target.variable() == *variable) {
                Some(target) => {
                    let result = target.put(tree, value, &place);
                    errors.extend(result.err().map(|problem| ConfigError {
                        place,
                        key: target.path(),
                        problem,
                    }));
                }
                None => match of_reserved_section(schema, variable) {
                    Some(error) => errors.push(error),
                    None => warnings.extend(warning_for(variable, &targets)),
                },
            }
        }
        for flag in &self.flags {
            let place = Origin::Flag(Arc::from(flag.shown.as_str()));
            let target = targets.iter().find(|target| target.path() == flag.path);
            let result = match (target, &flag.value) {
                (_, None) => Err(Problem::Impossible {
                    found: shown(&flag.path),
                    why: "has no \"=\"".into(),
                    expected: "a key and a value, such as --set store.size=20GiB".into(),
                }),
                (None, Some(_)) => Err(Problem::UnknownKey { hint: hint_for_path(schema, &flag.path) }),
                (Some(target), Some(value)) => target.put(tree, value, &place),
            };
            let key = if flag.path.is_empty() { "(no key)".into() } else { cut(&flag.path) };
            errors.extend(result.err().map(|problem| ConfigError { place, key, problem }));
        }
        (errors, warnings)
    }
}

/// What a variable or a flag can set: a key of a plain section, or a whole list of sections.
enum Target {
    Key(&'static Key),
    Sections(&'static str),
}

fn targets(schema: &'static Schema) -> Vec<Target> {
    let keys = schema.keys.iter().filter(|key| !schema.is_repeated(key.section)).map(|key| Target::Key(key));
    keys.chain(schema.repeated.iter().map(|name| Target::Sections(name))).collect()
}

impl Target {
    fn path(&self) -> String {
        match self {
            Target::Key(key) => key.path(),
            Target::Sections(name) => (*name).to_string(),
        }
    }

    fn variable(&self) -> String {
        format!("{VARIABLE_PREFIX}{}", self.path().replace('.', "_").to_ascii_uppercase())
    }

    fn put(&self, tree: &mut Table, text: &str, origin: &Origin) -> Result<(), Problem> {
        let node = match self {
            Target::Key(key) => Ok(value_for(key.shape, text, origin)),
            Target::Sections(_) => parse_value(text, origin),
        };
        let node = node.map_err(Problem::Syntax)?;
        tree.put(&self.path(), origin, node);
        Ok(())
    }
}

/// Text needs no quotes in a variable or flag, and a list no brackets: `ISTHMUS_ADMIN_NAMES=a.example,b.example`.
fn value_for(shape: Shape, text: &str, origin: &Origin) -> Node {
    let plain = |text: &str| Node { value: Value::Text(text.to_string()), origin: origin.clone() };
    let as_toml = || parse_value(text, origin).unwrap_or_else(|_| plain(text));
    match shape {
        Shape::Boolean | Shape::Integer(..) => as_toml(),
        shape if shape.is_list() && !text.starts_with('[') => {
            let items = text.split(',').map(str::trim).filter(|item| !item.is_empty());
            Node { value: Value::List(items.map(plain).collect()), origin: origin.clone() }
        }
        shape if shape.is_list() || text.starts_with(['"', '\'']) => as_toml(),
        _ => plain(text),
    }
}

/// A variable that is nearly one of ours is most likely a slip. Others may belong to somebody else (container platforms
/// make variables from service names), so they are neither errors nor warnings.
fn warning_for(variable: &str, targets: &[Target]) -> Option<Warning> {
    let known: Vec<String> = targets.iter().map(Target::variable).collect();
    let meant = nearest(variable, known.iter().map(String::as_str))?;
    Some(Warning {
        place: Origin::Environment(variable.into()),
        key: variable.to_string(),
        text: format!("sets nothing; did you mean {meant}?"),
    })
}

/// A variable for a section that this side must not have is an error: what it holds should not be here.
fn of_reserved_section(schema: &'static Schema, variable: &str) -> Option<ConfigError> {
    let rest = variable.strip_prefix(VARIABLE_PREFIX)?.to_ascii_lowercase();
    let section = rest.split('_').next().unwrap_or(&rest);
    let hint = reserved_section(schema, section)?;
    let place = Origin::Environment(variable.into());
    Some(ConfigError { place, key: section.to_string(), problem: Problem::UnknownKey { hint: Some(hint) } })
}

fn cut(text: &str) -> String {
    if let Some(secret) = secret(text) {
        return secret.into();
    }
    let one_line = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut short: String = one_line.clone().take(SHOWN_CHARS_MAX).collect();
    if one_line.count() > SHOWN_CHARS_MAX {
        short.push('…');
    }
    short
}
