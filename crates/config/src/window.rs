//! A part of each day.

use std::fmt;
use std::str::FromStr;

const MINUTES_OF_A_DAY: u16 = 24 * 60;

/// From one time of day until another, in local time. The second may be on the next day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeWindow {
    /// Minutes since midnight.
    from: u16,
    until: u16,
}

impl TimeWindow {
    /// Whether this minute of the day is within.
    pub fn contains(self, minute: u16) -> bool {
        if self.from < self.until {
            (self.from..self.until).contains(&minute)
        } else {
            minute >= self.from || minute < self.until
        }
    }
}

impl FromStr for TimeWindow {
    type Err = String;

    /// `22:00-06:00`.
    fn from_str(text: &str) -> Result<TimeWindow, String> {
        let bad = || "is no time window".to_owned();
        let minute = |text: &str| {
            let (hours, minutes) = text.trim().split_once(':')?;
            if hours.is_empty() || hours.len() > 2 || minutes.len() != 2 {
                return None;
            }
            let (hours, minutes): (u16, u16) = (hours.parse().ok()?, minutes.parse().ok()?);
            let minute = hours * 60 + minutes;
            (minutes < 60 && minute <= MINUTES_OF_A_DAY).then_some(minute % MINUTES_OF_A_DAY)
        };
        let (from, until) = text.split_once('-').ok_or_else(bad)?;
        let (from, until) = (minute(from).ok_or_else(bad)?, minute(until).ok_or_else(bad)?);
        if from == until { Err(bad()) } else { Ok(TimeWindow { from, until }) }
    }
}

impl fmt::Display for TimeWindow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, until) = (self.from, self.until);
        write!(f, "{:02}:{:02}-{:02}:{:02}", from / 60, from % 60, until / 60, until % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_may_reach_over_midnight() {
        let night: TimeWindow = "22:00-6:30".parse().unwrap_or_else(|why| panic!("{why}"));
        assert_eq!(night.to_string(), "22:00-06:30");
        for (minute, is_in) in
            [(0, true), (389, true), (390, false), (720, false), (1_319, false), (1_320, true), (1_439, true)]
        {
            assert_eq!(night.contains(minute), is_in, "{minute}");
        }
        let day: TimeWindow = "09:15-24:00".parse().unwrap_or_else(|why| panic!("{why}"));
        assert!(day.contains(1_439) && !day.contains(0) && !day.contains(554) && day.contains(555));
        for bad in
            ["", "22:00", "22-06", "25:00-06:00", "22:60-06:00", "22:00-22:00", "00:00-24:00", "a:b-c:d"]
        {
            assert!(bad.parse::<TimeWindow>().is_err(), "{bad}");
        }
    }
}
