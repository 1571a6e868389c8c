//! Every limit of this crate, in one place.

use crate::RateLimit;
use std::time::Duration;

/// Files and commands that secrets come from, together.
pub const SOURCES_MAX: usize = 32;
/// How often files are looked at. A changed file is read once two looks in a row have seen the same change, so that it
/// is not read while it is being written.
pub const WATCH_INTERVAL: Duration = Duration::from_secs(2);
/// Shortest interval between two runs of a command.
pub const COMMAND_INTERVAL_MIN: Duration = Duration::from_secs(10);
/// Longest time that a command may take.
pub const COMMAND_TIMEOUT_MAX: Duration = Duration::from_secs(30 * 60);
/// How soon a command is run again after it has failed, if its interval is longer.
pub const COMMAND_RETRY: Duration = Duration::from_secs(60);
/// Arguments of a command, its program included.
pub const COMMAND_ARGUMENTS_MAX: usize = 64;
/// Bytes of a command's standard error that are kept for its error message.
pub const COMMAND_STDERR_BYTES_MAX: usize = 4_096;
/// Letters of a command's standard error that are shown.
pub const COMMAND_MESSAGE_CHARS_MAX: usize = 200;
/// Release rules.
pub const RULES_MAX: usize = 20_000;
/// Users, subnets or servers of one release rule, each.
pub const RULE_ENTRIES_MAX: usize = 10_000;
/// Releases to one gateway, if nothing else is configured: a branch of 500 people that logs on within a few minutes.
pub const GATEWAY_RATE: RateLimit = RateLimit { burst: 2_000, per_minute: 600 };
/// Releases to one laptop, if nothing else is configured.
pub const LAPTOP_RATE: RateLimit = RateLimit { burst: 60, per_minute: 30 };
