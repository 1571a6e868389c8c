//! Headless Chromium through ChromeDriver's HTTP interface (W3C WebDriver), with no library between.

// Helpers of tests may unwrap, as tests do.
#![allow(clippy::unwrap_used)]

use super::http_client::{Answer, get, request};
use serde_json::{Value, json};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const CHROMIUM: &str = "/usr/bin/chromium";
const CHROMEDRIVER: &str = "/usr/bin/chromedriver";
/// For what must come, on a machine that may be busy. Not a measure of speed.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Browser {
    driver: Child,
    address: SocketAddr,
    session: String,
    _profile: TempDir,
}

/// A browser, or the reason why there is none here. Where CI runs there must be one.
pub fn open() -> Result<Browser, String> {
    for program in [CHROMIUM, CHROMEDRIVER] {
        if !Path::new(program).exists() {
            let reason = format!("{program} is missing: apt-get install chromium chromium-driver");
            assert!(std::env::var_os("CI").is_none(), "{reason}");
            return Err(reason);
        }
    }
    // A free port, as far as one can know; ChromeDriver itself cannot choose one and tell.
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let driver = Command::new(CHROMEDRIVER)
        .arg(format!("--port={port}"))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let profile = tempfile::tempdir().unwrap();
    let mut browser = Browser { driver, address, session: String::new(), _profile: profile };
    until("ChromeDriver answers", || TcpStream::connect(address).ok().map(drop));
    until("ChromeDriver is ready", || get(address, "/status").body.contains("\"ready\":true").then_some(()));
    browser.start();
    Ok(browser)
}

/// Waits for something to become true.
pub fn until<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

impl Browser {
    fn start(&mut self) {
        let profile = format!("--user-data-dir={}", self._profile.path().display());
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--disable-dev-shm-usage",
            profile.as_str(),
        ];
        let capabilities = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome",
            "goog:loggingPrefs": {"browser": "ALL"},
            "goog:chromeOptions": {"binary": CHROMIUM, "args": arguments},
        }}});
        let answer = self.post("/session", &capabilities);
        self.session = answer["sessionId"].as_str().unwrap().to_owned();
    }

    /// Sets the size of the window's content and the preferred colour scheme.
    pub fn device(&self, width: u32, dark: bool) {
        let mobile = width < 700;
        let height = if mobile { 844 } else { 900 };
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": mobile});
        self.cdp("Emulation.setDeviceMetricsOverride", metrics);
        let scheme = if dark { "dark" } else { "light" };
        let features = json!({"features": [
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": "reduce"},
        ]});
        self.cdp("Emulation.setEmulatedMedia", features);
    }

    pub fn go(&self, url: &str) {
        self.post(&self.path("/url"), &json!({"url": url}));
    }

    /// What a script returns.
    pub fn run(&self, script: &str) -> Value {
        self.post(&self.path("/execute/sync"), &json!({"script": script, "args": []}))
    }

    pub fn text(&self, selector: &str) -> String {
        let value = self.run(&format!("return document.querySelector({selector:?}).innerText"));
        value.as_str().unwrap_or_default().to_owned()
    }

    /// Waits until a script returns something true.
    pub fn wait(&self, script: &str) {
        until(script, || (self.run(&format!("return Boolean({script})")) == Value::Bool(true)).then_some(()));
    }

    /// Presses a key while the element has the focus.
    pub fn key(&self, selector: &str, key: &str) {
        self.run(&format!("document.querySelector({selector:?}).focus()"));
        for kind in ["keyDown", "keyUp"] {
            self.cdp("Input.dispatchKeyEvent", json!({"type": kind, "key": key, "code": key}));
        }
    }

    /// Complaints of the page and of the browser about the page since the last call.
    pub fn complaints(&self) -> Vec<String> {
        let log = self.post(&self.path("/se/log"), &json!({"type": "browser"}));
        let lines = log.as_array().cloned().unwrap_or_default();
        lines
            .iter()
            .filter(|line| line["level"] != "INFO" && line["level"] != "DEBUG")
            .map(Value::to_string)
            .collect()
    }

    fn cdp(&self, command: &str, parameters: Value) {
        self.post(&self.path("/goog/cdp/execute"), &json!({"cmd": command, "params": parameters}));
    }

    fn path(&self, rest: &str) -> String {
        format!("/session/{}{rest}", self.session)
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let answer = self.send("POST", path, &body.to_string());
        assert_eq!(answer.status, 200, "{path}: {}", answer.body);
        let mut value: Value = serde_json::from_str(&answer.body).unwrap();
        value["value"].take()
    }

    fn send(&self, method: &str, path: &str, body: &str) -> Answer {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            self.address,
            body.len()
        );
        request(self.address, &(head + body))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Deleting the session lets Chromium itself end; without one there is only the driver.
        if !self.session.is_empty() && TcpStream::connect(self.address).is_ok() && !std::thread::panicking() {
            self.send("DELETE", &self.path(""), "");
        } else if !self.session.is_empty() {
            let path = self.path("");
            drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.send("DELETE", &path, ""))));
        }
        drop(self.driver.kill());
        drop(self.driver.wait());
    }
}
