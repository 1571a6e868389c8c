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

words!(WhenUnavailable { "pass-through" = WhenUnavailable::PassThrough, "refuse" = WhenUnavailable::Refuse });

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
