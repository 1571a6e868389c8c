//! The configuration of the SMB stage, as its engine takes it.

use isthmus_config::{Acceleration, NamePattern, Smb};
use isthmus_smb_session::{Mode, Pattern, Policy, PolicyRule};

/// What `[smb]` and `[[smb.rule]]` allow.
pub(crate) fn policy(smb: &Smb) -> Policy {
    let mut rules: Vec<_> = smb
        .rules
        .iter()
        .map(|rule| PolicyRule {
            shares: patterns(&rule.shares),
            names: patterns(&rule.names),
            mode: rule.acceleration.map(mode),
            write_behind: rule.write_behind,
            open_ahead: rule.open_ahead,
        })
        .collect();
    if !smb.never_behind.is_empty() {
        rules.push(PolicyRule::never_behind(patterns(&smb.never_behind)));
    }
    Policy { mode: mode(smb.acceleration), rules }
}

/// The configuration's patterns are within the engine's limits.
fn patterns(list: &[NamePattern]) -> Vec<Pattern> {
    list.iter().filter_map(|pattern| Pattern::new(pattern.as_str())).collect()
}

fn mode(acceleration: Acceleration) -> Mode {
    match acceleration {
        Acceleration::Bounded => Mode::Bounded,
        Acceleration::Strict => Mode::Strict,
        Acceleration::Off => Mode::Off,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use isthmus_config::{Overrides, SMB_RULES_MAX, ServerConfig};
    use isthmus_smb_session::{PATTERN_CHARS_MAX, PATTERNS_MAX, POLICY_RULES_MAX};
    use std::path::Path;

    const LEAST: &str =
        "tls = { certificate = 'c', key = 'k', ca = 'a' }\nallow = [{ destination = 'fs' }]\n";

    fn parsed(more: &str) -> Smb {
        let text = format!("{LEAST}{more}");
        ServerConfig::parse(text.as_bytes(), Path::new("server.toml"), &Overrides::none())
            .unwrap_or_else(|errors| panic!("{errors}"))
            .config
            .smb
    }

    #[test]
    fn a_file_that_says_nothing_means_the_engines_own_policy() {
        assert_eq!(policy(&parsed("")), Policy::default());
    }

    #[test]
    fn rules_come_before_what_is_never_written_behind() {
        let smb = parsed(
            "[smb]\nacceleration = 'strict'\n[[smb.rule]]\nshares = ['lab']\nacceleration = 'bounded'\nwrite_behind = true\n",
        );
        let policy = policy(&smb);
        assert_eq!((policy.mode, policy.rules.len()), (Mode::Strict, 2));
        assert_eq!((policy.rules[0].mode, policy.rules[0].write_behind), (Some(Mode::Bounded), Some(true)));
        assert_eq!(policy.rules[1], Policy::default().rules[0]);
    }

    /// Every rule of a file has a place in what one engine tells the other, with all its patterns.
    #[test]
    fn the_largest_file_is_within_the_engines_limits() {
        const { assert!(SMB_RULES_MAX < POLICY_RULES_MAX) };
        let pattern = "x".repeat(PATTERN_CHARS_MAX);
        let list = vec![format!("{pattern:?}"); PATTERNS_MAX].join(", ");
        let rule = format!("[[smb.rule]]\nnames = [{list}]\nopen_ahead = false\n");
        let policy = policy(&parsed(&rule.repeat(SMB_RULES_MAX)));
        assert_eq!(policy.rules.len(), SMB_RULES_MAX + 1);
        assert!(policy.rules[..SMB_RULES_MAX].iter().all(|rule| rule.names.len() == PATTERNS_MAX));
    }
}
