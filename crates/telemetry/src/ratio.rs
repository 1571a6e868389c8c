//! The two figures every report quotes, defined once.

/// Data reduction: 1 − WAN/LAN.
///
/// `None` when no LAN bytes were carried, since nothing can then be said. Negative when the WAN carried more than the
/// LAN did, as an idle link does that only exchanges heartbeats.
pub fn data_reduction(lan_bytes: u64, wan_bytes: u64) -> Option<f64> {
    (lan_bytes > 0).then(|| 1.0 - wan_bytes as f64 / lan_bytes as f64)
}

/// Capacity increase: LAN/WAN, the factor by which the link appears to have grown.
///
/// `None` when either is zero: without LAN bytes there is nothing to compare, without WAN bytes no finite factor.
pub fn capacity_increase(lan_bytes: u64, wan_bytes: u64) -> Option<f64> {
    (lan_bytes > 0 && wan_bytes > 0).then(|| lan_bytes as f64 / wan_bytes as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_cases_are_undefined_and_not_a_number_to_show() {
        assert_eq!(data_reduction(0, 0), None);
        assert_eq!(data_reduction(0, 10), None);
        assert_eq!(data_reduction(10, 0), Some(1.0));
        assert_eq!(capacity_increase(0, 0), None);
        assert_eq!(capacity_increase(0, 10), None);
        assert_eq!(capacity_increase(10, 0), None);
    }

    #[test]
    fn figures_follow_their_definition() {
        assert_eq!(data_reduction(100, 25), Some(0.75));
        assert_eq!(data_reduction(100, 150), Some(-0.5));
        assert_eq!(capacity_increase(100, 25), Some(4.0));
        let (lan, wan) = (981_500_000, 9_200_000);
        assert!((capacity_increase(lan, wan).unwrap() - 106.7).abs() < 0.05);
    }
}
