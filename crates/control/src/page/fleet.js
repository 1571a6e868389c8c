// The agents and gateways of a server side.

import { bytes, clock, date, duration, reduction, word } from "./format.js";
import { setText } from "./connections.js";

const find = (id) => document.getElementById(id);

function cells(member, now) {
  const policy = member.policy === null ? "–"
    : member.policy_version === member.policy_current ? `${member.policy}, version ${member.policy_current}`
    : `${member.policy}, version ${member.policy_current}; it has ${member.policy_version || "none"}`;
  const certificate = member.revoked !== null ? `revoked ${date(member.revoked)}`
    : member.certificate_until === null ? "–"
    : member.certificate_until <= now ? "expired"
    : `${duration(member.certificate_until - now)} left`;
  const saved = member.lan_bytes > 0 ? reduction(1 - member.wan_bytes / member.lan_bytes) : "–";
  return [
    word(member.kind),
    word(member.state),
    member.connected ? "now" : member.seen === null ? "never" : clock(member.seen),
    member.version ?? "–",
    policy,
    member.location ? `${word(member.location)}: ${member.location_why ?? ""}` : "–",
    saved,
    member.store_bytes > 0 ? bytes(member.store_bytes) : "–",
    certificate,
    member.problem ?? "",
  ];
}

export function showFleet({ members, total }, summary) {
  const card = find("fleet-card");
  card.hidden = summary.side !== "server-side" || members.length === 0;
  if (card.hidden) return;
  setText(find("fleet-count"), total > members.length ? `${members.length} of ${total}` : `${total}`);
  const body = find("fleet");
  while (body.rows.length > members.length) body.deleteRow(-1);
  members.forEach((member, i) => {
    const texts = cells(member, summary.now);
    let row = body.rows[i];
    if (!row) {
      row = body.insertRow();
      const head = document.createElement("th");
      head.scope = "row";
      row.append(head, ...texts.map(() => document.createElement("td")));
    }
    setText(row.cells[0], member.name);
    texts.forEach((text, j) => setText(row.cells[j + 1], text));
  });
}
