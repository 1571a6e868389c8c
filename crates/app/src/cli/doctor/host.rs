//! What this machine gives a proxy: kernel features, capabilities, limits, ports.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;

use nix::sys::resource::{Resource, getrlimit};
use nix::sys::socket::sockopt::IpTransparent;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, setsockopt, socket};
use socket2::{Domain, Socket, Type};

use super::finding::Report;
use super::running::Running;

/// Bits of capabilities(7).
const CAP_NET_BIND_SERVICE: u64 = 1 << 10;
const CAP_NET_ADMIN: u64 = 1 << 12;
/// Files that a proxy has open beside its connections: store, logs, listeners, pool.
const FILES_BESIDE: u64 = 512;

/// Kernel features that the inner channels and interception use.
pub(crate) fn kernel(report: &mut Report, running: &Result<Running, String>) {
    report.area("kernel");
    let process = isthmus_telemetry::process();
    let release =
        running.as_ref().ok().and_then(|running| running.process["kernel"].as_str().map(str::to_owned));
    let release = release.or(process.kernel).unwrap_or_else(|| "of unknown release".into());
    report.fine(format!("kernel {release}"));
    match Socket::new(Domain::IPV4, Type::STREAM, None) {
        Ok(socket) => options(report, &socket),
        Err(error) => {
            report.failure(format!("no TCP socket can be made: {error}"), "look at the limits of this user")
        }
    }
    transparent(report, &release);
}

fn options(report: &mut Report, socket: &Socket) {
    match socket.set_tcp_congestion(b"bbr") {
        Ok(()) => report.fine("BBR can be used"),
        Err(error) => report.warning(
            format!("BBR cannot be used: {error}; one lost packet in a thousand then halves what a long line carries"),
            "modprobe tcp_bbr, and name it in /etc/modules-load.d",
        ),
    }
    match socket.set_tcp_notsent_lowat(128 << 10) {
        Ok(()) => report.fine("TCP_NOTSENT_LOWAT can be used"),
        Err(error) => report.warning(
            format!("TCP_NOTSENT_LOWAT cannot be used: {error}; small answers wait behind large ones"),
            "use a kernel of 3.12 or later",
        ),
    }
}

/// Only interception needs it.
fn transparent(report: &mut Report, release: &str) {
    let permitted = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)
        .and_then(|socket| setsockopt(&socket, IpTransparent, &true));
    if let Err(error) = permitted {
        let remedy =
            "only interception needs it: run doctor as root to test it, and give the proxy CAP_NET_ADMIN";
        return report
            .untested(format!("transparent sockets (IP_TRANSPARENT) are refused here: {error}"), remedy);
    }
    let modules = format!("/lib/modules/{release}");
    let names = ["nft_tproxy", "xt_TPROXY"];
    let is_loaded = names.iter().any(|name| Path::new("/sys/module").join(name).exists());
    let is_there = ["modules.dep", "modules.builtin"].iter().any(|list| {
        std::fs::read_to_string(Path::new(&modules).join(list))
            .is_ok_and(|text| names.iter().any(|name| text.contains(&format!("{name}.ko"))))
    });
    if is_loaded || is_there {
        report.fine("transparent sockets and TPROXY rules can be used");
    } else {
        report.untested(
            "transparent sockets can be used; whether the kernel has TPROXY cannot be seen without its list of modules",
            "only interception needs it: install the kernel's nft_tproxy module if its rules are refused",
        );
    }
}

/// Capabilities and limits of the running proxy, or of this process.
pub(crate) fn limits(report: &mut Report, running: &Result<Running, String>, admission_on: u32) {
    report.area("rights and limits");
    let own = isthmus_telemetry::process();
    let process = running.as_ref().ok().map(|running| &running.process).filter(|process| process.is_object());
    let whose = if process.is_some() { "the proxy" } else { "this process (the proxy does not say)" };
    let set = match process {
        Some(process) => process["capabilities"].as_str().and_then(|hex| u64::from_str_radix(hex, 16).ok()),
        None => own.capabilities,
    };
    match set {
        Some(set) => {
            let has = |bit: u64| if set & bit != 0 { "has" } else { "lacks" };
            report.fine(format!(
                "{whose} {} CAP_NET_BIND_SERVICE (ports below 1024) and {} CAP_NET_ADMIN (interception)",
                has(CAP_NET_BIND_SERVICE),
                has(CAP_NET_ADMIN)
            ));
        }
        None => report.untested("capabilities: there is no /proc here", ""),
    }
    let most = match process {
        Some(process) => process["open_files_max"].as_u64(),
        // The proxy raises its limit to the hard one.
        None => getrlimit(Resource::RLIMIT_NOFILE).ok().map(|(_, hard)| hard),
    };
    let need = u64::from(admission_on) * 2 + FILES_BESIDE;
    match most {
        Some(most) if most < need => report.warning(
            format!("{whose} may have {most} open files; limits.admission_on = {admission_on} needs {need}"),
            format!("LimitNOFILE={need} in its unit, or a smaller limits.admission_on"),
        ),
        Some(most) => report.fine(format!("{whose} may have {most} open files, and needs {need}")),
        None => report.untested("the limit of open files cannot be read", ""),
    }
}

/// Whether a proxy that does not run could listen where it is to.
pub(crate) fn ports(report: &mut Report, listeners: &[(SocketAddr, String)]) {
    report.area("listeners");
    for (address, key) in listeners {
        match TcpListener::bind(address) {
            Ok(_) => report.fine(format!("{address} ({key}) is free")),
            Err(error) => {
                let remedy = match error.kind() {
                    io::ErrorKind::AddrInUse => "another program has it: ss -ltnp shows which",
                    io::ErrorKind::AddrNotAvailable => {
                        "this machine does not have that address: ip addr shows those it has"
                    }
                    io::ErrorKind::PermissionDenied => {
                        "give the proxy CAP_NET_BIND_SERVICE, or run doctor as root"
                    }
                    _ => "correct the address",
                };
                report.failure(format!("{address} ({key}) cannot be listened on: {error}"), remedy);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::finding::Outcome;
    use super::*;

    #[test]
    fn a_port_that_is_taken_and_a_limit_that_is_too_low_are_found() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut report = Report::default();
        ports(
            &mut report,
            &[
                (taken.local_addr().unwrap(), "rule.listen".into()),
                ("127.0.0.1:0".parse().unwrap(), "admin.listen".into()),
            ],
        );
        let outcomes: Vec<_> = report.findings.iter().map(|finding| finding.outcome).collect();
        assert_eq!(outcomes, [Outcome::Failure, Outcome::Fine]);
        let mut report = Report::default();
        limits(&mut report, &Err("not running".into()), u32::MAX);
        assert!(report.findings.iter().any(|finding| finding.outcome == Outcome::Warning), "{report:?}");
        let mut report = Report::default();
        kernel(&mut report, &Err("not running".into()));
        assert!(report.findings.iter().any(|finding| finding.text.contains("BBR")), "{report:?}");
    }
}
