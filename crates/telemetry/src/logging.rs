use tracing_subscriber::EnvFilter;

/// How log lines are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// A line for people.
    Text,
    /// One JSON object a line.
    Json,
}

#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The level is neither a level nor a list of `target=level`.
    #[error("log level {level:?}: {source}")]
    Level { level: String, source: tracing_subscriber::filter::ParseError },
    /// Something else receives the log already.
    #[error("logging is already started")]
    Started,
}

/// Sends the program's log to standard error. `level` is one of `error`, `warn`, `info`, `debug`, `trace`, or a list
/// such as `info,isthmus_net=debug`.
pub fn start_logging(format: LogFormat, level: &str) -> Result<(), LogError> {
    let filter = EnvFilter::builder()
        .parse(level)
        .map_err(|source| LogError::Level { level: level.to_owned(), source })?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match format {
        LogFormat::Text => builder.with_ansi(false).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    started.map_err(|_| LogError::Started)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_level_is_named_and_a_second_start_refused() {
        let error = start_logging(LogFormat::Text, "isthmus=loud").unwrap_err();
        assert!(error.to_string().contains("isthmus=loud"), "{error}");
        start_logging(LogFormat::Json, "info,isthmus_net=debug").unwrap();
        assert!(matches!(start_logging(LogFormat::Text, "info"), Err(LogError::Started)));
    }
}
