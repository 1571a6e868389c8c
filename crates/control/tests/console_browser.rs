//! The console in headless Chromium, at the width of a desk, a tablet and a telephone, light and dark.
//! Needs the packages `chromium` and `chromium-driver`; without them the test says so and checks nothing.

// Helpers of tests may unwrap, as tests do.
#![allow(clippy::unwrap_used)]

mod browser;
mod http_client;
mod sample;

use browser::Browser;
use http_client::get;
use isthmus_control::{Admin, AdminOptions};
use isthmus_types::Side;
use sample::{Sample, Scene};
use serde_json::Value;
use std::net::SocketAddr;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

const WIDTHS: [u32; 3] = [1_280, 820, 390];

/// Every visible text whose contrast with what lies behind it is below WCAG 2.1 AA (4.5, or 3 for large text).
const POOR_CONTRAST: &str = r#"
    const channel = (c) => { c /= 255; return c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
    const parse = (text) => text.match(/[\d.]+/g).map(Number);
    const luminance = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
    const behind = (element) => {
        for (let e = element; e; e = e.parentElement) {
            const [r, g, b, a = 1] = parse(getComputedStyle(e).backgroundColor);
            if (a > 0.99) return [r, g, b];
        }
        return [255, 255, 255];
    };
    const poor = [];
    for (const element of document.querySelectorAll("body *")) {
        const text = [...element.childNodes].filter((n) => n.nodeType === 3).map((n) => n.textContent.trim()).join("");
        if (!text || !element.checkVisibility()) continue;
        const style = getComputedStyle(element);
        const ink = parse(element.namespaceURI.endsWith("svg") ? style.fill : style.color);
        const [a, b] = [luminance(ink), luminance(behind(element))].sort((x, y) => y - x);
        const size = parseFloat(style.fontSize);
        const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
        const ratio = (a + 0.05) / (b + 0.05);
        if (ratio < (large ? 3 : 4.5)) poor.push(`${text.slice(0, 40)}: ${ratio.toFixed(2)}`);
    }
    return poor;
"#;

/// Elements that stick out of the page, but for what scrolls in a box of its own or is only for screen readers.
const STICKING_OUT: &str = r#"
    const width = document.documentElement.clientWidth;
    const out = [...document.querySelectorAll("body *")].filter((element) => {
        if (!element.checkVisibility() || element.closest(".scroll, .visually-hidden, .skip")) return false;
        const box = element.getBoundingClientRect();
        return box.width > 0 && (box.right > width + 1 || box.left < -1);
    });
    const whole = document.documentElement.scrollWidth > width ? [`the page: ${document.documentElement.scrollWidth}`] : [];
    return whole.concat(out.map((e) => `${e.tagName} ${e.className.baseVal ?? e.className} ${e.textContent.slice(0, 30)}`));
"#;

/// Controls without a name, and the same id twice.
const WITHOUT_NAME: &str = r#"
    const named = (e) => (e.getAttribute("aria-label") ?? e.labels?.[0]?.textContent ?? e.textContent).trim();
    const controls = [...document.querySelectorAll("button, a, select, input, [tabindex='0']")].filter((e) => !named(e));
    const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
    const twice = ids.filter((id, i) => ids.indexOf(id) !== i);
    return controls.map((e) => e.outerHTML).concat(twice);
"#;

struct Port {
    address: SocketAddr,
    sample: Sample,
    stop: oneshot::Sender<()>,
    runtime: Runtime,
}

fn serve(side: Side, scene: Scene) -> Port {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let sample = Sample::new(side, scene);
    let admin = Admin::new(sample.telemetry.clone(), sample.source.clone(), AdminOptions::default());
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    runtime.spawn(admin.serve(listener, async { drop(stopped.await) }));
    Port { address, sample, stop, runtime }
}

impl Port {
    fn json(&self, path: &str) -> Value {
        serde_json::from_str(&get(self.address, path).body).unwrap()
    }

    fn show(&self, browser: &Browser, width: u32, dark: bool) {
        browser.device(width, dark);
        browser.go(&format!("http://{}/", self.address));
        browser.wait("document.getElementById('updated').textContent.includes(':')");
    }
}

fn nothing(browser: &Browser, script: &str, what: &str) {
    let found = browser.run(script);
    assert_eq!(found, Value::Array(Vec::new()), "{what}");
}

#[test]
fn the_console_works_in_a_browser() {
    let browser = match browser::open() {
        Ok(browser) => browser,
        Err(reason) => return println!("ignored: {reason}"),
    };
    for (side, scene) in [
        (Side::Client, Scene::Busy),
        (Side::Client, Scene::Trouble),
        (Side::Server, Scene::Busy),
        (Side::Server, Scene::Fresh),
    ] {
        let port = serve(side, scene);
        for width in WIDTHS {
            for dark in [false, true] {
                let what = format!("{side} {scene:?} at {width}, dark {dark}");
                port.show(&browser, width, dark);
                nothing(&browser, STICKING_OUT, &what);
                nothing(&browser, POOR_CONTRAST, &what);
                nothing(&browser, WITHOUT_NAME, &what);
                key_figures(&browser, &port, &what);
                assert_eq!(browser.complaints(), Vec::<String>::new(), "{what}");
            }
        }
    }
    let port = serve(Side::Client, Scene::Busy);
    port.show(&browser, WIDTHS[0], false);
    charts_answer_to_keys(&browser);
    the_table_sorts_and_filters(&browser, &port);
    new_figures_appear(&browser, &port);
    assert_eq!(browser.complaints(), Vec::<String>::new());
    lost_contact_is_told(&browser, port);
}

fn key_figures(browser: &Browser, port: &Port, what: &str) {
    let summary = port.json("/api/summary");
    let side = summary["side"].as_str().unwrap();
    assert_eq!(browser.text("#side"), format!("{side} proxy"), "{what}");
    let alarms = browser.run("return document.querySelectorAll('#alarms .notice').length");
    assert_eq!(alarms.as_u64().unwrap() as usize, summary["alarms"].as_array().unwrap().len(), "{what}");
    let period = if summary["reduction"]["now"]["lan_bytes"] == 0 { "hour" } else { "now" };
    let shown = browser.text("#reduction-now");
    match summary["reduction"][period]["data_reduction"].as_f64() {
        Some(real) => {
            let number: f64 = shown.trim_end_matches('%').trim().parse().unwrap();
            assert!((number / 100.0 - real).abs() < 0.001, "{what}: {shown} for {real}");
            let drawn = browser.text("#chart-reduction .legend") + &browser.text("#ledger");
            assert!(drawn.contains("Position runs"), "{what}: {drawn}");
            let path = "return document.querySelector('#chart-reduction path.line').getAttribute('d').length";
            assert!(browser.run(path).as_u64().unwrap() > 500, "{what}: the chart is drawn");
        }
        None => {
            assert_eq!(shown, "No traffic yet", "{what}");
            assert!(browser.text("#connections-empty").contains("No connections yet"), "{what}");
        }
    }
    let rows = browser.run("return document.querySelectorAll('#connections tbody tr').length");
    assert_eq!(rows, port.json("/api/connections")["matched"], "{what}");
    let peers = browser.run("return document.querySelectorAll('#peers > li').length");
    assert_eq!(peers, port.json("/api/peers")["total"], "{what}");
    let store = port.json("/api/store");
    let state = browser.text("#store-state").to_lowercase().replace(' ', "_");
    assert_eq!(state, store["state"].as_str().unwrap(), "{what}");
}

fn charts_answer_to_keys(browser: &Browser) {
    browser.key("#chart-throughput .plot", "End");
    let tip = browser.text("#chart-throughput .tip");
    assert!(tip.contains("LAN") && tip.contains("WAN") && tip.contains("bit/s"), "{tip}");
    browser.key("#chart-throughput .plot", "ArrowLeft");
    assert_ne!(browser.text("#chart-throughput .tip"), tip);
    assert!(browser.text("#chart-throughput > p:last-child").contains("LAN"), "also for those who hear it");
    browser.key("#chart-throughput .plot", "Escape");
    browser.wait("document.querySelector('#chart-throughput .tip').hidden");
    browser.run("document.querySelector('[data-span=\"24h\"]').click()");
    browser.wait("document.querySelector('#chart-throughput .grid-lines').textContent.includes('24 h')");
}

fn the_table_sorts_and_filters(browser: &Browser, port: &Port) {
    let largest = port.json("/api/connections?sort=lan_bytes&limit=1");
    browser.run("document.querySelector('th.c-lan button').click()");
    let client = largest["connections"][0]["client"].as_str().unwrap();
    browser.wait(&format!("document.querySelector('#connections tbody tr').innerText.includes('{client}')"));
    browser.wait("document.querySelector('th.c-lan').getAttribute('aria-sort') === 'descending'");
    browser.run(
        "const q = document.getElementById('connections-q'); q.value = 'archive'; q.dispatchEvent(new Event('input'))",
    );
    browser.wait("document.querySelectorAll('#connections tbody tr').length === 1");
    browser.run("const q = document.getElementById('connections-q'); q.value = 'asha'; q.dispatchEvent(new Event('input'))");
    browser
        .wait("document.querySelector('#connections tbody td.c-smb')?.innerText.includes('EXAMPLE\\\\asha')");
    let smb = browser.text("#connections tbody td.c-smb");
    assert!(smb.contains("Encrypted, keys") && smb.contains("3.1.1 · AES-128-GCM"), "{smb}");
    assert!(smb.ends_with("EXAMPLE\\asha · projects, home"), "{smb}");
    browser.run("const q = document.getElementById('connections-q'); q.value = ''; q.dispatchEvent(new Event('input'))");
    browser.run(
        "const s = document.getElementById('connections-state'); s.value = 'closed'; s.dispatchEvent(new Event('change'))",
    );
    browser.wait("document.querySelector('#connections tbody').innerText.includes('Ended: denied')");
    browser.run(
        "const s = document.getElementById('connections-state'); s.value = 'open'; s.dispatchEvent(new Event('change'))",
    );
    browser.wait("document.querySelectorAll('#connections tbody tr').length === 8");
}

/// An update changes figures in place: the row that was there is the row that is there.
fn new_figures_appear(browser: &Browser, port: &Port) {
    browser.run(
        "window.row = document.querySelector('#connections tbody tr'); window.lan = row.cells[4].innerText",
    );
    for _ in 0..600 {
        port.sample.advance(std::time::Duration::from_secs(5));
    }
    browser.wait("row.cells[4].innerText !== lan");
    browser.wait("row === document.querySelector('#connections tbody tr')");
}

fn lost_contact_is_told(browser: &Browser, port: Port) {
    assert_eq!(browser.run("return document.getElementById('lost').hidden"), Value::Bool(true));
    drop(port.stop);
    drop(port.runtime);
    browser.wait("!document.getElementById('lost').hidden");
    assert!(browser.text("#lost").contains("Lost contact with the proxy"));
    assert!(!browser.text("#reduction-now").is_empty(), "the last figures stay");
}
