//! Printing and writing the figures.

use super::Values;
use super::figures::all_figures;
use isthmus_lab::{LabError, Result};
use serde::Serialize;
use std::path::Path;

#[derive(Serialize)]
struct Json<'a> {
    figures: &'a Values,
}

/// The table of figures, then the notes.
pub fn print(values: &Values, notes: &[String]) {
    println!("\n{:<24}{:<52}{:>28}{:>14}{:>14}", "figure", "what", "best open pair", "goal", "Isthmus");
    for figure in all_figures() {
        let Some(value) = values.get(figure.name) else { continue };
        let mark = if figure.goal.is_met(*value) { "" } else { "  MISSED" };
        println!(
            "{:<24}{:<52}{:>28}{:>14}{:>14}{mark}",
            figure.name,
            figure.what,
            figure.competitor,
            figure.goal.show(figure.unit),
            figure.unit.show(*value),
        );
    }
    for note in notes {
        println!("  {note}");
    }
}

/// `{"figures": {name: number}}`.
///
/// # Errors
/// The file cannot be written.
pub fn write_json(path: &Path, values: &Values) -> Result<()> {
    let text = serde_json::to_string_pretty(&Json { figures: values })
        .map_err(|error| LabError::Format { what: "the figures".into(), detail: error.to_string() })?;
    std::fs::write(path, text + "\n")
        .map_err(|source| LabError::Io { action: format!("writing {}", path.display()), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_holds_the_figures_by_name() {
        let path = std::env::temp_dir().join(format!("isthmus-figures-{}", std::process::id()));
        write_json(&path, &Values::from([("mixed.rss".to_string(), 12.5)])).unwrap();
        let read: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read["figures"]["mixed.rss"], 12.5);
    }
}
