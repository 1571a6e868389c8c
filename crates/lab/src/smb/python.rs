//! Clients that are Python libraries.

use super::clients::ClientKind;
use super::work::{Login, ShareWork, Steps, run_limited};
use crate::error::{LabError, Result};
use crate::place::Place;
use crate::proc::{ProcSpec, find_program, run};
use crate::scratch::Scratch;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The program that does the work.
const PROGRAM: &str = include_str!("python/client.py");

/// Name of the step that fails when the program does not get as far as to tell its own.
const PROGRAM_STEP: &str = "the program";

/// Libraries that come from Python's package index.
const LIBRARIES: [&str; 2] = ["smbprotocol", "impacket"];

/// What smbprotocol needs for Kerberos; they are compiled at their installation.
const KERBEROS_LIBRARIES: [&str; 2] = ["gssapi", "krb5"];

/// Where the system's own Python is, which has the binding of libsmbclient.
const SYSTEM_PYTHON: &str = "/usr/bin/python3";

/// Python with libraries of its own in a folder.
#[derive(Clone, Debug)]
pub struct PythonClients {
    python: PathBuf,
}

#[derive(Deserialize)]
struct Output {
    steps: BTreeMap<String, Option<String>>,
    listed: Vec<String>,
}

impl PythonClients {
    /// Takes the environment in `folder`, or makes it there: with `kerberos`, also what must be compiled.
    ///
    /// # Errors
    /// Python is not installed, or the libraries cannot be fetched.
    pub fn install(folder: &Path, kerberos: bool) -> Result<PythonClients> {
        let clients = PythonClients { python: folder.join("bin/python3") };
        if !clients.python.is_file() {
            let python = find_program("python3").ok_or_else(|| LabError::Unavailable {
                what: "the program python3".into(),
                remedy: "install the packages python3 and python3-venv".into(),
            })?;
            run(&Place::Local, &[python.as_os_str(), "-m".as_ref(), "venv".as_ref(), folder.as_os_str()])?;
        }
        clients.add(&LIBRARIES)?;
        if kerberos {
            clients.add(&KERBEROS_LIBRARIES)?;
        }
        Ok(clients)
    }

    /// Does the work with one of the libraries.
    ///
    /// # Errors
    /// The library is not installed. What goes wrong in a step is told in the steps.
    pub fn work(&self, kind: ClientKind, place: &Place, login: &Login, work: &ShareWork) -> Result<Steps> {
        let python = self.python_for(kind, login)?;
        let scratch = Scratch::new("python")?;
        let program = scratch.write("client.py", PROGRAM)?;
        let task = scratch.write("task", task(kind, login, work).to_string())?;
        let configuration = scratch.write("smb.conf", login.samba_configuration())?;
        let mut spec = ProcSpec::new(kind.as_str(), python, "").args([&program, &task]).place(place);
        spec.environment = login.environment();
        spec.environment.push(("SMB_CONF_PATH".into(), configuration.display().to_string()));
        let mut steps = Steps::default();
        if let Some(output) = steps.attempt(PROGRAM_STEP, || run_limited(spec)) {
            steps.by_name.remove(PROGRAM_STEP);
            let line = output.lines().rfind(|line| line.starts_with('{')).unwrap_or_default();
            let parsed: Output = serde_json::from_str(line).map_err(|error| LabError::Format {
                what: format!("the output of {}", kind.as_str()),
                detail: format!("{error}: {output}"),
            })?;
            steps.by_name.extend(parsed.steps);
            steps.listed = parsed.listed;
        }
        Ok(steps)
    }

    fn add(&self, libraries: &[&str]) -> Result<()> {
        let has = |library: &&str| import(&self.python, library).is_ok();
        let missing: Vec<&str> = libraries.iter().filter(|library| !has(library)).copied().collect();
        if missing.is_empty() {
            return Ok(());
        }
        let python = self.python.display().to_string();
        let mut command =
            vec![python.as_str(), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"];
        command.extend(&missing);
        run(&Place::Local, &command).map(drop).map_err(|error| LabError::Unavailable {
            what: format!("Python's {}", missing.join(" and ")),
            remedy: format!("pip could not install it: {error}"),
        })
    }

    /// The interpreter that has the library.
    fn python_for(&self, kind: ClientKind, login: &Login) -> Result<PathBuf> {
        let system = PathBuf::from(SYSTEM_PYTHON);
        let (python, modules, remedy) = match kind {
            ClientKind::Libsmbclient => (system, vec!["smbc"], "install the package python3-smbc"),
            ClientKind::Smbprotocol if login.kerberos.is_some() => {
                (self.python.clone(), KERBEROS_LIBRARIES.into(), "a full run installs it")
            }
            kind => (self.python.clone(), vec![kind.as_str()], "pip could not install it"),
        };
        let is_missing = |module: &&&str| import(&python, module).is_err();
        if let Some(module) = modules.iter().find(is_missing) {
            let what = format!("Python's {module}");
            return Err(LabError::Unavailable { what, remedy: remedy.into() });
        }
        Ok(python)
    }
}

fn import(python: &Path, module: &str) -> Result<()> {
    let statement = format!("import {module}");
    run(&Place::Local, &[python.as_os_str(), "-c".as_ref(), statement.as_ref()]).map(drop)
}

fn task(kind: ClientKind, login: &Login, work: &ShareWork) -> serde_json::Value {
    let kerberos = login.kerberos.as_ref();
    serde_json::json!({
        "client": kind.as_str(),
        "server": login.server.ip().to_string(),
        "server_name": kerberos.map(|kerberos| &kerberos.server_name),
        "port": login.server.port(),
        "share": login.share,
        "user": login.account.name,
        "password": login.account.password,
        "domain": kerberos.map_or("", |kerberos| &kerberos.realm),
        "kdc": kerberos.map(|kerberos| kerberos.kdc.to_string()),
        "kerberos": kerberos.is_some(),
        "sealed": login.protected.is_sealed(),
        "dialect": login.dialect.as_str(),
        "sent": work.sent,
        "back": work.back,
        "folder": work.folder,
        "rename": [work.rename.0, work.rename.1],
        "delete": work.delete,
    })
}
