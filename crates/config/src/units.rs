//! Sizes and durations in the units people write: `"10 GiB"`, `"500 MB"`, `"10 min"`, `"250 ms"`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Longest text of a size or a duration that is looked at, in bytes.
const UNIT_TEXT_LEN_MAX: usize = 64;

/// A number of bytes. Written with a unit: `B`, decimal `kB`, `MB`, `GB`, `TB` or binary `KiB`, `MiB`, `GiB`, `TiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size(u64);

impl Size {
    /// A size of `bytes` bytes.
    pub const fn from_bytes(bytes: u64) -> Size {
        Size(bytes)
    }

    /// A size of `count` mebibytes (2^20 bytes). Saturates.
    pub const fn from_mib(count: u64) -> Size {
        Size(count.saturating_mul(1 << 20))
    }

    /// A size of `count` gibibytes (2^30 bytes). Saturates.
    pub const fn from_gib(count: u64) -> Size {
        Size(count.saturating_mul(1 << 30))
    }

    /// The number of bytes.
    pub const fn bytes(self) -> u64 {
        self.0
    }
}

/// Units, the largest first, so that formatting takes the first that divides the value.
const SIZE_UNITS: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("TB", 1_000_000_000_000),
    ("GiB", 1 << 30),
    ("GB", 1_000_000_000),
    ("MiB", 1 << 20),
    ("MB", 1_000_000),
    ("KiB", 1 << 10),
    ("kB", 1_000),
    ("B", 1),
];

impl fmt::Display for Size {
    /// Exact: the largest unit that gives a whole number, so that parsing it gives the same size.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, scale) = SIZE_UNITS
            .into_iter()
            .find(|(_, scale)| self.0 != 0 && self.0.is_multiple_of(*scale))
            .unwrap_or(("B", 1));
        write!(f, "{} {unit}", self.0 / scale)
    }
}

impl FromStr for Size {
    type Err = String;

    /// Accepts a decimal number with up to nine digits after the point, optional spaces, and a unit (case is ignored).
    fn from_str(text: &str) -> Result<Size, String> {
        let text = text.trim();
        if text.len() > UNIT_TEXT_LEN_MAX {
            return Err("is too long for a size".into());
        }
        let split = text.find(|c: char| !c.is_ascii_digit() && c != '.' && c != '_').unwrap_or(text.len());
        let (number, unit) = (&text[..split], text[split..].trim());
        if unit.is_empty() {
            return Err("has no unit".into());
        }
        let scale = SIZE_UNITS
            .into_iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(unit))
            .map(|(_, scale)| scale)
            .ok_or_else(|| format!("has the unknown unit {unit:?}"))?;
        scaled(number, scale).map(Size)
    }
}

/// `number` times `scale`, exactly, in whole bytes.
fn scaled(number: &str, scale: u64) -> Result<u64, String> {
    const FRACTION_DIGITS_MAX: usize = 9;
    let digits = number.replace('_', "");
    let (whole, fraction) = digits.split_once('.').unwrap_or((&digits, ""));
    let all_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !all_digits(whole) || !all_digits(fraction) || digits.ends_with('.') {
        return Err("does not start with a number".into());
    }
    if fraction.len() > FRACTION_DIGITS_MAX {
        return Err("has too many digits after the point".into());
    }
    let too_large = || "is too large".to_string();
    let whole: u128 = whole.parse().map_err(|_| too_large())?;
    let part: u128 = if fraction.is_empty() { 0 } else { fraction.parse().map_err(|_| too_large())? };
    let denominator = 10u128.pow(fraction.len() as u32);
    let bytes = whole
        .checked_mul(u128::from(scale))
        .and_then(|bytes| bytes.checked_add(part * u128::from(scale) / denominator))
        .ok_or_else(too_large)?;
    u64::try_from(bytes).map_err(|_| too_large())
}

/// Reads a duration such as `"10 min"`, `"250 ms"` or `"1h 30m"`.
///
/// The error says what is wrong with the text, to be read after it.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let text = text.trim();
    if text.len() > UNIT_TEXT_LEN_MAX {
        return Err("is too long for a duration".into());
    }
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()) && text != "0" {
        return Err("has no unit".into());
    }
    humantime::parse_duration(text).map_err(|error| match error {
        humantime::DurationError::UnknownUnit { unit, .. } => format!("has the unknown unit {unit:?}"),
        humantime::DurationError::NumberOverflow => "is too large".into(),
        humantime::DurationError::Empty => "is empty".into(),
        _ => "is not a number with a unit".into(),
    })
}

/// Writes a duration exactly, in the largest unit that gives a whole number: `"10 min"`.
pub fn format_duration(duration: Duration) -> String {
    const UNITS: [(&str, u128); 6] = [
        ("h", 3_600_000_000_000),
        ("min", 60_000_000_000),
        ("s", 1_000_000_000),
        ("ms", 1_000_000),
        ("us", 1_000),
        ("ns", 1),
    ];
    let nanos = duration.as_nanos();
    let (unit, scale) = UNITS
        .into_iter()
        .find(|(_, scale)| nanos != 0 && nanos.is_multiple_of(*scale))
        .unwrap_or(("s", 1_000_000_000));
    format!("{} {unit}", nanos / scale)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("10 GiB", 10 << 30),
            ("500 MB", 500_000_000),
            ("64KiB", 65_536),
            ("1.5 GiB", 3 << 29),
            ("0 B", 0),
            ("1_000 kb", 1_000_000),
            (" 7 b ", 7),
        ] {
            assert_eq!(text.parse::<Size>(), Ok(Size(bytes)), "{text}");
        }
        for bad in
            ["", "10", "GiB", "10 XB", "-1 GiB", "1. GiB", ".5 GiB", "1.2.3 MB", "99999999999 TiB", "1 G iB"]
        {
            assert!(bad.parse::<Size>().is_err(), "{bad:?} must be refused");
        }
    }

    #[test]
    fn durations_are_read_as_people_write_them() {
        for (text, millis) in [
            ("10 min", 600_000),
            ("250 ms", 250),
            ("1h 30m", 5_400_000),
            ("2s", 2_000),
            ("0 s", 0),
            ("7 days", 604_800_000),
        ] {
            assert_eq!(parse_duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
        for bad in ["", "10", "ten s", "10 parsecs", "-1 s", "99999999999999999999999 s"] {
            assert!(parse_duration(bad).is_err(), "{bad:?} must be refused");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back_the_same(value: u64) {
            prop_assert_eq!(Size(value).to_string().parse::<Size>(), Ok(Size(value)));
            let duration = Duration::from_nanos(value);
            prop_assert_eq!(parse_duration(&format_duration(duration)), Ok(duration));
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,80}") {
            let _ = text.parse::<Size>();
            let _ = parse_duration(&text);
        }
    }
}
