use isthmus_config::ClientConfig;

use crate::AppError;

/// Runs the client-side proxy until it is told to stop.
pub async fn run(_config: ClientConfig) -> Result<(), AppError> {
    Err(AppError::NotBuilt)
}
