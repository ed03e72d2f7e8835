/* Byte strings: hex, base64, joining, digests. Strict both ways: one text per value. Knows no format. */

/** A check that does not hold. `check` names it. */
export class CheckFailed extends Error {
  constructor(check, detail) {
    super(detail);
    this.check = check;
  }
}

const utf8 = new TextEncoder();

export const fromText = (text) => utf8.encode(text);

/** Text of UTF-8 bytes. Throws CheckFailed. */
export function toText(data) {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data);
  } catch {
    throw new CheckFailed("encoding", "not UTF-8");
  }
}

export const toHex = (data) => Array.from(data, (byte) => byte.toString(16).padStart(2, "0")).join("");

/** Bytes of lower-case hex. Throws CheckFailed. */
export function fromHex(text) {
  if (typeof text !== "string" || !/^(?:[0-9a-f]{2})*$/.test(text)) throw new CheckFailed("encoding", "not lower-case hex");
  return Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
}

export function toBase64(data) {
  let text = "";
  for (const byte of data) text += String.fromCharCode(byte);
  return btoa(text);
}

/** Bytes of standard base64 with padding; the unused bits of the last character must be zero. Throws CheckFailed. */
export function fromBase64(text) {
  let raw;
  try {
    raw = atob(text);
  } catch {
    throw new CheckFailed("encoding", "not base64");
  }
  const data = Uint8Array.from(raw, (one) => one.charCodeAt(0));
  if (toBase64(data) !== text) throw new CheckFailed("encoding", "base64 in another than its one form");
  return data;
}

export function join(...parts) {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

export const equal = (a, b) => a.length === b.length && a.every((byte, at) => byte === b[at]);

/** Whether `part` stands anywhere in `whole`. */
export function contains(whole, part) {
  for (let at = 0; at + part.length <= whole.length; at += 1) {
    if (part.every((byte, offset) => whole[at + offset] === byte)) return true;
  }
  return false;
}

/** A digest; `name` as WebCrypto calls it, for instance SHA-256. */
export async function hashed(name, data) {
  return new Uint8Array(await crypto.subtle.digest(name, data));
}

/** Canonical JSON (RFC 8785) of plain values without fractions. */
export function canonicalJson(value) {
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(",")}]`;
  if (value === null || typeof value !== "object") return JSON.stringify(value);
  return `{${Object.keys(value).sort().map((name) => `${JSON.stringify(name)}:${canonicalJson(value[name])}`).join(",")}}`;
}
