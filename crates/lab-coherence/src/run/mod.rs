//! A real server, pairs of proxies, and the clients of many seeds at work side by side.

mod actor;
mod canary;
mod lane;
mod world;

pub use world::{Options, Outcome, World};
