/* What is known of one session: read once, then kept up by its stream of events. Knows the API's views, and no element. */

import { all, get, passing, stream } from "./common/api.js";

const TICK_MS = 250;
const AGAIN_MS = 2000;
const AFRESH_MS = 5000; // for whom a session waits and which channels are open is in no event
const AT_ONCE = 12; // visits read anew one by one; with more, the list is read again
const FINAL = new Set(["completed", "failed", "cancelled"]);

/** `view`, `visits` by id, `facts` of the session and of whole tours in order, `losses` by visit and step; `changed` is called where something did, at most four times a second. */
export class Live {
  constructor(id, signal, { changed, said, failed }) {
    this.path = `/v1/sessions/${encodeURIComponent(id)}`;
    this.view = null;
    this.visits = new Map();
    this.facts = [];
    this.losses = new Map();
    this.closes = new Map(); // when each visit was closed, as the how manieth of all that was told; a fact's is its `place`
    this.at = new Map(); // of a visit that is under way: its facts' times, by fact
    this.#signal = signal;
    this.#changed = changed;
    this.#said = said;
    this.#failed = failed;
    signal.addEventListener("abort", () => clearInterval(this.#afresh));
  }

  #signal;
  #changed;
  #said;
  #failed;
  #told = 0;
  #dirty = new Set();
  #stale = false; // the view
  #news = false; // what nobody was told of yet
  #reading = false;
  #timer = null;
  #afresh = null;
  #broke = false;

  /** Read everything, then follow. Throws Problem where the session cannot be read. */
  async begin() {
    const options = { signal: this.#signal };
    this.view = await get(this.path, options);
    const [visits, losses] = await Promise.all([all(`${this.path}/visits`, options), all(`${this.path}/losses`, options)]);
    for (const visit of visits) this.visits.set(visit.id, visit);
    for (const one of losses) this.#loss(one);
    this.#changed();
    this.#follow();
  }

  #follow() {
    if (this.#signal.aborted) return;
    this.#afresh = setInterval(() => { if (!document.hidden) this.#readAfresh(); }, AFRESH_MS);
    stream(`${this.path}/events?after=0`, {
      after: null, signal: this.#signal, said: (state) => this.#heard(state),
      take: (event) => this.#take(event), over: (event) => event.event === "session" && FINAL.has(event.data.fact),
    }).catch((problem) => {
      clearInterval(this.#afresh);
      this.#failed(problem);
    });
  }

  #heard(state) {
    if (state === "ended") clearInterval(this.#afresh);
    if (state === "live" && this.#broke) this.#readAfresh(); // whoever answers again may wait for somebody else
    this.#broke = state === "waiting";
    this.#said(state);
  }

  #readAfresh() {
    this.#stale = true;
    this.#due(0);
  }

  #due(ms = TICK_MS) {
    this.#timer ??= setTimeout(() => this.#tick(), ms);
  }

  #loss(one) {
    this.losses.set(`${one.visit}:${one.step}`, one);
  }

  #take({ event, data }) {
    if (event === "loss") this.#loss(data);
    else if (data.visit) this.#ofVisit(data);
    this.#told += 1;
    if (event !== "loss" && (!data.visit || data.tour_durations)) this.facts.push({ ...data, place: this.#told });
    if (data.fact === "closed" && data.visit) this.closes.set(data.visit, this.#told);
    this.#stale ||= event === "session" || data.fact === "closed";
    this.#news = true;
    this.#due();
  }

  #ofVisit(data) {
    const facts = this.at.get(data.visit) ?? {};
    facts[data.fact] = data.at;
    this.at.set(data.visit, facts);
    const before = this.visits.get(data.visit);
    if (before?.closed_at) return; // read whole before the stream told of it
    const { visit: id, at, phase, fact, ...more } = data;
    this.visits.set(id, { planned_at: at, ...before, ...more, id, phase, last_fact: fact });
    if (!before?.outcome) this.#dirty.add(id);
  }

  async #tick() {
    this.#timer = null;
    this.#tell();
    if (this.#reading) return; // it looks again itself when it has read
    this.#reading = true;
    let wait = TICK_MS;
    try {
      await this.#readAnew();
      this.#tell();
    } catch (problem) {
      if (!passing(problem)) return; // the stream hears it too, and says so
      wait = AGAIN_MS;
    } finally {
      this.#reading = false;
    }
    // What could not be read is read again: after the last event there is no other that would bring it.
    if (this.#stale || this.#dirty.size > 0) this.#due(wait);
  }

  #tell() {
    if (!this.#news) return;
    this.#news = false;
    this.#changed();
  }

  async #readAnew() {
    const wanted = [...this.#dirty].filter((id) => this.visits.get(id)?.last_fact !== "planned");
    const stale = this.#stale;
    this.#dirty.clear();
    this.#stale = false;
    try {
      await this.#read(wanted, stale);
    } catch (problem) {
      this.#stale ||= stale;
      for (const id of wanted) this.#dirty.add(id);
      throw problem;
    }
  }

  async #read(wanted, stale) {
    const options = { signal: this.#signal };
    if (stale) {
      const view = await get(this.path, options);
      this.#news ||= JSON.stringify(view) !== JSON.stringify(this.view);
      this.view = view;
    }
    const found = wanted.length > AT_ONCE ? await all(`${this.path}/visits`, options)
      : await Promise.all(wanted.map((id) => get(`/v1/visits/${id}`, options)));
    for (const visit of found) this.visits.set(visit.id, visit);
    this.#news ||= found.length > 0;
  }
}
