//! `[keys]`: where session keys come from and who may be given them, as `isthmus-keys` takes it.

use std::collections::HashMap;
use std::str::FromStr;

use isthmus_keys::limits::{RULES_MAX, SOURCES_MAX};
use isthmus_keys::{
    CommandConfig, CommandOutput, KeysConfig, PeerKind, RateLimit, ReleasePolicy, ReleaseRule,
    ReleasesConfig, Scope, ServerPattern, SourceKind, UserPattern,
};

use crate::address::Network;
use crate::reader::{Reader, Section, quoted};
use crate::schema::{self, Key};
use crate::words::{ReleaseKind, SecretKind};

/// Longest argument of a command, user, server or group, in bytes.
const ENTRY_LEN_MAX: usize = 1024;

pub(crate) fn build(reader: &mut Reader<'_>) -> Option<KeysConfig> {
    let faults_before = reader.errors.len();
    let section = reader.section("keys");
    let keytabs = reader.paths(&section, &schema::KEYS_KEYTABS);
    let password_hashes = reader.paths(&section, &schema::KEYS_PASSWORD_HASHES);
    let administrators = patterns(reader, &section, &schema::KEYS_ADMINISTRATORS);
    let administrator_groups = groups(reader, &section);
    let gateway_rate =
        rate(reader, &section, [&schema::KEYS_GATEWAY_BURST, &schema::KEYS_GATEWAY_PER_MINUTE]);
    let laptop_rate = rate(reader, &section, [&schema::KEYS_LAPTOP_BURST, &schema::KEYS_LAPTOP_PER_MINUTE]);
    let commands = build_commands(reader);
    let rules = build_rules(reader);
    let releases = ReleasesConfig {
        rules: rules?,
        administrators: administrators?,
        administrator_groups: administrator_groups?,
        gateway_rate: gateway_rate?,
        laptop_rate: laptop_rate?,
    };
    let config =
        KeysConfig { keytabs: keytabs?, password_hashes: password_hashes?, commands: commands?, releases };
    check_sources(reader, &section, &config);
    // What the keys' own rules refuse has been reported with its key. Should one be missing above, it is still refused.
    if reader.errors.len() == faults_before
        && let Err(bad) = ReleasePolicy::new(&config.releases)
    {
        reader.conflict(&section, &schema::KEYS_ADMINISTRATORS, bad.to_string());
    }
    Some(config)
}

fn check_sources(reader: &mut Reader<'_>, section: &Section<'_>, config: &KeysConfig) {
    let count = config.keytabs.len() + config.password_hashes.len() + config.commands.len();
    if count > SOURCES_MAX {
        let message = format!("{count} files and commands; at most {SOURCES_MAX} are read");
        reader.conflict(section, &schema::KEYS_KEYTABS, message);
    }
    let releases = !config.releases.rules.is_empty();
    if count > 0 && !releases {
        let text = "no [[keys.release]] allows any peer to be given session keys, so none of these is of use";
        reader.warn(section, &schema::KEYS_KEYTABS, text);
    }
    if count == 0 && releases {
        let text = "no keytab, password hashes or command is configured, so there is nothing to release";
        reader.warn(section, &schema::KEYS_KEYTABS, text);
    }
}

fn build_commands(reader: &mut Reader<'_>) -> Option<Vec<CommandConfig>> {
    let sections = reader.sections("keys.command", SOURCES_MAX);
    let built: Vec<_> =
        sections.iter().enumerate().map(|(index, section)| build_command(reader, section, index)).collect();
    built.into_iter().collect()
}

fn build_command(reader: &mut Reader<'_>, section: &Section<'_>, index: usize) -> Option<CommandConfig> {
    let name = named(reader, section, &schema::COMMAND_NAME, &format!("command {}", index + 1));
    let argv = reader.entries(section, &schema::COMMAND_ARGV, argument, |text: &String| quoted(text));
    let kind = reader.parsed(section, &schema::COMMAND_KIND);
    let file = reader.path(section, &schema::COMMAND_FILE);
    let interval = reader.duration(section, &schema::COMMAND_INTERVAL);
    let timeout = reader.duration(section, &schema::COMMAND_TIMEOUT);
    let argv = argv?;
    if !argv.first().is_some_and(|program| program.starts_with('/')) {
        let message = "the first argument is the program, by its absolute path, such as \"/usr/bin/pdbedit\"";
        reader.conflict(section, &schema::COMMAND_ARGV, message);
    }
    Some(CommandConfig {
        name: name?,
        argv,
        kind: match kind? {
            SecretKind::Keytab => SourceKind::Keytab,
            SecretKind::PasswordHashes => SourceKind::PasswordHashes,
        },
        output: file.map_or(CommandOutput::StandardOutput, CommandOutput::File),
        interval: interval?,
        timeout: timeout?,
    })
}

fn build_rules(reader: &mut Reader<'_>) -> Option<Vec<ReleaseRule>> {
    let sections = reader.sections("keys.release", RULES_MAX);
    let built: Vec<_> =
        sections.iter().enumerate().map(|(index, section)| build_rule(reader, section, index)).collect();
    let mut names: HashMap<&str, usize> = HashMap::new();
    let mut peers: HashMap<&str, (PeerKind, usize)> = HashMap::new();
    for (index, (section, rule)) in sections.iter().zip(&built).enumerate() {
        let Some(rule) = rule else { continue };
        if let Some(other) = names.insert(&rule.name, index) {
            let message = format!("{:?} is the name of keys.release[{}] too", rule.name, other + 1);
            reader.conflict(section, &schema::RELEASE_NAME, message);
        }
        let (kind, first) = *peers.entry(&rule.peer).or_insert((rule.scope.kind(), index));
        if kind != rule.scope.kind() {
            let message = format!(
                "{:?} is of another kind in keys.release[{}]; a peer is one or the other",
                rule.peer,
                first + 1
            );
            reader.conflict(section, &schema::RELEASE_KIND, message);
        }
    }
    built.into_iter().collect()
}

fn build_rule(reader: &mut Reader<'_>, section: &Section<'_>, index: usize) -> Option<ReleaseRule> {
    let name = named(reader, section, &schema::RELEASE_NAME, &format!("release {}", index + 1));
    let peer = reader.label(section, &schema::RELEASE_PEER);
    let kind = reader.parsed::<ReleaseKind>(section, &schema::RELEASE_KIND);
    let subnets = reader.list::<Network>(section, &schema::RELEASE_SUBNETS);
    let users: Option<Vec<UserPattern>> = patterns(reader, section, &schema::RELEASE_USERS);
    let servers: Option<Vec<ServerPattern>> = patterns(reader, section, &schema::RELEASE_SERVERS);
    let administrators = reader.boolean(section, &schema::RELEASE_ADMINISTRATORS);
    let machine_accounts = reader.boolean(section, &schema::RELEASE_MACHINE_ACCOUNTS);
    let (kind, subnets, users) = (kind?, subnets?, users?);
    if users.is_empty() {
        let message = "an empty list releases nothing; name users, or \"*\" for all of them";
        reader.conflict(section, &schema::RELEASE_USERS, message);
    }
    let scope = match kind {
        ReleaseKind::Gateway => {
            if subnets.is_empty() {
                let message = "a gateway needs the networks of its clients, such as [\"10.1.0.0/16\"]";
                reader.conflict(section, &schema::RELEASE_SUBNETS, message);
            }
            Scope::Gateway { subnets: subnets.into_iter().map(Network::into_inner).collect() }
        }
        ReleaseKind::Laptop => {
            if !subnets.is_empty() {
                let message = "a laptop has no networks of clients; its address changes";
                reader.conflict(section, &schema::RELEASE_SUBNETS, message);
            }
            if let Some(many) = users.iter().find(|pattern| !pattern.is_one_user()) {
                let message = format!("{many} stands for many users; a laptop's users are each named");
                reader.conflict(section, &schema::RELEASE_USERS, message);
            }
            Scope::Laptop
        }
    };
    Some(ReleaseRule {
        name: name?,
        peer: peer?,
        scope,
        users,
        servers: servers?,
        administrators: administrators?,
        machine_accounts: machine_accounts?,
    })
}

/// A name for people; `computed` if it is not there.
fn named(
    reader: &mut Reader<'_>,
    section: &Section<'_>,
    key: &'static Key,
    computed: &str,
) -> Option<String> {
    let name = reader.label(section, key);
    if name.is_none() && !section.has(key) {
        reader.computed(section, key, quoted(computed));
        return Some(computed.to_owned());
    }
    name
}

fn rate(reader: &mut Reader<'_>, section: &Section<'_>, keys: [&'static Key; 2]) -> Option<RateLimit> {
    let [burst, per_minute] = keys.map(|key| reader.integer(section, key));
    Some(RateLimit { burst: burst?, per_minute: per_minute? })
}

fn patterns<T: FromStr + std::fmt::Display>(
    reader: &mut Reader<'_>,
    section: &Section<'_>,
    key: &'static Key,
) -> Option<Vec<T>> {
    let parse = |text: &str| {
        let text = entry(text)?;
        text.parse().map_err(|_| "is none of these".to_string())
    };
    reader.entries(section, key, parse, |pattern: &T| quoted(&pattern.to_string()))
}

fn groups(reader: &mut Reader<'_>, section: &Section<'_>) -> Option<Vec<String>> {
    let parse = |text: &str| {
        let text = entry(text)?;
        if isthmus_keys::is_sid(text) { Ok(text.to_owned()) } else { Err("is not one".to_string()) }
    };
    reader.entries(section, &schema::KEYS_ADMINISTRATOR_GROUPS, parse, |sid: &String| quoted(sid))
}

fn argument(text: &str) -> Result<String, String> {
    // An argument may be empty, unlike a name.
    if text.is_empty() { Ok(String::new()) } else { entry(text).map(str::to_owned) }
}

fn entry(text: &str) -> Result<&str, String> {
    if text.is_empty() || text.len() > ENTRY_LEN_MAX {
        Err(format!("is not 1 to {ENTRY_LEN_MAX} bytes long"))
    } else if text.contains(char::is_control) {
        Err("has control characters".into())
    } else {
        Ok(text)
    }
}
