/// What a connection carries, as far as its port tells. A small fixed set, since it is a metric label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Protocol {
    Smb,
    Nfs,
    Http,
    Https,
    Ssh,
    /// Any other TCP service.
    Tcp,
}

impl Protocol {
    pub const ALL: [Protocol; 6] =
        [Protocol::Smb, Protocol::Nfs, Protocol::Http, Protocol::Https, Protocol::Ssh, Protocol::Tcp];

    /// The protocol that is registered for a target port.
    pub fn from_port(port: u16) -> Protocol {
        match port {
            139 | 445 => Protocol::Smb,
            2049 => Protocol::Nfs,
            80 | 8080 => Protocol::Http,
            443 | 8443 => Protocol::Https,
            22 => Protocol::Ssh,
            _ => Protocol::Tcp,
        }
    }

    /// Metric label and console word.
    pub fn label(self) -> &'static str {
        match self {
            Protocol::Smb => "smb",
            Protocol::Nfs => "nfs",
            Protocol::Http => "http",
            Protocol::Https => "https",
            Protocol::Ssh => "ssh",
            Protocol::Tcp => "tcp",
        }
    }
}
