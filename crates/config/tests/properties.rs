//! Whatever a file, the environment or a flag says: a configuration or errors, never a panic.

#![allow(clippy::unwrap_used, reason = "a failed test is what a panic here means")]

use std::path::Path;

use isthmus_config::{ClientConfig, ERRORS_MAX, Overrides, ServerConfig, schema};
use proptest::prelude::*;

fn try_both(text: &[u8], overrides: &Overrides) -> Result<(), TestCaseError> {
    let file = Path::new("x.toml");
    match ClientConfig::parse(text, file, overrides) {
        Ok(loaded) => {
            let printed = loaded.effective.to_string();
            let again = ClientConfig::parse(printed.as_bytes(), file, &Overrides::none());
            prop_assert_eq!(
                again.map(|l| l.config).map_err(|e| e.to_string()),
                Ok(loaded.config),
                "{}",
                printed
            );
        }
        Err(errors) => prop_assert!((1..=ERRORS_MAX).contains(&errors.0.len()), "{}", errors),
    }
    match ServerConfig::parse(text, file, overrides) {
        Ok(loaded) => {
            let printed = loaded.effective.to_string();
            let again = ServerConfig::parse(printed.as_bytes(), file, &Overrides::none());
            prop_assert_eq!(
                again.map(|l| l.config).map_err(|e| e.to_string()),
                Ok(loaded.config),
                "{}",
                printed
            );
        }
        Err(errors) => prop_assert!((1..=ERRORS_MAX).contains(&errors.0.len()), "{}", errors),
    }
    Ok(())
}

/// TOML values of every type, valid and not, and of every shape that some key takes.
fn any_value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        any::<i64>().prop_map(|i| i.to_string()),
        any::<f64>().prop_map(|f| format!("{f:?}").to_lowercase()),
        any::<bool>().prop_map(|b| b.to_string()),
        "\\PC{0,12}".prop_map(|s| toml::Value::String(s).to_string()),
        "[0-9]{1,4} ?(GiB|MB|s|min|ms)".prop_map(|s| format!("{s:?}")),
        "[a-z*]{1,5}(\\.[a-z]{1,3})?(:[0-9]{1,5})?".prop_map(|s| format!("{s:?}")),
        "[0-9]{1,3}\\.0\\.0\\.[01]((:|/)[0-9]{1,4})?".prop_map(|s| format!("{s:?}")),
        prop_oneof![
            Just("\"off\""),
            Just("\"auto\""),
            Just("\"deny\""),
            Just("2026-01-01"),
            Just("\"refuse\"")
        ]
        .prop_map(String::from),
        "\\PC{0,6}",
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(|items| format!("[{}]", items.join(", "))),
            inner.prop_map(|value| format!("{{ action = {value} }}")),
        ]
    })
}

fn any_line() -> impl Strategy<Value = String> {
    let keys: Vec<(bool, &'static str, &'static str)> = [&schema::CLIENT, &schema::SERVER]
        .into_iter()
        .flat_map(|s| s.keys.iter().map(|k| (s.is_repeated(k.section), k.section, k.name)))
        .collect();
    (prop::sample::select(keys), any_value(), 0..20u8).prop_map(|((repeated, section, name), value, kind)| {
        match kind {
            0 => format!("[{section}]"),
            1 => format!("{name} = {value}"),
            2 => format!("{section} = {value}"),
            _ if repeated => format!("[[{section}]]\n{name} = {value}"),
            _ => format!("{section}.{name} = {value}"),
        }
    })
}

/// Nesting is bounded before it could exhaust the stack, and many errors cost no more than the text that has them.
#[test]
fn deep_and_long_texts_are_refused_quickly() {
    const DEPTH: usize = 100_000;
    let none = Overrides::none();
    for text in [
        format!("a = {}", "[".repeat(DEPTH)),
        format!("a = {}1{}", "[".repeat(DEPTH), "]".repeat(DEPTH)),
        format!("a = {}", "{a=".repeat(DEPTH)),
        format!("{}a = 1", "a.".repeat(DEPTH)),
        format!("[{}a]", "a.".repeat(DEPTH)),
        format!("[[{}a]]", "a.".repeat(DEPTH)),
        format!("[store]\n{}", (0..DEPTH).map(|n| format!("k{n} = 1\n")).collect::<String>()),
        "[[rule]]\n".repeat(DEPTH),
    ] {
        try_both(text.as_bytes(), &none).unwrap();
        assert!(ClientConfig::parse(text.as_bytes(), Path::new("x.toml"), &none).is_err());
    }
}

proptest! {
    #[test]
    fn any_bytes(text in prop::collection::vec(any::<u8>(), 0..200)) {
        try_both(&text, &Overrides::none())?;
    }

    #[test]
    fn anything_that_looks_like_a_configuration(lines in prop::collection::vec(any_line(), 0..12)) {
        try_both(lines.join("\n").as_bytes(), &Overrides::none())?;
    }

    /// One key of a valid file set to anything.
    #[test]
    fn any_override_of_a_valid_file(
        client in prop::sample::select(schema::CLIENT.keys.to_vec()),
        server in prop::sample::select(schema::SERVER.keys.to_vec()),
        value in any_value(),
        environment: bool,
    ) {
        for (key, text) in [
            (client, include_str!("full/client.toml")),
            (server, include_str!("full/server.toml")),
        ] {
            let mut overrides = Overrides::none();
            if environment {
                let name = format!("ISTHMUS_{}", key.path().replace('.', "_").to_uppercase());
                overrides = overrides.with_environment([(name, value.clone())]);
            } else {
                overrides.set(&format!("{}={value}", key.path()));
            }
            try_both(text.as_bytes(), &overrides)?;
        }
    }

    /// A valid file cut anywhere, with anything put there.
    #[test]
    fn any_damage_to_a_valid_file(at in 0usize..900, len in 0usize..40, put in "\\PC{0,10}") {
        for text in [include_str!("full/client.toml"), include_str!("full/server.toml")] {
            let mut bytes = text.as_bytes().to_vec();
            let at = at.min(bytes.len());
            let end = (at + len).min(bytes.len());
            bytes.splice(at..end, put.bytes());
            try_both(&bytes, &Overrides::none())?;
        }
    }
}
