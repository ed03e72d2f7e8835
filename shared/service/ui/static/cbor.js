/* Deterministic CBOR (RFC 8949 section 4.2): decodes only the one encoding of a value. Pure: knows no message. */

import { CheckFailed, fromText, join, toHex, toText } from "./bytes.js";

const MAX_DEPTH = 64;
const MAX_ITEMS = 1 << 18;
const COSE_SIGN1 = 18; // RFC 9052 section 2

function refuse(why) {
  throw new CheckFailed("canonical CBOR", why);
}

/** A tagged value. */
export class Tagged {
  constructor(tag, value) {
    this.tag = tag;
    this.value = value;
  }
}

/** A float, of any value: it is no whole number, though it be as large. It is reckoned with, and shown, as its value. */
export class Float {
  constructor(value) {
    this.value = value;
  }

  valueOf() {
    return this.value;
  }

  toString() {
    return String(this.value);
  }
}

class Reader {
  #data;
  #view;
  at = 0;
  items = 0;
  numbered;

  constructor(data, numbered) {
    this.#data = data;
    this.numbered = numbered;
    this.#view = new DataView(data.buffer, data.byteOffset, data.length);
  }

  take(count) {
    if (count > this.#data.length - this.at) refuse("ends in the middle of a value");
    this.at += count;
    return this.#data.subarray(this.at - count, this.at);
  }

  /** A head's argument, in its shortest form. */
  argument(info) {
    if (info < 24) return info;
    const at = this.at;
    const size = { 24: 1, 25: 2, 26: 4, 27: 8 }[info] ?? refuse("a length that no value has");
    this.take(size);
    const value = size === 1 ? this.#view.getUint8(at) : size === 2 ? this.#view.getUint16(at) : size === 4 ? this.#view.getUint32(at) : this.#view.getBigUint64(at);
    const least = { 1: 24, 2: 1 << 8, 4: 1 << 16, 8: 2n ** 32n }[size];
    if (value < least) refuse("a number longer than it must be");
    return value > Number.MAX_SAFE_INTEGER ? value : Number(value);
  }

  float(info) {
    const at = this.at;
    if (info === 25) return half(new DataView(this.take(2).slice().buffer).getUint16(0));
    if (info === 26) {
      this.take(4);
      const value = this.#view.getFloat32(at);
      if (isHalf(value)) refuse("a fraction longer than it must be");
      return value;
    }
    this.take(8);
    const value = this.#view.getFloat64(at);
    if (Number.isNaN(value) || Math.fround(value) === value) refuse("a fraction longer than it must be");
    return value;
  }
}

function half(bits) {
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  const sign = bits >> 15 ? -1 : 1;
  if (exponent === 31) {
    if (fraction !== 0 && bits !== 0x7e00) refuse("not the one not-a-number");
    return fraction ? NaN : sign * Infinity;
  }
  return sign * (exponent === 0 ? fraction * 2 ** -24 : (1 + fraction / 1024) * 2 ** (exponent - 15));
}

function isHalf(value) {
  const size = Math.abs(value);
  if (size === 0 || !Number.isFinite(size)) return true;
  if (size > 65504) return false;
  const unit = size < 2 ** -14 ? 2 ** -24 : 2 ** (Math.floor(Math.log2(size)) - 10);
  return Number.isInteger(size / unit);
}

function item(reader, depth) {
  if (depth > MAX_DEPTH) refuse("nested too deep");
  reader.items = bounded(reader.items + 1);
  const [head] = reader.take(1);
  const kind = head >> 5;
  const info = head & 31;
  if (kind === 7) return simple(reader, info);
  const count = reader.argument(info);
  switch (kind) {
    case 0: return count;
    case 1: return typeof count === "bigint" ? -1n - count : -1 - count;
    case 2: return reader.take(count).slice();
    case 3: return toText(reader.take(count));
    case 4: return Array.from({ length: bounded(count) }, () => item(reader, depth + 1));
    case 5: return map(reader, bounded(count), depth);
    default: return count === COSE_SIGN1 ? new Tagged(count, item(reader, depth + 1)) : refuse("a tag that means nothing here");
  }
}

function bounded(count) {
  return count <= MAX_ITEMS ? count : refuse("too many items");
}

function simple(reader, info) {
  if (info === 20 || info === 21) return info === 21;
  if (info === 22) return null;
  return info >= 25 && info <= 27 ? new Float(reader.float(info)) : refuse("a simple value that nothing here has");
}

/** Keys in order: the shorter first, then by bytes (RFC 7049 section 3.9, as the services write them). */
function map(reader, count, depth) {
  const found = new Map();
  let before = "";
  for (let each = 0; each < count; each += 1) {
    const key = item(reader, depth + 1);
    if (typeof key !== "string" && !(reader.numbered && typeof key === "number")) refuse("a key that is no text");
    const order = toHex(encode(key));
    if (order.length < before.length || (order.length === before.length && order <= before)) refuse("keys out of order");
    before = order;
    found.set(key, item(reader, depth + 1));
  }
  return found;
}

/** The value. Throws CheckFailed unless `data` is its one encoding. `numbered`: keys may be numbers, as in COSE's headers. */
export function decode(data, { numbered = false } = {}) {
  const reader = new Reader(data, numbered);
  const value = item(reader, 0);
  if (reader.at !== data.length) refuse("bytes behind the value");
  return value;
}

function head(kind, count) {
  if (count < 24) return Uint8Array.of((kind << 5) | count);
  const [info, size] = count < 1 << 8 ? [24, 1] : count < 1 << 16 ? [25, 2] : count < 2 ** 32 ? [26, 4] : [27, 8];
  const bytes = [];
  for (let rest = BigInt(count), each = 0; each < size; each += 1, rest >>= 8n) bytes.unshift(Number(rest & 255n));
  return Uint8Array.of((kind << 5) | info, ...bytes);
}

/** The one encoding of whole numbers, texts, byte strings and arrays of them. */
export function encode(value) {
  if (typeof value === "number") return value < 0 ? head(1, -1 - value) : head(0, value);
  if (typeof value === "string") return join(head(3, fromText(value).length), fromText(value));
  if (value instanceof Uint8Array) return join(head(2, value.length), value);
  return join(head(4, value.length), ...value.map(encode));
}
