use isthmus_config::ServerConfig;

use crate::AppError;

/// Runs the server-side proxy until it is told to stop.
pub async fn run(_config: ServerConfig) -> Result<(), AppError> {
    Err(AppError::NotBuilt)
}
