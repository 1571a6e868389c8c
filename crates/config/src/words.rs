//! Closed sets of words: every `action = "…"`-like key is one enum with one table.

use std::fmt;
use std::str::FromStr;

use crate::sections::{CompressionLevel, LogFormat, LogLevel};

/// What is done with a connection that a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Carried by the pair: reduced, and accelerated where the protocol is understood.
    Optimise,
    /// Carried by the pair and reduced as plain bytes, whatever the protocol.
    ReduceOnly,
    /// Relayed straight to the target, past the pair.
    PassThrough,
    /// Closed at once.
    Deny,
}

/// What is done with a connection that should be carried by the pair when the pair cannot carry it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WhenUnavailable {
    /// Fail to wire: relay it straight to the target.
    PassThrough,
    /// Close it.
    Refuse,
}

/// How far round trips of SMB are removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Acceleration {
    /// Answers near the client under shared leases and watches too: as fresh as the news of a change arrives.
    Bounded,
    /// Answers near the client only under leases that the client has itself.
    Strict,
    /// Every request goes to the server.
    Off,
}

/// How connections are brought to the client-side proxy without clients knowing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InterceptMode {
    /// Not at all: by explicit listeners alone.
    Off,
    /// What the machine forwards, with both addresses as they are (TPROXY).
    Tproxy,
    /// What the machine forwards, by rewriting the destination (REDIRECT).
    Redirect,
    /// What the machine itself connects to.
    Local,
}

/// What a key source brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum SecretKind {
    Keytab,
    PasswordHashes,
}

/// What a release rule's peer is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ReleaseKind {
    Gateway,
    Laptop,
}

/// Implements reading, writing and listing for an enum from its table of words.
macro_rules! words {
    ($name:ty { $($word:literal = $variant:path),+ $(,)? }) => {
        impl $name {
            /// Every word that may be written, in the order the documentation lists them.
            pub const WORDS: &'static [&'static str] = &[$($word),+];

            /// The word that stands for this value.
            pub fn as_str(self) -> &'static str {
                match self { $($variant => $word),+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                match text {
                    $($word => Ok($variant),)+
                    _ => Err("is unknown".into()),
                }
            }
        }
    };
}

words!(Action {
    "optimise" = Action::Optimise,
    "reduce-only" = Action::ReduceOnly,
    "pass-through" = Action::PassThrough,
    "deny" = Action::Deny,
});

words!(Acceleration {
    "bounded" = Acceleration::Bounded,
    "strict" = Acceleration::Strict,
    "off" = Acceleration::Off,
});
words!(InterceptMode {
    "off" = InterceptMode::Off,
    "tproxy" = InterceptMode::Tproxy,
    "redirect" = InterceptMode::Redirect,
    "local" = InterceptMode::Local,
});

words!(WhenUnavailable { "pass-through" = WhenUnavailable::PassThrough, "refuse" = WhenUnavailable::Refuse });

words!(SecretKind { "keytab" = SecretKind::Keytab, "password-hashes" = SecretKind::PasswordHashes });

words!(ReleaseKind { "gateway" = ReleaseKind::Gateway, "laptop" = ReleaseKind::Laptop });

words!(LogFormat { "text" = LogFormat::Text, "json" = LogFormat::Json });

words!(LogLevel {
    "error" = LogLevel::Error,
    "warn" = LogLevel::Warn,
    "info" = LogLevel::Info,
    "debug" = LogLevel::Debug,
    "trace" = LogLevel::Trace,
});

impl CompressionLevel {
    /// The smallest and the largest fixed level.
    pub const FIXED: (u8, u8) = (1, 9);
}

impl fmt::Display for CompressionLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CompressionLevel::Auto => f.write_str("auto"),
            CompressionLevel::Fixed(level) => level.fmt(f),
        }
    }
}

impl FromStr for CompressionLevel {
    type Err = String;

    fn from_str(text: &str) -> Result<CompressionLevel, String> {
        let (least, most) = CompressionLevel::FIXED;
        match text.parse::<u8>() {
            _ if text == "auto" => Ok(CompressionLevel::Auto),
            Ok(level) if (least..=most).contains(&level) => Ok(CompressionLevel::Fixed(level)),
            _ => Err("is no such level".into()),
        }
    }
}
