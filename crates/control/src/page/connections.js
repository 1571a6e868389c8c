// The table of connections. Rows are kept by connection and only cells that changed are written, so that a selection,
// the focus and the scroll position stay where they are.

import { bytes, clock, count, duration, reduction, word } from "./format.js";

const COLUMNS = [
  { key: "state", head: "State", sort: "state" },
  { key: "client", head: "Client", sort: "client" },
  { key: "target", head: "Server", sort: "target" },
  { key: "protocol", head: "Protocol", sort: "protocol" },
  { key: "lan", head: "LAN", sort: "lan_bytes", number: true },
  { key: "wan", head: "WAN", sort: "wan_bytes", number: true },
  { key: "reduction", head: "Reduction", sort: "data_reduction", number: true },
  { key: "age", head: "Age", sort: "age", number: true },
  { key: "smb", head: "SMB", sort: "smb" },
  { key: "why", head: "Why, if not optimised" },
];
const DESCENDING_FIRST = new Set(["lan_bytes", "wan_bytes", "data_reduction"]);

const find = (id) => document.getElementById(id);

/** @param {() => void} changed called when the person asks for other rows */
export function connectionTable(changed) {
  const table = find("connections");
  const body = table.tBodies[0];
  const rows = new Map();
  let sort = "age";
  let order = "ascending";

  const heads = COLUMNS.map((column) => head(column));
  table.tHead.rows[0].append(...heads);
  const sortField = find("connections-sort");
  for (const { head: text, sort: key } of COLUMNS.filter((column) => column.sort)) {
    for (const direction of ["ascending", "descending"]) {
      const option = new Option(`Sort: ${text} ${direction === "ascending" ? "↑" : "↓"}`, `${key} ${direction}`);
      sortField.append(option);
    }
  }
  sortField.addEventListener("change", () => {
    [sort, order] = sortField.value.split(" ");
    sorted();
  });
  find("connections-state").addEventListener("change", changed);
  let typing = 0;
  find("connections-q").addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(changed, 200);
  });
  sorted(false);

  function head(column) {
    const th = document.createElement("th");
    th.scope = "col";
    th.className = `c-${column.key}${column.number ? " num" : ""}`;
    if (!column.sort) {
      th.textContent = column.head;
      return th;
    }
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = column.head;
    button.addEventListener("click", () => {
      const first = DESCENDING_FIRST.has(column.sort) ? "descending" : "ascending";
      const other = first === "ascending" ? "descending" : "ascending";
      order = sort === column.sort && order === first ? other : first;
      sort = column.sort;
      sorted();
    });
    th.append(button);
    return th;
  }

  function sorted(ask = true) {
    COLUMNS.forEach((column, i) => {
      if (column.sort === sort) heads[i].setAttribute("aria-sort", order);
      else heads[i].removeAttribute("aria-sort");
    });
    sortField.value = `${sort} ${order}`;
    if (ask) changed();
  }

  function row(id) {
    const tr = document.createElement("tr");
    for (const column of COLUMNS) {
      const td = document.createElement("td");
      td.className = `c-${column.key}${column.number ? " num" : ""}`;
      td.dataset.label = column.head;
      tr.append(td);
    }
    const pill = document.createElement("span");
    tr.cells[0].append(pill);
    rows.set(id, tr);
    return tr;
  }

  function fill(tr, c) {
    const shown = c.outcome ?? c.state;
    const pill = tr.cells[0].firstChild;
    setText(pill, c.outcome ? `Ended: ${word(shown).toLowerCase()}` : word(shown));
    setClass(pill, `pill ${shown}`);
    const carried = c.lan_bytes > 0 || c.passed_bytes === 0;
    const texts = [
      null,
      c.client,
      c.target,
      c.protocol.toUpperCase(),
      bytes(carried ? c.lan_bytes : c.passed_bytes),
      bytes(carried ? c.wan_bytes : c.passed_bytes),
      carried ? reduction(c.data_reduction) : "–",
      duration(c.age_seconds),
      null,
      [c.reason_text, c.detail, c.smb?.reason].filter(Boolean).join(": "),
    ];
    texts.forEach((text, i) => {
      if (text != null) setText(tr.cells[i], text);
    });
    fillSmb(tr.cells[8], c.smb, c.target);
    const by = Object.entries(c.saved_bytes).filter(([, n]) => n > 0).map(([name, n]) => `${name.replace("_", " ")} ${bytes(n)}`);
    setTitle(tr.cells[6], by.length ? `Saved by ${by.join(", ")}` : "");
    setTitle(tr.cells[8], [tr.cells[8].title, accelerated(c.acceleration)].filter(Boolean).join("\n"));
    setTitle(tr.cells[7], `Since ${clock(c.opened_at)}`);
    setTitle(tr.cells[2], [c.rule && `Rule: ${c.rule}`, c.peer && `Peer: ${c.peer}`].filter(Boolean).join("\n"));
  }

  // Whether round trips are removed, and what came of it; in the tooltip of the session.
  function accelerated(a) {
    if (!a) return "";
    const kinds = Object.entries(a.saved).filter(([, n]) => n > 0).map(([name, n]) => `${name} ${count(n)}`);
    return [
      a.on ? `Acceleration: ${a.mode}` : `No acceleration: ${a.reason}`,
      a.round_trips_saved > 0 && `Round trips saved: ${count(a.round_trips_saved)} (${kinds.join(", ")})`,
      `Permits held: ${count(a.permits)}, broken: ${count(a.permits_broken)}`,
    ].filter(Boolean).join("\n");
  }

  // What is done with the session, and below it what is known of it.
  function fillSmb(td, smb, target) {
    if (!smb) {
      td.replaceChildren();
      return;
    }
    if (td.children.length === 0) td.append(document.createElement("strong"), document.createElement("span"));
    setText(td.firstChild, word(smb.state_text));
    // The name by which the client calls the server says something only if it is another than the target's.
    const server = target.startsWith(`${smb.server}:`) ? null : smb.server;
    setText(td.lastChild, [smb.dialect, smb.cipher, smb.user, server, smb.shares.join(", ")].filter(Boolean).join(" · "));
    setTitle(td, [smb.signing && `Signed with ${smb.signing}`, smb.cipher && `Encrypted with ${smb.cipher}`].filter(Boolean).join("\n"));
  }

  return {
    /** The query string that fetches what is wanted. */
    query() {
      const query = new URLSearchParams({ state: find("connections-state").value, sort, order });
      const q = find("connections-q").value.trim();
      if (q) query.set("q", q);
      return query.toString();
    },
    update(view) {
      const seen = new Set();
      view.connections.forEach((connection, i) => {
        seen.add(connection.id);
        const tr = rows.get(connection.id) ?? row(connection.id);
        fill(tr, connection);
        if (body.rows[i] !== tr) body.insertBefore(tr, body.rows[i] ?? null);
      });
      for (const [id, tr] of rows) {
        if (!seen.has(id)) {
          tr.remove();
          rows.delete(id);
        }
      }
      const shown = view.connections.length;
      const text = shown < view.matched ? `${count(shown)} of ${count(view.matched)} shown; search to narrow them down` : count(view.matched);
      setText(find("connections-count"), shown ? text : "");
      table.parentElement.hidden = shown === 0;
      const empty = find("connections-empty");
      empty.hidden = shown > 0;
      if (shown === 0) setText(empty, emptyText());
    },
  };

  function emptyText() {
    if (find("connections-q").value.trim()) return "No connection matches the search.";
    return {
      open: "No connections yet. Point a client at one of the listeners, or route its traffic through this proxy; what it opens appears here within two seconds.",
      not_optimised: "Every connection is optimised.",
      closed: "No connection has ended yet.",
      all: "No connections yet. Point a client at one of the listeners, or route its traffic through this proxy.",
    }[find("connections-state").value];
  }
}

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function setClass(element, name) {
  if (element.className !== name) element.className = name;
}

function setTitle(element, text) {
  if (element.title !== text) element.title = text;
}
