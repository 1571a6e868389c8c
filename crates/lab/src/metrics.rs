//! Reading the Prometheus text format.

use crate::error::{LabError, Result};
use std::collections::BTreeMap;

/// Everything that one reading of `/metrics` says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metrics {
    samples: Vec<Sample>,
}

/// One line.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Name of the metric.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its value.
    pub value: f64,
}

impl Metrics {
    /// Parses the text.
    ///
    /// # Errors
    /// A line that is neither a comment nor a sample.
    pub fn parse(text: &str) -> Result<Metrics> {
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let parse = |line: &str| {
            sample(line).ok_or_else(|| LabError::Format { what: "a metric".into(), detail: line.to_string() })
        };
        Ok(Metrics { samples: lines.map(parse).collect::<Result<_>>()? })
    }

    /// Sum of all samples of this name whose labels have these values; 0 when there are none.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.matching(name, labels).map(|sample| sample.value).sum()
    }

    /// As [`Metrics::sum`], but `None` when there are none, which tells a misspelt name from a zero.
    pub fn find(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        self.matching(name, labels).map(|sample| sample.value).reduce(|a, b| a + b)
    }

    /// All samples.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    fn matching<'a>(&'a self, name: &'a str, labels: &'a [(&str, &str)]) -> impl Iterator<Item = &'a Sample> {
        self.samples.iter().filter(move |sample| {
            let has = |(key, value): &(&str, &str)| sample.labels.get(*key).is_some_and(|have| have == value);
            sample.name == name && labels.iter().all(has)
        })
    }
}

fn sample(line: &str) -> Option<Sample> {
    let name_end = line.find(|c: char| c == '{' || c.is_whitespace())?;
    let (name, mut rest) = line.split_at(name_end);
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = read_labels(inside, &mut labels)?;
    }
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some(Sample { name: name.into(), labels, value })
}

/// Reads `key="value",…}` and returns what follows.
fn read_labels<'a>(mut rest: &'a str, labels: &mut BTreeMap<String, String>) -> Option<&'a str> {
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(after) = rest.strip_prefix('}') {
            return Some(after);
        }
        let (key, after) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut characters = after.char_indices();
        let end = loop {
            match characters.next()? {
                (at, '"') => break at,
                (_, '\\') => match characters.next()?.1 {
                    'n' => value.push('\n'),
                    other => value.push(other),
                },
                (_, other) => value.push(other),
            }
        };
        labels.insert(key.trim().into(), value);
        rest = &after[end + 1..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_labels_and_escapes_are_read() {
        let text = "# HELP a b\n# TYPE a counter\na{x=\"1\",y=\"q\\\"u\\\\o\\nte\"} 3\na{x=\"2\"} 4.5e1 1700000000\nb 7\nc +Inf\n";
        let metrics = Metrics::parse(text).unwrap();
        assert_eq!(metrics.sum("a", &[]), 48.0);
        assert_eq!(metrics.sum("a", &[("x", "2")]), 45.0);
        assert_eq!(metrics.samples()[0].labels["y"], "q\"u\\o\nte");
        assert_eq!(metrics.find("b", &[]), Some(7.0));
        assert_eq!((metrics.find("d", &[]), metrics.sum("d", &[])), (None, 0.0));
        assert!(metrics.find("c", &[]).unwrap().is_infinite());
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["a", "a{x=\"1\"", "a{x=1} 2", "a {} x"] {
            assert!(Metrics::parse(text).is_err(), "{text}");
        }
    }
}
