/* The public API as this page uses it: bearer token, problems, pages, resumed streams. Knows no element. */

import { EventParser } from "./sse.js";

const KEY = "gput-token";
const PLACEHOLDER = "$GPUT_TOKEN";
const RETRY_MS = 1000;
const ANSWER_MS = 30000;
const SILENT_MS = 15000; // a service says something on every stream each 4 s

/** The code of a service that did not answer, or not with a problem. */
export const NO_ANSWER = "no-answer";

/** What the service said went wrong (RFC 9457), or that it did not answer (`status` 0). */
export class Problem extends Error {
  constructor(status, document) {
    super(document.detail ?? `The service answered ${status}.`);
    this.status = status;
    this.code = document.code ?? NO_ANSWER;
    this.type = document.type ?? "";
    this.remedy = document.remedy ?? "";
    this.requestId = document.request_id ?? "";
    this.expected = document.expected ?? "";
    this.got = document.got ?? "";
  }
}

/** Whether the same may be answered later: the service is away, or has too much to do. */
export function passing(problem) {
  return problem instanceof Problem && (problem.status === 0 || problem.status >= 500 || problem.status === 429);
}

/** The token, in this tab's session storage only: it is gone with the tab, and never in an address. */
export const token = {
  get: () => sessionStorage.getItem(KEY),
  put: (text) => sessionStorage.setItem(KEY, text.trim()),
  forget: () => sessionStorage.removeItem(KEY),
};

/** The command that asks the same. It names a variable in place of the token. */
export function curl(path, method = "GET", body = null) {
  const parts = ["curl", "-sS", `-H "Authorization: Bearer ${PLACEHOLDER}"`];
  if (method !== "GET") parts.push(`-X ${method}`);
  if (body !== null) parts.push(`-H 'Content-Type: application/json' -d '${JSON.stringify(body).replaceAll("'", "'\\''")}'`);
  const address = new URL(path, location.origin).href.replaceAll("'", "%27");
  return [...parts, `'${address}'`].join(" ");
}

async function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (token.get()) headers.authorization = `Bearer ${token.get()}`;
  let answer;
  try {
    answer = await fetch(path, { ...options, headers, cache: "no-store", credentials: "omit", redirect: "error" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, { detail: "The service does not answer.", remedy: "It may be starting: try again in a moment." });
  }
  if (answer.ok) return answer;
  throw new Problem(answer.status, await answer.json().catch(() => ({})));
}

/** A signal that ends with `signal` too; `wait(ms)`: it ends by then, unless that is said again or `done`. */
function patience(signal) {
  const ends = new AbortController();
  const end = () => ends.abort();
  let timer = null;
  if (signal?.aborted) end();
  signal?.addEventListener("abort", end);
  return {
    signal: ends.signal,
    wait: (ms) => { clearTimeout(timer); timer = setTimeout(end, ms); },
    done: () => { clearTimeout(timer); signal?.removeEventListener("abort", end); },
  };
}

/** What `answered(signal, again)` makes of an answer; `Problem` 0 where that breaks off, or nothing comes for `ms`. */
async function whole(ms, signal, answered) {
  const limit = patience(signal);
  const again = () => { if (ms) limit.wait(ms); };
  again();
  try {
    return await answered(limit.signal, again);
  } catch (error) {
    if (error instanceof Problem || signal?.aborted) throw error;
    throw new Problem(0, { detail: "The service does not answer, or not to the end.", remedy: "Network or service may be overloaded: try again in a moment." });
  } finally {
    limit.done();
  }
}

/** A JSON document. Throws Problem. */
export async function get(path, options = {}) {
  return whole(ANSWER_MS, options.signal, async (signal, again) => {
    const answer = await ask(path, { ...options, signal });
    again();
    return answer.json();
  });
}

/** 128 random bits, hex; also where the page is no secure context and has no randomUUID. */
function fresh() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Send a JSON document; a fresh idempotency key makes a repeat harmless. Throws Problem. */
export async function post(path, body) {
  const headers = { "content-type": "application/json", "idempotency-key": fresh() };
  // However long that takes: a service may have a whole dataset to read before it answers.
  return whole(null, null, async () => (await ask(path, { method: "POST", headers, body: JSON.stringify(body) })).json());
}

/** Every item of a list, page by page. Throws Problem. */
export async function all(path, options = {}) {
  const found = [];
  let after = null;
  do {
    const address = new URL(path, location.origin);
    address.searchParams.set("limit", "500");
    if (after !== null) address.searchParams.set("after", after);
    const page = await get(address.pathname + address.search, options);
    found.push(...page.items);
    after = page.next;
  } while (after !== null);
  return found;
}

/** Read one stream to its end; true where nothing more will ever come (204). */
async function readStream(path, state, { signal, again }, take, said) {
  const headers = { accept: "text/event-stream" };
  if (state.last !== null) headers["last-event-id"] = state.last;
  const answer = await ask(path, { headers, signal });
  state.failures = 0;
  if (answer.status === 204) return true;
  said("live"); // not before: whoever asks may wait for long
  const parser = new EventParser();
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    again();
    const { done, value } = await reader.read();
    if (done) return false;
    for (const event of parser.push(value)) {
      state.last = event.id ?? state.last;
      take({ id: event.id, event: event.event, data: JSON.parse(event.data) });
    }
  }
}

/**
 * Events from `after` on until `over(event)` or `signal`; a broken stream is taken up where it broke off.
 *
 * `said(state)` hears "live", "waiting" (it asks again), "ended", and "refused" before this throws. Throws Problem where the caller may not read it.
 */
export async function stream(path, { after = "0", signal, take, over = () => false, said = () => {} }) {
  const state = { last: after, failures: 0 };
  let ended = false;
  while (!ended && !signal.aborted) {
    try {
      const read = (limit, again) => readStream(path, state, { signal: limit, again }, (event) => { take(event); ended ||= over(event); }, said);
      const silent = await whole(SILENT_MS, signal, read);
      ended ||= silent;
    } catch (error) {
      if (signal.aborted) return;
      if (!passing(error)) {
        said("refused");
        throw error;
      }
    }
    if (!ended) {
      said("waiting");
      state.failures += 1;
      await new Promise((resolve) => { setTimeout(resolve, Math.min(RETRY_MS * state.failures, 10000)); });
    }
  }
  said("ended");
}
