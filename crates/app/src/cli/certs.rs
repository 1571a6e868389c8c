//! `isthmus-server certs …`: the private authority of the pair.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::Subcommand;
use isthmus_certs::{
    Authority, CA_DAYS, Details, EXPIRY_WARNING, Entry, IssueRequest, Issued, LEAF_DAYS, Role, Validity,
    list, read_certificates,
};

use super::exit::{Exit, Failure};
use super::output::{errln, outln};

const CA_DIR: &str = "/etc/isthmus/ca";

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Make a certificate authority
    Init {
        /// Directory of the authority; keep it safe, and off the proxies if you can
        #[arg(long, value_name = "DIR", default_value = CA_DIR)]
        ca: PathBuf,
        /// Name of the authority
        #[arg(long, default_value = "Isthmus CA")]
        name: String,
        /// Days that it is valid
        #[arg(long, default_value_t = CA_DAYS)]
        days: u32,
    },
    /// Issue a certificate and a key
    Issue {
        /// Directory of the authority
        #[arg(long, value_name = "DIR", default_value = CA_DIR)]
        ca: PathBuf,
        /// client-side, server-side or admin
        #[arg(long)]
        role: Role,
        /// Name of the holder, shown as the peer's name; also the name of the files
        #[arg(long)]
        name: String,
        /// DNS name of the holder; may be repeated. A server-side proxy needs the name that is dialled
        #[arg(long, value_name = "NAME")]
        dns: Vec<String>,
        /// Address of the holder; may be repeated
        #[arg(long, value_name = "ADDRESS")]
        ip: Vec<IpAddr>,
        /// Days that it is valid, at most as long as the authority
        #[arg(long, default_value_t = LEAF_DAYS)]
        days: u32,
        /// Directory for NAME.pem, NAME.key and a copy of ca.pem
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Revoke certificates, and write the revocation list anew
    Revoke {
        /// Directory of the authority
        #[arg(long, value_name = "DIR", default_value = CA_DIR)]
        ca: PathBuf,
        /// A name (all certificates of that name) or a serial number
        #[arg(value_name = "NAME or SERIAL")]
        which: String,
    },
    /// List what was issued
    Show {
        /// Directory of the authority
        #[arg(long, value_name = "DIR", default_value = CA_DIR)]
        ca: PathBuf,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
}

pub fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Init { ca, name, days } => init(ca, name, *days),
        Command::Issue { ca, role, name, dns, ip, days, out } => {
            let request = IssueRequest {
                role: *role,
                name: name.clone(),
                dns: dns.clone(),
                ip: ip.clone(),
                validity: Validity::Days(*days),
            };
            let authority = Authority::open(ca)?;
            say_issued(&authority.issue(&request, out)?, &authority)
        }
        Command::Revoke { ca, which } => revoke(ca, which),
        Command::Show { ca, json } => show(ca, *json),
    }
}

fn init(dir: &Path, name: &str, days: u32) -> Result<(), Failure> {
    let authority = Authority::init(dir, name, days)?;
    outln!("Made the certificate authority {name:?}, valid until {}.", time(authority.not_after()));
    outln!("  certificate      {}", authority.certificate().display());
    outln!("  private key      {}  (whoever has it can let anyone in)", dir.join("ca.key").display());
    outln!("  revocation list  {}", authority.crl().display());
    Ok(())
}

fn say_issued(issued: &Issued, authority: &Authority) -> Result<(), Failure> {
    let entry = &issued.entry;
    outln!(
        "Issued a {} certificate for {:?}, serial {}, valid until {}.",
        entry.role,
        entry.name,
        entry.serial,
        time(entry.not_after)
    );
    if issued.shortened {
        outln!("It ends with the authority, earlier than asked for.");
    }
    warn_of_end(entry, SystemTime::now());
    if entry.role == Role::Admin {
        outln!("  certificate  {}\n  key          {}", issued.certificate.display(), issued.key.display());
        return Ok(());
    }
    let quoted = |path: &Path| format!("{:?}", path.display().to_string());
    outln!("For the proxy's configuration, once the files are on its machine:\n\n[tls]");
    outln!("certificate = {}", quoted(&issued.certificate));
    outln!("key = {}", quoted(&issued.key));
    outln!("ca = {}", quoted(&issued.ca));
    outln!("# crl = a copy of {}, renewed at each revocation", authority.crl().display());
    Ok(())
}

fn revoke(dir: &Path, which: &str) -> Result<(), Failure> {
    let authority = Authority::open(dir)?;
    for entry in authority.revoke(which)? {
        outln!("Revoked the {} certificate of {:?}, serial {}.", entry.role, entry.name, entry.serial);
    }
    outln!(
        "Wrote {}. Copy it to tls.crl of both proxies; they take it up by themselves.",
        authority.crl().display()
    );
    Ok(())
}

fn show(dir: &Path, json: bool) -> Result<(), Failure> {
    let entries = list(dir)?;
    let now = SystemTime::now();
    let ca = read_certificates(&dir.join("ca.pem"))?;
    let ca = ca.first().and_then(|der| Details::of(der).ok());
    if json {
        return show_json(&entries, now);
    }
    if let Some(ca) = &ca {
        outln!("Authority {:?}, valid until {}.", ca.name, time(ca.not_after));
        if let Some(warning) = ca.expiry_warning(now) {
            errln!("warning: {warning}");
        }
    }
    if entries.is_empty() {
        outln!("Nothing was issued yet.");
        return Ok(());
    }
    let width = entries.iter().map(|entry| entry.name.len()).max().unwrap_or(0).max("NAME".len());
    outln!("{:<width$}  {:<11}  {:<13}  {:<20}  SERIAL", "NAME", "ROLE", "STATE", "VALID UNTIL");
    for entry in &entries {
        let (role, state) = (entry.role.as_str(), entry.state(now));
        outln!(
            "{:<width$}  {role:<11}  {state:<13}  {:<20}  {}",
            entry.name,
            time(entry.not_after),
            entry.serial
        );
    }
    for entry in &entries {
        warn_of_end(entry, now);
    }
    Ok(())
}

fn show_json(entries: &[Entry], now: SystemTime) -> Result<(), Failure> {
    let unwritable = |error| Failure::new(Exit::Software, format!("the list cannot be written: {error}"));
    let mut values = Vec::new();
    for entry in entries {
        let mut value = serde_json::to_value(entry).map_err(unwritable)?;
        value["state"] = entry.state(now).into();
        values.push(value);
    }
    outln!("{}", serde_json::to_string_pretty(&values).map_err(unwritable)?);
    Ok(())
}

/// To standard error, so that it can be told from the listing.
fn warn_of_end(entry: &Entry, now: SystemTime) {
    if let Ok(left) = entry.not_after.duration_since(now)
        && left <= EXPIRY_WARNING
        && entry.revoked.is_none()
    {
        let days = left.as_secs() / 86_400;
        errln!("warning: the certificate of {:?} (serial {}) ends in {days} days", entry.name, entry.serial);
    }
}

fn time(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}
