//! The documents for people are true where a test can tell: links lead somewhere, figures and crates are all named, the
//! README's commands do what it says, and the containers' files are what the programs take.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on has failed")]

use isthmus_config::{ClientConfig, Overrides, ServerConfig};
use isthmus_tests::programs;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every Markdown file of the project.
fn documents() -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() && name != "target" && !name.starts_with('.') {
                folders.push(path);
            } else if name.ends_with(".md") {
                found.push(path);
            }
        }
    }
    found
}

/// The content of all code blocks whose fence says this.
fn blocks(text: &str, fence: &str) -> Vec<String> {
    let start = format!("```{fence}\n");
    text.split(&start).skip(1).map(|rest| rest.split_once("```").unwrap().0.to_owned()).collect()
}

#[test]
fn every_link_leads_somewhere() {
    let mut checked = 0;
    for document in documents() {
        let text = std::fs::read_to_string(&document).unwrap();
        for target in
            text.split("](").skip(1).map(|rest| rest.split_once(')').map_or(rest, |(target, _)| target))
        {
            let file = target.split('#').next().unwrap_or_default();
            if file.is_empty() || file.contains("://") {
                continue;
            }
            let there = document.parent().unwrap().join(file);
            assert!(there.exists(), "{} links to {target}, which is not there", document.display());
            checked += 1;
        }
    }
    assert!(checked >= 20, "only {checked} links were found");
}

#[test]
fn the_readme_has_a_row_for_each_figure() {
    let readme = read("README.md");
    let table = readme.split_once("<!-- figures -->").unwrap().1.split_once("<!-- /figures -->").unwrap().0;
    let shown: BTreeSet<&str> = table
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(name, _)| name)
        .collect();
    let sources = ["crates/xtask/src/bench/figures.rs", "crates/xtask/src/bench/accel/figures.rs"].map(read);
    let mut measured = BTreeSet::new();
    for source in &sources {
        let list = source.split_once("const FIGURES").unwrap().1.split_once("\n];").unwrap().0;
        let calls = list.split("figure(").skip(1).chain(list.split("seconds(").skip(1));
        measured.extend(calls.map(|rest| rest.split('"').nth(1).unwrap()));
    }
    assert_eq!(shown, measured);
}

#[test]
fn each_decision_says_what_was_rejected_and_why() {
    let text = read("ARCHITECTURE.md");
    let sections: Vec<&str> = text.split("\n## ").skip(2).collect();
    assert!(sections.len() > 15);
    for section in sections {
        let title = section.lines().next().unwrap();
        let places: Vec<usize> = ["\n**Chosen.** ", "\n**Rejected.** ", "\n**Why.** "]
            .iter()
            .map(|part| {
                assert_eq!(section.matches(part).count(), 1, "{title}: {part}");
                section.find(part).unwrap()
            })
            .collect();
        assert!(places.is_sorted(), "{title}");
    }
}

#[test]
fn the_architecture_names_every_crate() {
    let (architecture, workspace) = (read("ARCHITECTURE.md"), read("Cargo.toml"));
    let members = workspace.split_once("members = [").unwrap().1.split_once(']').unwrap().0;
    let members: Vec<&str> = members.split('"').skip(1).step_by(2).collect();
    assert!(members.len() > 10);
    for member in members {
        assert!(architecture.contains(&format!("`{member}`")), "ARCHITECTURE.md does not name {member}");
    }
}

/// Every constant of the workspace's crates, as `NAME = value`.
fn constants() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut folders = vec![root().join("crates")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                found.extend(text.split("const ").skip(1).filter_map(|rest| {
                    let (name, rest) = rest.split_once(": ")?;
                    let (_, value) = rest.split_once(';')?.0.split_once(" = ")?;
                    Some(format!("{name} = {value}"))
                }));
            }
        }
    }
    found
}

#[test]
fn constants_in_the_architecture_are_the_codes() {
    let (text, constants) = (read("ARCHITECTURE.md"), constants());
    // A line break in the document may stand within code.
    let text = text.replace('\n', " ");
    let quoted: Vec<&str> = text.split('`').skip(1).step_by(2).filter(|code| code.contains(" = ")).collect();
    let quoted: Vec<&str> =
        quoted.into_iter().filter(|code| code.starts_with(|c: char| c.is_ascii_uppercase())).collect();
    assert!(quoted.len() >= 15, "{quoted:?}");
    for code in quoted {
        let name = code.split_once(" = ").unwrap().0;
        let real: Vec<&String> = constants.iter().filter(|c| c.starts_with(&format!("{name} = "))).collect();
        assert!(constants.contains(code), "ARCHITECTURE.md says {code}; the code has {real:?}");
    }
}

#[test]
fn continuous_integration_runs_the_readmes_test_command() {
    let commands = blocks(&read("README.md"), "sh test");
    assert_eq!(commands, ["cargo xtask test\n"]);
    assert!(read(".ci/run").lines().any(|line| line == commands[0].trim()));
    assert_eq!(blocks(&read("README.md"), "sh demo"), ["cargo xtask demo\n"]);
}

/// Runs a script in a network of its own, since the README's ports are fixed; `None` where that is not permitted.
fn in_own_network(script: &str, folder: &Path) -> Option<String> {
    let unshare = |script: &str| {
        // Generous: it ends a script that would wait for ever.
        let mut command = Command::new("timeout");
        command.args(["120", "unshare", "--net", "--map-root-user", "bash", "-ec", script]);
        command.current_dir(folder);
        command.stdin(Stdio::null()).stderr(Stdio::inherit()).output()
    };
    let probe = unshare("ip link set lo up");
    if !probe.is_ok_and(|output| output.status.success()) {
        return None;
    }
    let output = unshare(script).unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}\n{text}", output.status);
    Some(text)
}

#[test]
fn the_readmes_installation_by_hand_makes_a_pair_that_is_ready() {
    let steps = blocks(&read("README.md"), "sh install");
    assert!(steps.len() >= 5);
    let folder = tempfile::tempdir().unwrap();
    let built = folder.path().join("target/release");
    std::fs::create_dir_all(&built).unwrap();
    let programs = programs();
    std::os::unix::fs::symlink(&programs.client, built.join("isthmus-client")).unwrap();
    std::os::unix::fs::symlink(&programs.server, built.join("isthmus-server")).unwrap();
    // The programs are built already. What the script starts ends with it.
    let script =
        format!("ip link set lo up; cargo() {{ :; }}; trap 'kill $(jobs -p); wait' EXIT\n{}", steps.concat());
    let Some(output) = in_own_network(&script, folder.path()) else {
        eprintln!("skipped: no network namespace can be made here (unshare, ip)");
        return;
    };
    assert!(output.contains(": ready"), "{output}");
    assert!(output.contains("dc at localhost:7810: up"), "{output}");
}

#[test]
fn the_containers_configurations_are_valid() {
    let file = Path::new("docker.toml");
    let client = read("deploy/docker/client.toml");
    ClientConfig::parse(client.as_bytes(), file, &Overrides::none())
        .unwrap_or_else(|error| panic!("{error}"));
    let server = read("deploy/docker/server.toml");
    ServerConfig::parse(server.as_bytes(), file, &Overrides::none())
        .unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn images_take_files_that_are_there_and_not_ignored() {
    let (dockerfile, ignored) = (read("deploy/docker/Dockerfile"), read(".dockerignore"));
    let mut copied = BTreeSet::new();
    for line in dockerfile.lines().filter_map(|line| line.strip_prefix("COPY ")) {
        let words: Vec<&str> = line.split(' ').collect();
        copied.extend(words[..words.len() - 1].iter().copied());
    }
    let allowed: BTreeSet<&str> = ignored.lines().filter_map(|line| line.strip_prefix('!')).collect();
    assert_eq!(copied, allowed);
    let built =
        ["isthmus-client", "isthmus-server", "isthmus-lab"].map(|name| format!("target/release/{name}"));
    for path in copied {
        assert!(built.iter().any(|name| name == path) || root().join(path).exists(), "{path}");
    }
}
