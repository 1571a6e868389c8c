// Everything but the charts and the table of connections.

import { bytes, clock, count, date, duration, factor, milliseconds, rate, reduction, share, word } from "./format.js";
import { setClass, setText } from "./connections.js";

const find = (id) => document.getElementById(id);

const LEDGER = [
  { key: "run", name: "Position runs", help: "content that was seen before, in the same order" },
  { key: "chunk", name: "Known chunks", help: "pieces that were seen before" },
  { key: "delta", name: "Deltas", help: "changes against similar old content" },
  { key: "compression", name: "Compression", help: "new content, made smaller" },
  { key: "local_answer", name: "Local answers", help: "not asked of the far side at all" },
];

function element(name, className, text) {
  const made = document.createElement(name);
  if (className) made.className = className;
  if (text != null) made.textContent = text;
  return made;
}

// Rebuilt only when its structure has changed; texts are then written in place. So a text selection and the focus
// survive an update.
function rebuild(host, value, build) {
  const shown = JSON.stringify(value);
  if (host.dataset.shown === shown) return;
  host.dataset.shown = shown;
  host.replaceChildren(...build());
}

function list(host, pairs) {
  rebuild(host, pairs.map(([term]) => term), () => pairs.map(([term]) => {
    const row = element("div");
    row.append(element("dt", "", term), element("dd"));
    return row;
  }));
  pairs.forEach(([, text, note], i) => {
    setText(host.children[i].lastChild, text);
    setClass(host.children[i].lastChild, note ?? "");
  });
}

function tableRows(host, rows) {
  rebuild(host, rows.map(({ head }) => head), () => rows.map(({ head, className, title, cells }) => {
    const tr = element("tr");
    const th = element("th", className, head);
    th.scope = "row";
    if (title) th.title = title;
    tr.append(th, ...cells.map(() => element("td", "num")));
    return tr;
  }));
  rows.forEach(({ cells }, i) => cells.forEach((text, j) => setText(host.children[i].children[j + 1], text)));
}

export function showHead(summary) {
  document.title = `${summary.name} – Isthmus`;
  setText(find("side"), `${summary.side} proxy`);
  setText(find("name"), summary.name);
  setText(find("uptime"), duration(summary.uptime_seconds));
  setText(find("version"), summary.version);
  const state = summary.draining ? "draining" : summary.ready ? "ready" : "not ready";
  setText(find("state"), word(state));
  setClass(find("state"), `pill ${summary.ready ? "good" : summary.draining ? "warning" : "bad"}`);
}

export function showAlarms(alarms) {
  const host = find("alarms");
  host.hidden = alarms.length === 0;
  rebuild(host, alarms, () => alarms.map(({ severity, title, text }) => {
    const notice = element("div", `notice ${severity}`);
    const head = element("strong", "", title);
    head.prepend(element("span", "visually-hidden", severity === "error" ? "Error: " : "Warning: "));
    const body = element("p");
    // What stands between backticks is a command.
    text.split("`").forEach((part, i) => body.append(i % 2 ? element("code", "", part) : part));
    notice.append(head, body);
    return notice;
  }));
}

export function showReduction({ reduction: windows, rates }) {
  const idle = windows.now.lan_bytes === 0;
  const shown = idle ? windows.hour : windows.now;
  const nothing = shown.lan_bytes === 0;
  setText(find("reduction-now"), nothing ? "No traffic yet" : reduction(shown.data_reduction));
  setClass(find("reduction-now"), nothing ? "big none" : "big");
  const caption = !idle ? "Last minute" : nothing ? "Nothing has been carried over the peer in the last hour" : "Last hour; the last minute was quiet";
  setText(find("reduction-caption"), caption);
  setText(find("now-lan"), idle ? bytes(shown.lan_bytes) : rate(rates.lan_up + rates.lan_down));
  setText(find("now-wan"), idle ? bytes(shown.wan_bytes) : rate(rates.wan_up + rates.wan_down));
  setText(find("now-capacity"), factor(shown.capacity_increase));
  const rows = [["Last minute", windows.now], ["Last hour", windows.hour], ["24 hours", windows.day], ["Since start", windows.total]];
  tableRows(find("windows"), rows.map(([head, w]) => ({
    head,
    cells: [bytes(w.lan_bytes), bytes(w.wan_bytes), reduction(w.data_reduction)],
  })));
}

export function showLedger({ reduction: { hour } }) {
  const lan = hour.lan_bytes;
  const saved = LEDGER.map((entry) => ({ ...entry, bytes: hour.saved_bytes[entry.key] ?? 0 }));
  const total = saved.reduce((sum, entry) => sum + entry.bytes, 0);
  const crossed = { key: "crossed", name: "Crossed the WAN", help: "all bytes on the inner channels, TLS and acknowledgements included", bytes: hour.wan_bytes };
  const entries = [...saved.filter((entry) => entry.bytes > 0 || entry.key !== "local_answer"), crossed];
  const whole = Math.max(lan, total + hour.wan_bytes, 1);
  tableRows(find("ledger"), entries.map((entry) => ({
    head: entry.name,
    className: `key ${entry.key}`,
    title: entry.help,
    cells: [bytes(entry.bytes), share(entry.bytes, lan)],
  })));
  const stack = find("ledger-stack");
  if (stack.children.length !== entries.length) stack.replaceChildren(...entries.map(({ key }) => element("span", key)));
  entries.forEach((entry, i) => {
    stack.children[i].style.width = `${(100 * entry.bytes) / whole}%`;
  });
  stack.hidden = lan === 0;
  find("ledger-table").hidden = lan === 0;
  setText(find("ledger-caption"), lan > 0 ? `${bytes(lan)} on the LAN in the last hour` : "Nothing has been carried in the last hour. Once it has, this shows what kept it off the WAN.");
  const passed = hour.passed_bytes;
  setText(find("ledger-note"), passed > 0 ? `Beside this, ${bytes(passed)} were passed through untouched; they are no part of the reduction.` : "");
}

export function showPeers({ peers, total }, summary) {
  const empty = find("peers-empty");
  empty.hidden = peers.length > 0;
  if (peers.length === 0) {
    setText(empty, summary.side === "server-side"
      ? "No peer has connected yet. A client-side proxy appears here once it has dialled this one with a certificate of the same authority."
      : "No peer is configured. Name the server-side proxy under [peer] in the configuration.");
  }
  const now = summary.now;
  const more = total > peers.length ? total - peers.length : 0;
  const texts = peers.map((p) => ({
    shape: [p.name, p.address, p.state, p.detail || p.reason_text],
    facts: [
      ["Since", `${clock(p.since, false)} (${duration(now - p.since)})`],
      ["Round trip", milliseconds(p.rtt_seconds)],
      ["Version", p.version || "–"],
      ["Channels", `${count(p.channels_busy)} busy, ${count(p.channels_pooled)} waiting`],
      ["Sent / received", `${bytes(p.wan_sent)} / ${bytes(p.wan_received)}`],
      ["Links lost / resumed", `${count(p.link_failures)} / ${count(p.resumes)}`],
    ],
  }));
  const host = find("peers");
  rebuild(host, [texts.map(({ shape }) => shape), more], () => [
    ...texts.map(({ shape }) => peer(...shape)),
    ...(more ? [element("li", "caption", `and ${count(more)} more`)] : []),
  ]);
  texts.forEach(({ facts }, i) => list(host.children[i].lastChild, facts));
}

function peer(name, address, state, reason) {
  const li = element("li");
  const head = element("p", "peer-head");
  const pill = element("span", `pill ${{ up: "good", connecting: "warning", down: "bad" }[state]}`, word(state));
  head.append(pill, element("strong", "", name), element("span", "caption", address));
  li.append(head);
  if (reason) li.append(element("p", "why", reason));
  li.append(element("dl", "facts-grid"));
  return li;
}

export function showStore(store) {
  const state = { learning: ["Learning", "good"], not_learning: ["Not learning", "warning"], unusable: ["Unusable", "bad"] }[store.state];
  setText(find("store-state"), state[0]);
  setClass(find("store-state"), `pill ${state[1]}`);
  setText(find("store-why"), store.why ?? "");
  const percent = 100 * (store.fill ?? 0);
  const meter = find("store-meter");
  meter.setAttribute("aria-valuenow", percent.toFixed(0));
  meter.setAttribute("aria-valuetext", `${bytes(store.bytes)} of ${bytes(store.cap_bytes)}`);
  meter.firstElementChild.style.width = `${Math.min(100, percent)}%`;
  const reads = store.cache_hits + store.cache_misses;
  list(find("store"), [
    ["Size", `${bytes(store.bytes)} of ${bytes(store.cap_bytes)} (${share(store.bytes, store.cap_bytes)})`],
    ["Chunks", count(store.chunks)],
    ["Segments", count(store.segments)],
    ["Evicted since start", bytes(store.evicted_bytes)],
    ["Set aside as damaged", count(store.quarantined), store.quarantined > 0 ? "bad-text" : ""],
    ["Reads from memory", reads ? share(store.cache_hits, reads) : "–"],
    ["Encrypted at rest", store.encrypted ? "Yes" : "No"],
    ["Identity", store.identity ? `${store.identity.slice(0, 8)}…, opening ${count(store.generation)}` : "–"],
  ]);
}

export function showEvents({ events }) {
  find("events-empty").hidden = events.length > 0;
  find("events").hidden = events.length === 0;
  const texts = events.map((e) => [e.id, e.at, e.level, e.count > 1 ? `${e.text} (${count(e.count)} times)` : e.text]);
  rebuild(find("events"), texts, () => texts.map(([, at, level, text]) => {
    const li = element("li", level);
    const time = element("time", "", clock(at));
    time.dateTime = new Date(at * 1000).toISOString();
    const mark = element("span", "mark", { info: "", warning: "Warning", error: "Error" }[level]);
    li.append(time, ...(level === "info" ? [] : [mark]), element("span", "text", text));
    return li;
  }));
}

export function showProxy(summary) {
  const { connections, admission, reduction_work: work, keys } = summary;
  const held = (field) => count(keys.sources.reduce((sum, source) => sum + source[field], 0));
  const kinds = { own: "Certificate", authority: "Authority", revocation_list: "Revocation list" };
  const { agent, location } = summary;
  list(find("proxy"), [
    ...(agent ? [
      ["Agent", agent.name],
      ["Policy", agent.policy ? `${agent.policy}, version ${agent.policy_version}` : "none", agent.problem ? "bad-text" : ""],
      ["Server side answered", agent.synced ? clock(agent.synced) : "not yet"],
    ] : []),
    ...(location ? [["Location", `${word(location.location)}: ${location.why}`]] : []),
    ["Open connections", `${count(connections.open)}, up to ${count(admission.stop_at)} optimised`],
    ["Ended since start", count(connections.ended)],
    ["Not optimised since start", count(Object.values(connections.not_optimised).reduce((a, b) => a + b, 0))],
    ["Frames sent / restored", `${count(work.frames_encoded)} / ${count(work.frames_decoded)}`],
    ["References missed / repaired", `${count(work.misses)} / ${count(work.repairs)}`],
    ["Round trips saved", count(work.round_trips_saved)],
    ["Made ahead / wasted", `${count(work.made_ahead)} / ${count(work.ahead_wasted)}`],
    ["Proofs failed", count(work.proof_failures), work.proof_failures > 0 ? "bad-text" : ""],
    ...(keys.sources.length ? [
      ["Key sources", count(keys.sources.length), keys.sources.some((source) => source.error) ? "bad-text" : ""],
      ["Service keys / NT hashes held", `${held("service_keys")} / ${held("nt_hashes")}`],
      ["Session keys given / refused", `${count(keys.released)} / ${count(keys.refused)}`],
    ] : []),
    ...summary.certificates.map((c) => [`${kinds[c.kind]} ends`, `${date(c.expires_at)}, in ${duration(c.expires_at - summary.now).split(" ")[0]}`]),
  ]);
  list(find("configuration"), summary.configuration.map(({ key, value }) => [key, value]));
}
