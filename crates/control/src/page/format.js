// Numbers, sizes, times, in words people use. Decimal units throughout, as network people count.

const NONE = "–";

/** `1234567` → `1.23 MB`. */
export function bytes(n) {
  return scaled(n, ["B", "kB", "MB", "GB", "TB", "PB"]);
}

/** Bytes a second → `12.3 Mbit/s`. */
export function rate(bytesPerSecond) {
  if (bytesPerSecond == null) return NONE;
  return scaled(bytesPerSecond * 8, ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"]);
}

/** A rate as an axis label: no digits that say nothing. */
export function axisRate(bytesPerSecond) {
  return rate(bytesPerSecond).replace(/\.(\d*?)0+(?=\u00a0)/, (_, digits) => (digits ? `.${digits}` : ""));
}

function scaled(n, units) {
  if (n == null || !Number.isFinite(n)) return NONE;
  let unit = 0;
  let value = n;
  while (Math.abs(value) >= 999.5 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  const digits = unit === 0 || Math.abs(value) >= 99.95 ? 0 : Math.abs(value) >= 9.995 ? 1 : 2;
  return `${value.toFixed(digits)}\u00a0${units[unit]}`;
}

/** A whole number with thin spaces between groups of three digits. */
export function count(n) {
  if (n == null) return NONE;
  return String(Math.round(n)).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

/**
 * A data reduction as a percentage. More digits the nearer it is to 100 %, since 99.9 and 99.99 differ tenfold on the
 * wire; a WAN that carried more than the LAN is said as such and not as a large negative number.
 */
export function reduction(fraction) {
  if (fraction == null) return NONE;
  if (fraction < -0.995) return "none";
  const percent = fraction * 100;
  if (percent >= 100) return "100\u00a0%";
  const digits = percent > 99.9 ? 3 : percent > 99 ? 2 : percent >= 10 || percent <= 0 ? 1 : 2;
  // Never rounded up to the 100 % that it is not.
  const floor = Math.floor(percent * 10 ** digits) / 10 ** digits;
  return `${floor.toFixed(digits).replace("-", "\u2212")}\u00a0%`;
}

/** `×` factor. */
export function factor(n) {
  if (n == null) return NONE;
  const digits = n >= 100 ? 0 : n >= 10 ? 1 : 2;
  return `${digits === 0 ? count(n) : n.toFixed(digits)}\u00a0×`;
}

/** A share of a whole. */
export function share(part, whole) {
  if (!(whole > 0)) return NONE;
  const percent = (100 * part) / whole;
  if (percent > 0 && percent < 0.1) return "<\u202f0.1\u00a0%";
  return `${percent.toFixed(percent >= 99.95 || percent === 0 ? 0 : 1)}\u00a0%`;
}

/** `93784` s → `1 d 2 h`. Two units at most. */
export function duration(seconds) {
  if (seconds == null || !Number.isFinite(seconds)) return NONE;
  const s = Math.max(0, Math.floor(seconds));
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const first = units.findIndex(([, size]) => s >= size);
  if (first < 0) return "0\u00a0s";
  const [name, size] = units[first];
  const parts = [`${Math.floor(s / size)}\u00a0${name}`];
  const next = units[first + 1];
  const rest = next ? Math.floor((s % size) / next[1]) : 0;
  if (rest > 0) parts.push(`${rest}\u00a0${next[0]}`);
  return parts.join(" ");
}

/** A round-trip time. */
export function milliseconds(seconds) {
  if (seconds == null) return NONE;
  const ms = seconds * 1000;
  return `${ms.toFixed(ms >= 100 ? 0 : ms >= 10 ? 1 : 2)}\u00a0ms`;
}

/** Unix seconds → the local time of day, with the date when it is not today. */
export function clock(unix, seconds = true) {
  const at = new Date(unix * 1000);
  const two = (n) => String(n).padStart(2, "0");
  const time = `${two(at.getHours())}:${two(at.getMinutes())}${seconds ? `:${two(at.getSeconds())}` : ""}`;
  return at.toDateString() === new Date().toDateString() ? time : `${date(unix)} ${time}`;
}

/** Unix seconds → `2026-01-31`. */
export function date(unix) {
  const at = new Date(unix * 1000);
  const two = (n) => String(n).padStart(2, "0");
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
}

/** `pass_through` → `Pass-through`. */
export function word(label) {
  const known = {
    pass_through: "Pass-through",
    reduce_only: "Reduce only",
    not_learning: "Not learning",
    local_answer: "local answer",
  };
  if (known[label]) return known[label];
  const text = String(label).replaceAll("_", " ");
  return text.charAt(0).toUpperCase() + text.slice(1);
}
