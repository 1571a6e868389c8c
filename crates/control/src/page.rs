//! The console page, embedded: the program carries it along and loads nothing from anywhere.

use axum::Router;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;

struct Asset {
    path: &'static str,
    content_type: &'static str,
    content: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

const ASSETS: [Asset; 9] = [
    Asset { path: "/", content_type: HTML, content: include_str!("page/index.html") },
    Asset { path: "/console.css", content_type: CSS, content: include_str!("page/console.css") },
    Asset { path: "/console.js", content_type: JAVASCRIPT, content: include_str!("page/console.js") },
    Asset { path: "/panels.js", content_type: JAVASCRIPT, content: include_str!("page/panels.js") },
    Asset { path: "/connections.js", content_type: JAVASCRIPT, content: include_str!("page/connections.js") },
    Asset { path: "/chart.js", content_type: JAVASCRIPT, content: include_str!("page/chart.js") },
    Asset { path: "/fleet.js", content_type: JAVASCRIPT, content: include_str!("page/fleet.js") },
    Asset { path: "/format.js", content_type: JAVASCRIPT, content: include_str!("page/format.js") },
    Asset { path: "/icon.svg", content_type: SVG, content: include_str!("page/icon.svg") },
];

pub(crate) fn routes<S: Clone + Send + Sync + 'static>() -> Router<S> {
    ASSETS.iter().fold(Router::new(), |router, asset| router.route(asset.path, get(|| serve(asset))))
}

async fn serve(asset: &'static Asset) -> impl IntoResponse {
    // Asked for again after an update, as the page and the program must fit each other.
    let headers = [(header::CONTENT_TYPE, asset.content_type), (header::CACHE_CONTROL, "no-cache")];
    (headers, asset.content)
}
