// A small line chart in SVG: time across, one or more series up, axis labels, and values under the pointer or the
// arrow keys. The elements are made once and only their attributes change, so an update does not flicker.

import { clock } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
const HEIGHT_MIN = 220;
const PAD = { top: 10, right: 10, bottom: 26, left: 78 };
const X_TICKS = { 3600: 900, 86400: 14400 };

function make(name, attributes = {}, parent = null) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (parent) parent.append(element);
  return element;
}

/**
 * @param {HTMLElement} host where it goes
 * @param {{title: string, series: {key: string, name: string, area?: boolean}[], format: (v: number) => string,
 *   scale: (max: number) => number[], describe: (last: object) => string}} options
 *   `scale` gives the ticks of the value axis for a largest value; the first is its foot, the last its top.
 */
export function chart(host, options) {
  const legend = document.createElement("p");
  legend.className = "legend";
  for (const { key, name } of options.series) {
    const item = document.createElement("span");
    item.className = `key ${key}`;
    item.textContent = name;
    legend.append(item);
  }
  const frame = document.createElement("div");
  frame.className = "plot";
  frame.tabIndex = 0;
  frame.setAttribute("role", "img");
  const svg = make("svg", { "aria-hidden": "true", focusable: "false" });
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  const spoken = document.createElement("p");
  spoken.className = "visually-hidden";
  spoken.setAttribute("aria-live", "polite");
  const empty = document.createElement("p");
  empty.className = "empty over";
  empty.hidden = true;
  frame.append(svg, tip, empty);
  host.append(legend, frame, spoken);

  const grid = make("g", { class: "grid-lines" }, svg);
  const areas = make("g", {}, svg);
  const lines = make("g", {}, svg);
  const paths = options.series.map(({ key, area }) => ({
    area: area ? make("path", { class: `area ${key}` }, areas) : null,
    line: make("path", { class: `line ${key}` }, lines),
  }));
  const cursor = make("line", { class: "cursor", visibility: "hidden" }, svg);
  const dots = options.series.map(({ key }) => make("circle", { class: `dot ${key}`, r: 3.5, visibility: "hidden" }, svg));

  let data = { end: 0, span: 3600, step: 1, columns: {} };
  let shape = null;
  let chosen = null;

  function draw() {
    const width = Math.max(220, frame.clientWidth);
    const height = Math.max(HEIGHT_MIN, frame.clientHeight);
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const columns = options.series.map(({ key }) => data.columns[key] ?? []);
    const values = columns.flat().filter((v) => v != null);
    const ticks = options.scale(values.length ? Math.max(...values) : 0);
    const length = columns[0].length;
    const [foot, top] = [ticks[0], ticks[ticks.length - 1]];
    shape = {
      width,
      height,
      length,
      columns,
      x: (i) => width - PAD.right - ((length - 1 - i) * data.step * (width - PAD.left - PAD.right)) / data.span,
      y: (v) => height - PAD.bottom - ((Math.min(Math.max(v, foot), top) - foot) * (height - PAD.top - PAD.bottom)) / (top - foot),
    };
    drawGrid(width, ticks);
    columns.forEach((column, s) => {
      const runs = pieces(column);
      paths[s].line.setAttribute("d", runs.map((run) => line(run)).join(""));
      if (paths[s].area) paths[s].area.setAttribute("d", runs.map((run) => area(run, foot)).join(""));
    });
    empty.hidden = values.some((v) => v > 0);
    empty.textContent = options.empty;
    if (chosen != null) show(Math.min(chosen, length - 1), false);
    frame.setAttribute("aria-label", `${options.title}. ${options.describe(columns)} Arrow keys read single values.`);
  }

  // Runs of values between gaps.
  function pieces(column) {
    const runs = [];
    let run = [];
    column.forEach((v, i) => {
      if (v == null) {
        if (run.length) runs.push(run);
        run = [];
      } else run.push([i, v]);
    });
    if (run.length) runs.push(run);
    return runs;
  }

  function line(run) {
    const at = run.map(([i, v]) => `${shape.x(i).toFixed(1)} ${shape.y(v).toFixed(1)}`);
    // A single value still has to be seen.
    return run.length === 1 ? `M${at[0]}h0.1` : `M${at.join("L")}`;
  }

  function area(run, foot) {
    const base = shape.y(foot).toFixed(1);
    return `${line(run)}L${shape.x(run[run.length - 1][0]).toFixed(1)} ${base}L${shape.x(run[0][0]).toFixed(1)} ${base}Z`;
  }

  function drawGrid(width, ticks) {
    const parts = [];
    for (const tick of ticks) {
      const y = shape.y(tick);
      parts.push(make("line", { x1: PAD.left, x2: width - PAD.right, y1: y, y2: y }));
      parts.push(label(PAD.left - 8, y + 4, "end", options.format(tick)));
    }
    const every = X_TICKS[data.span] ?? data.span / 4;
    const narrow = width < 420;
    const inner = width - PAD.left - PAD.right;
    for (let ago = data.span; ago >= 0; ago -= narrow ? every * 2 : every) {
      const x = width - PAD.right - (ago * inner) / data.span;
      const anchor = ago === 0 ? "end" : "middle";
      parts.push(label(x, shape.height - 6, anchor, ago === 0 ? "now" : `−${ago < 7200 ? `${ago / 60} min` : `${ago / 3600} h`}`));
    }
    grid.replaceChildren(...parts);
  }

  function label(x, y, anchor, text) {
    const element = make("text", { x, y, "text-anchor": anchor });
    element.textContent = text;
    return element;
  }

  function show(i, speak) {
    if (!shape || shape.length === 0) return;
    chosen = i;
    const x = shape.x(i);
    for (const [key, value] of Object.entries({ x1: x, x2: x, y1: PAD.top, y2: shape.height - PAD.bottom, visibility: "visible" })) {
      cursor.setAttribute(key, value);
    }
    const rows = options.series.map(({ key, name }, s) => {
      const v = shape.columns[s][i];
      dots[s].setAttribute("visibility", v == null ? "hidden" : "visible");
      if (v != null) {
        dots[s].setAttribute("cx", x);
        dots[s].setAttribute("cy", shape.y(v));
      }
      return { key, name, text: v == null ? "no traffic" : (options.exact ?? options.format)(v) };
    });
    const when = clock(data.end - (shape.length - 1 - i) * data.step);
    const head = document.createElement("strong");
    head.textContent = when;
    tip.replaceChildren(head, ...rows.map(({ key, name, text }) => {
      const row = document.createElement("span");
      row.className = `key ${key}`;
      row.textContent = `${name} ${text}`;
      return row;
    }));
    tip.hidden = false;
    const left = x + 12 + tip.offsetWidth > shape.width ? x - 12 - tip.offsetWidth : x + 12;
    tip.style.left = `${Math.max(0, left)}px`;
    if (speak) spoken.textContent = `${when}: ${rows.map(({ name, text }) => `${name} ${text}`).join(", ")}`;
  }

  function hide() {
    chosen = null;
    tip.hidden = true;
    cursor.setAttribute("visibility", "hidden");
    for (const dot of dots) dot.setAttribute("visibility", "hidden");
  }

  frame.addEventListener("pointermove", (event) => {
    if (!shape || shape.length === 0) return;
    const x = event.clientX - frame.getBoundingClientRect().left;
    const inner = shape.width - PAD.left - PAD.right;
    const ago = ((shape.width - PAD.right - x) * data.span) / inner;
    show(Math.min(shape.length - 1, Math.max(0, Math.round(shape.length - 1 - ago / data.step))), false);
  });
  frame.addEventListener("pointerleave", hide);
  frame.addEventListener("blur", hide);
  frame.addEventListener("keydown", (event) => {
    if (!shape || shape.length === 0) return;
    const last = shape.length - 1;
    const from = chosen ?? last + 1;
    const to = { ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: last, PageUp: from - 10, PageDown: from + 10 }[event.key];
    if (event.key === "Escape") hide();
    if (to == null) return;
    event.preventDefault();
    show(Math.min(last, Math.max(0, to)), true);
  });
  new ResizeObserver(draw).observe(frame);

  return {
    /** `columns` by series key, all of one length, null where there is no value; the last one ended at `end`. */
    update(next) {
      data = next;
      draw();
    },
  };
}

/** Four or five round ticks from zero to just above `max`. */
export function roundTicks(max, least) {
  const top = Math.max(max, least);
  const raw = top / 4;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((n) => n * power).find((n) => n >= raw) ?? raw;
  const ticks = [];
  for (let i = 0; i * step < top + step * 0.999; i += 1) ticks.push(i * step);
  return ticks;
}
