// Fetches the state of the proxy every two seconds and hands it to the panels.

import { chart, roundTicks } from "./chart.js";
import { connectionTable, setText } from "./connections.js";
import { showFleet } from "./fleet.js";
import { axisRate, clock, duration, rate, reduction } from "./format.js";
import * as panels from "./panels.js";

const UPDATE_MS = 2000;
const HIDDEN_UPDATE_MS = 30000;
const TIMEOUT_MS = 5000;
const HISTORY_MS = 5000;
/** Points drawn across a chart. Steps are added up in groups until they fit. */
const POINTS_MAX = 180;

const find = (id) => document.getElementById(id);
const state = { span: "1h", direction: "both", history: null, historyAt: 0, lastContact: 0, timer: 0, running: false, again: false };

const percent = (v) => `${Math.round(v * 100)}\u00a0%`;
const last = (column) => column.findLast((v) => v != null);
const reductionChart = chart(find("chart-reduction"), {
  title: "Data reduction over time",
  series: [{ key: "reduction", name: "Data reduction", area: true }],
  format: percent,
  exact: reduction,
  scale: () => [0, 0.25, 0.5, 0.75, 1],
  empty: "No data reduction to show yet: it appears once a connection has carried bytes over the peer.",
  describe: ([column]) => (last(column) == null ? "No traffic yet." : `Latest ${reduction(last(column))}.`),
});
const throughputChart = chart(find("chart-throughput"), {
  title: "Throughput on the LAN and on the WAN",
  series: [{ key: "lan", name: "LAN", area: true }, { key: "wan", name: "WAN", area: true }],
  format: axisRate,
  exact: rate,
  scale: (max) => roundTicks(max * 8, 100000).map((bits) => bits / 8),
  empty: "No traffic yet.",
  describe: ([lan, wan]) => (lan.length ? `Latest: LAN ${rate(last(lan))}, WAN ${rate(last(wan))}.` : "No traffic yet."),
});
const table = connectionTable(() => update());

async function fetchJson(path) {
  const response = await fetch(path, { signal: AbortSignal.timeout(TIMEOUT_MS), cache: "no-store" });
  if (!response.ok) throw new Error(`${path}: ${response.status}`);
  return response.json();
}

async function update() {
  // One round at a time; a wish that comes during one is granted after it.
  if (state.running) {
    state.again = true;
    return;
  }
  state.running = true;
  clearTimeout(state.timer);
  try {
    const [summary, connections, peers, fleet, store, events] = await Promise.all([
      fetchJson("/api/summary"),
      fetchJson(`/api/connections?${table.query()}`),
      fetchJson("/api/peers"),
      fetchJson("/api/fleet"),
      fetchJson("/api/store"),
      fetchJson("/api/events?limit=100"),
      updateHistory(),
    ]);
    state.lastContact = Date.now();
    panels.showHead(summary);
    panels.showAlarms(summary.alarms);
    panels.showReduction(summary);
    panels.showLedger(summary);
    panels.showPeers(peers, summary);
    showFleet(fleet, summary);
    panels.showStore(store);
    panels.showEvents(events);
    panels.showProxy(summary);
    table.update(connections);
    showContact(true);
  } catch (error) {
    // Told on the page; an error in drawing itself belongs on the developer's console too.
    if (!(error instanceof TypeError && error.message.includes("fetch")) && error.name !== "TimeoutError") console.warn(error);
    showContact(false);
  }
  state.running = false;
  const wait = state.again ? 0 : document.hidden ? HIDDEN_UPDATE_MS : UPDATE_MS;
  state.again = false;
  state.timer = setTimeout(update, wait);
}

async function updateHistory() {
  const known = state.history?.span === state.span;
  if (known && Date.now() - state.historyAt < HISTORY_MS) return;
  state.history = await fetchJson(`/api/history?span=${state.span}`);
  state.historyAt = Date.now();
  drawCharts();
}

function drawCharts() {
  const history = state.history;
  if (!history) return;
  const group = Math.max(1, Math.ceil((state.span === "1h" ? 3600 : 86400) / history.step_seconds / POINTS_MAX));
  const shown = (up, down) => {
    if (state.direction === "up") return up;
    if (state.direction === "down") return down;
    return up.map((n, i) => n + down[i]);
  };
  // Groups end at round times, so that a value once drawn keeps its height while the chart moves on.
  const open = Math.round(history.end / history.step_seconds) % group;
  const sum = (column) => grouped(column.slice(0, column.length - open), group);
  const seconds = group * history.step_seconds;
  const frame = { end: history.end - open * history.step_seconds, step: seconds, span: state.span === "1h" ? 3600 : 86400 };
  const all = { lan: sum(shownBoth(history.lan_up, history.lan_down)), wan: sum(shownBoth(history.wan_up, history.wan_down)) };
  reductionChart.update({
    ...frame,
    columns: { reduction: all.lan.map((lan, i) => (lan > 0 ? 1 - all.wan[i] / lan : null)) },
  });
  throughputChart.update({
    ...frame,
    columns: {
      lan: sum(shown(history.lan_up, history.lan_down)).map((n) => n / seconds),
      wan: sum(shown(history.wan_up, history.wan_down)).map((n) => n / seconds),
    },
  });
}

const shownBoth = (up, down) => up.map((n, i) => n + down[i]);

// Sums of `size` neighbours, counted from the end; an incomplete first group is left out.
function grouped(column, size) {
  const sums = [];
  for (let end = column.length; end >= size; end -= size) {
    let sum = 0;
    for (let i = end - size; i < end; i += 1) sum += column[i];
    sums.push(sum);
  }
  return sums.reverse();
}

function showContact(good) {
  document.body.classList.toggle("stale", !good);
  const lost = find("lost");
  if (good) {
    lost.hidden = true;
    setText(find("updated"), clock(state.lastContact / 1000));
    return;
  }
  const since = state.lastContact ? ` What is shown is ${duration((Date.now() - state.lastContact) / 1000)} old.` : "";
  // Read aloud once, when it happens, and not with every second that goes by.
  const text = "Lost contact with the proxy. It may have stopped, or the network between it and this browser is down. Trying again.";
  if (lost.hidden) {
    lost.replaceChildren(document.createElement("strong"), document.createElement("span"));
    lost.firstChild.textContent = text;
    lost.lastChild.setAttribute("aria-hidden", "true");
    lost.hidden = false;
  }
  setText(lost.lastChild, since);
}

function segments(attribute, apply) {
  const buttons = [...document.querySelectorAll(`button[data-${attribute}]`)];
  for (const button of buttons) {
    button.addEventListener("click", () => {
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
      apply(button.dataset[attribute]);
    });
  }
}

segments("span", (span) => {
  state.span = span;
  update();
});
segments("direction", (direction) => {
  state.direction = direction;
  drawCharts();
});
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) update();
});
update();
