/* Numbers, times and sizes as people read them. Pure: knows no element, no clock and no API. */

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/** Bytes with a binary unit. */
export function bytes(count) {
  if (count === null || count === undefined) return "–";
  let value = count;
  let unit = 0;
  const shown = () => (unit === 0 ? value : Number(value.toFixed(1)));
  while (shown() >= 1024 && unit < UNITS.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? value : value.toFixed(1)} ${UNITS[unit]}`;
}

/** Seconds as 12 ms, 3.4 s, 2 min 5 s, 3 h 4 min, 5 d 6 h. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || Number.isNaN(seconds)) return "–";
  if (seconds <= 0) return "0 s";
  // Each bound is where the next larger unit would be rounded to.
  if (seconds < 0.0009995) return `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 0.9995) return `${(seconds * 1000).toFixed(seconds < 0.00995 ? 1 : 0)} ms`;
  if (seconds < 59.5) return `${seconds.toFixed(seconds < 9.95 ? 1 : 0)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

/** A time in seconds since 1970 as date and time, as every command says it: people who read the same page are in several zones. */
export function moment(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const at = new Date(Number(seconds) * 1000); // CBOR's largest numbers come as BigInt
  return Number.isNaN(at.getTime()) ? String(seconds) : `${at.toISOString().slice(0, 19).replace("T", " ")} UTC`;
}

/** How long ago `seconds` (since 1970) is at `now`. */
export function age(seconds, now) {
  return seconds === null || seconds === undefined ? "never" : `${duration(now - seconds)} ago`;
}

/** A loss or another small number, with four decimals at most; what they would show as nothing, by its first two digits. */
export function number(value, decimals = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const rounded = Number(value.toFixed(decimals));
  return (rounded === 0 ? Number(value.toPrecision(2)) : rounded).toString();
}

/** A point of a time axis whose ticks are `step` seconds apart, so that no two read alike; 0: it is the only one. */
export function axisTime(seconds, step) {
  if (seconds >= 600) return duration(seconds);
  if (!(step > 0)) return `${Number(seconds.toPrecision(3))} s`;
  const decimals = Math.max(0, Math.ceil(-Math.log10(Math.max(step, 1e-6)) - 1e-9));
  return `${seconds.toFixed(decimals)} s`;
}

/** "1 visit", "2 visits". */
export function count(many, word) {
  return `${many} ${word}${many === 1 ? "" : "s"}`;
}

/** "1 leaf", "2 leaves": no other word here has such a plural. */
export function leaves(many) {
  return `${many} ${many === 1 ? "leaf" : "leaves"}`;
}

/** Round values between `low` and `high`, about `wanted` of them, for an axis. */
export function ticks(low, high, wanted = 5) {
  const span = high - low;
  if (!(span > 0)) return [low];
  const raw = span / wanted;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((candidate) => candidate >= raw);
  const found = [];
  for (let at = Math.ceil(low / step); at * step <= high + step * 1e-9; at += 1) found.push(at * step);
  return found;
}
