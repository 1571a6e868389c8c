//! Certificates and clocks.

use std::time::{Duration, SystemTime};

use isthmus_certs::{Details, Role, TlsFiles, examine, read_certificates};
use isthmus_config::Tls;

use super::super::status::span;
use super::finding::Report;
use super::running::{Running, list};

/// Difference of clocks that is worth a warning, in seconds.
const CLOCK_WARNING_S: f64 = 30.0;
/// Difference at which Kerberos refuses tickets (RFC 4120 calls 5 minutes acceptable), in seconds.
const CLOCK_FAILURE_S: f64 = 300.0;

/// The files of `[tls]`, as the proxy's TLS reads them.
pub(crate) fn certificates(report: &mut Report, tls: &Tls, role: Role, now: SystemTime) {
    report.area("certificates");
    let files =
        TlsFiles { certificate: &tls.certificate, key: &tls.key, ca: &tls.ca, crl: tls.crl.as_deref() };
    let found = examine(&files, role, now);
    let name = found.details.as_ref().map_or("NAME", |details| details.name.as_str()).to_owned();
    let issue = format!(
        "isthmus-server certs issue --role {role} --name {name} --out DIR on the authority's machine; the proxy takes \
         new files up by itself"
    );
    for problem in &found.problems {
        let remedy = match problem.io {
            Some(std::io::ErrorKind::PermissionDenied) => {
                "run doctor as root or as the proxy's user".to_owned()
            }
            Some(_) => "put the file there, or correct its path in [tls]".to_owned(),
            None => issue.clone(),
        };
        report.failure(format!("{}: {}", problem.path.display(), problem.text), remedy);
    }
    for warning in &found.warnings {
        let is_mode = warning.contains("private key");
        let remedy = if is_mode { format!("chmod 600 {}", tls.key.display()) } else { issue.clone() };
        report.warning(warning, remedy);
    }
    if let Some(details) = found.details.filter(|_| found.problems.is_empty()) {
        let names: Vec<String> =
            details.dns.iter().cloned().chain(details.ip.iter().map(ToString::to_string)).collect();
        let names = if names.is_empty() { String::new() } else { format!(" for {}", names.join(", ")) };
        report.fine(format!("own certificate {:?}{names}, valid for {}", details.name, left(&details, now)));
    }
    for authority in read_certificates(&tls.ca).unwrap_or_default() {
        let Ok(details) = Details::of(&authority) else { continue };
        match details.expiry_warning(now) {
            Some(warning) => {
                report.warning(warning, "make a new authority in time: every certificate ends with it")
            }
            None => report.fine(format!("authority {:?}, valid for {}", details.name, left(&details, now))),
        }
    }
    if tls.crl.is_none() {
        report.note(
            "no revocation list is configured: nothing counts as revoked",
            "tls.crl = the authority's crl.pem",
        );
    }
}

fn left(details: &Details, now: SystemTime) -> String {
    span(details.not_after.duration_since(now).unwrap_or(Duration::ZERO).as_secs_f64())
}

/// This machine's clock against those of the peers, as their hellos told it.
pub(crate) fn clocks(report: &mut Report, running: &Result<Running, String>) {
    report.area("clocks");
    let remedy = "run an NTP client (chrony, systemd-timesyncd) on both machines";
    let Ok(running) = running else {
        return report.untested("the peer's clock is told over the inner channel", "start the proxy");
    };
    let mut is_known = false;
    for peer in list(&running.peers["peers"]).filter(|peer| peer["state"] == "up") {
        let name = peer["name"].as_str().unwrap_or("?");
        let Some(ahead) = peer["clock_ahead_seconds"].as_f64() else {
            report.untested(format!("peer {name} does not tell its clock"), "update it");
            continue;
        };
        is_known = true;
        let way = if ahead < 0.0 { "behind" } else { "ahead" };
        let text = format!("the clock of {name} was {:.1} s {way} when it connected", ahead.abs());
        if ahead.abs() >= CLOCK_FAILURE_S {
            let text = format!("{text}: certificates and Kerberos tickets may be refused");
            report.failure(text, remedy);
        } else if ahead.abs() >= CLOCK_WARNING_S {
            report.warning(text, remedy);
        } else {
            report.fine(text);
        }
    }
    if !is_known {
        report.untested("no peer that tells its clock is connected", "see the findings on the peer");
    }
}
