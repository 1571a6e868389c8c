use crate::api::connections::{ConnectionsQuery, ConnectionsView, TraceView, connections};
use crate::api::fleet::{FleetView, fleet};
use crate::api::history::{HistoryQuery, HistoryView, history};
use crate::api::host::{LinksView, ProcessView};
use crate::api::peers::{PeersView, StoreView, peers};
use crate::api::summary::{NotReadyView, SummaryView, not_ready, summary};
use crate::api::{EventView, EventsView};
use crate::guard::{Hosts, guard};
use crate::limits::EVENT_ROWS_MAX;
use crate::page;
use crate::server::AdminOptions;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router, middleware};
use isthmus_telemetry::{Source, Telemetry};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

#[derive(Clone)]
struct Context {
    telemetry: Arc<Telemetry>,
    source: Arc<dyn Source>,
}

/// A query string, or the answer that says what is wrong with it.
type Params<T> = Result<Query<T>, QueryRejection>;

pub(crate) fn router(telemetry: Arc<Telemetry>, source: Arc<dyn Source>, options: AdminOptions) -> Router {
    let hosts = Hosts::new(&options.hosts);
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/api/summary", get(api_summary))
        .route("/api/connections", get(api_connections))
        .route("/api/trace", get(api_trace))
        .route("/api/peers", get(api_peers))
        .route("/api/store", get(api_store))
        .route("/api/fleet", get(api_fleet))
        .route("/api/history", get(api_history))
        .route("/api/events", get(api_events))
        .route("/api/links", get(api_links))
        .route("/api/process", get(api_process))
        .merge(page::routes())
        .fallback(not_found)
        .with_state(Context { telemetry, source })
        .layer(middleware::from_fn_with_state(hosts, guard))
}

async fn metrics(State(context): State<Context>) -> Response {
    match context.telemetry.metrics_text() {
        Ok(text) => {
            ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
        }
        Err(error) => {
            tracing::error!(%error, "metrics cannot be written");
            (StatusCode::INTERNAL_SERVER_ERROR, "metrics cannot be written\n").into_response()
        }
    }
}

/// The process answers, and that is all this says.
async fn healthz() -> &'static str {
    "ok\n"
}

#[derive(Serialize)]
struct ReadyView {
    ready: bool,
    not_ready: Vec<NotReadyView>,
}

async fn readyz(State(context): State<Context>) -> (StatusCode, Json<ReadyView>) {
    let not_ready = not_ready(&context.source.status());
    let ready = not_ready.is_empty();
    let code = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(ReadyView { ready, not_ready }))
}

async fn api_summary(State(context): State<Context>) -> Json<SummaryView> {
    Json(summary(&context.telemetry, &*context.source))
}

async fn api_connections(
    State(context): State<Context>,
    query: Params<ConnectionsQuery>,
) -> Result<Json<ConnectionsView>, Response> {
    let Query(query) = query.map_err(bad_query)?;
    Ok(Json(connections(&context.telemetry, &query)))
}

#[derive(Deserialize)]
struct TraceQuery {
    connection: u64,
    after: Option<u64>,
}

/// Requests of a connection are kept only while this is asked.
async fn api_trace(
    State(context): State<Context>,
    query: Params<TraceQuery>,
) -> Result<Json<TraceView>, Response> {
    let Query(query) = query.map_err(bad_query)?;
    let missing = |text| (StatusCode::NOT_FOUND, text).into_response();
    let after = query.after.unwrap_or_default();
    let found = context.telemetry.connections().trace(query.connection, after);
    let requests = found.ok_or_else(|| missing("no such connection is open\n"))?;
    let requests = requests
        .ok_or_else(|| missing("no requests are followed on this connection; ask the client-side proxy\n"))?;
    Ok(Json(requests.into()))
}

async fn api_peers(State(context): State<Context>) -> Json<PeersView> {
    Json(peers(context.source.status().peers))
}

async fn api_store(State(context): State<Context>) -> Json<StoreView> {
    Json(context.source.status().store.into())
}

async fn api_fleet(State(context): State<Context>) -> Json<FleetView> {
    Json(fleet(context.source.fleet()))
}

async fn api_history(
    State(context): State<Context>,
    query: Params<HistoryQuery>,
) -> Result<Json<HistoryView>, Response> {
    let Query(query) = query.map_err(bad_query)?;
    Ok(Json(history(&context.telemetry, context.source.status().side, &query)))
}

#[derive(Deserialize)]
struct EventsQuery {
    after: Option<u64>,
    limit: Option<usize>,
}

async fn api_events(
    State(context): State<Context>,
    query: Params<EventsQuery>,
) -> Result<Json<EventsView>, Response> {
    let Query(query) = query.map_err(bad_query)?;
    let limit = query.limit.unwrap_or(EVENT_ROWS_MAX).min(EVENT_ROWS_MAX);
    let events = context.telemetry.events().since(query.after.unwrap_or_default());
    Ok(Json(EventsView { events: events.into_iter().rev().take(limit).map(EventView::from).collect() }))
}

async fn api_links(State(context): State<Context>) -> Json<LinksView> {
    // The kernel may take its time over thousands of sockets.
    let asked =
        tokio::task::spawn_blocking(move || context.source.links().map_err(|error| error.to_string()));
    Json(LinksView::new(asked.await.unwrap_or_else(|error| Err(error.to_string()))))
}

async fn api_process() -> Json<ProcessView> {
    Json(isthmus_telemetry::process().into())
}

async fn not_found() -> (StatusCode, &'static str) {
    (StatusCode::NOT_FOUND, "nothing is here; the console is at /\n")
}

fn bad_query(rejection: QueryRejection) -> Response {
    (StatusCode::BAD_REQUEST, format!("{}\n", rejection.body_text())).into_response()
}
