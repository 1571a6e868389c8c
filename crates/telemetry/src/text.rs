//! Text from the network, made fit to be shown.

/// `text` without control characters and cut to `chars_max` characters, the last one an ellipsis if anything was cut.
pub fn clean(text: &str, chars_max: usize) -> String {
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    let mut out: String = text.chars().take(chars_max).map(printable).collect();
    if text.chars().nth(chars_max).is_some() {
        out.pop();
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::clean;

    #[test]
    fn cuts_at_characters_and_drops_controls() {
        assert_eq!(clean("naïve\u{1b}[31m", 20), "naïve [31m");
        assert_eq!(clean("日本語です", 3), "日本…");
        assert_eq!(clean("abc", 3), "abc");
    }
}
