/* The front door of a page: who reads, which place of it, the frame around that. Knows places by their hash only, and no data. */

import { get, passing, token } from "./api.js";
import { announce, h, show } from "./dom.js";
import { askForToken } from "./entry.js";
import { emulatedBand, problemBox, stayingAt } from "./panel.js";
import { applyTheme, themeSwitch } from "./theme.js";

const place = (id) => document.getElementById(id);

const AGAIN_MS = 2000;

/** A part of an address; what is no encoding stands for itself. */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** The parts of the address after `#/`. */
const route = () => location.hash.replace(/^#\/?/, "").split("/").map(decoded);

/**
 * One page, from its token on.
 *
 * `path`: read with the token, says who reads (`who`). `access`, `words`: what is said where the token is asked for. `suffix`: of titles.
 * `name(who)`, `top(who)`: what stands at the top; `who` is null before anybody is known. `open(route, told, who)`: the element of a place;
 * `told` has the `signal` that ends with it, `emulated(yes)` for the band, and `title(text)`.
 */
class Frame {
  #of;
  #who = null;
  #leave = () => {};

  constructor(of) {
    this.#of = of;
  }

  begin() {
    applyTheme();
    document.querySelector(".skip").addEventListener("click", (event) => {
      event.preventDefault(); // the fragment says which page this is
      place("content").focus();
    });
    window.addEventListener("hashchange", () => {
      if (this.#who !== null && token.get()) this.#move();
    });
    this.#start();
  }

  async #start() {
    this.#leave();
    this.#top(null);
    this.#title(null);
    show(place("band"));
    if (!token.get()) {
      this.#ask(null);
      return;
    }
    await this.#enter(true);
  }

  async #enter(first) {
    let who;
    try {
      who = await get(this.#of.path);
    } catch (problem) {
      // A service that is away says nothing of the token: no reason to ask for another.
      if (!passing(problem)) this.#ask(problem);
      else {
        if (first) show(place("content"), problemBox(problem), h("p", { class: "quiet" }, "This page asks again until it answers."));
        setTimeout(() => this.#enter(false), AGAIN_MS);
      }
      return;
    }
    this.#entered(who);
  }

  #ask(problem) {
    const { path, access, words } = this.#of;
    const enter = (who) => {
      this.#entered(who);
      place("content").focus({ preventScroll: true });
    };
    askForToken(place("content"), { path, words, enter, problem, title: access });
  }

  #entered(who) {
    this.#top(who);
    this.#open();
  }

  #top(who) {
    this.#who = who;
    show(place("top"), h("a", { class: "name", href: "#/" }, this.#of.name(who)), who ? this.#of.top(who) : null, themeSwitch(),
      who ? h("button", { type: "button", class: "small", onclick: () => this.#forget() }, "Forget the token") : null);
  }

  #forget() {
    token.forget();
    location.hash = "#/";
    this.#start();
  }

  /** The title; who moved hears it, since nothing else says that another place is there now. */
  #title(text) {
    const { suffix } = this.#of;
    const title = text ? `${text} · ${suffix}` : suffix;
    if (text && title !== document.title) announce(title);
    document.title = title;
  }

  /** Open another place; who was at a link that is there as well stays at it, and nobody falls out of the page. */
  #move() {
    const content = place("content");
    stayingAt(content, () => this.#open());
    if (document.activeElement === document.body) content.focus({ preventScroll: true });
  }

  #open() {
    this.#leave();
    this.#title(null);
    const ends = new AbortController();
    this.#leave = () => ends.abort();
    show(place("band"));
    const told = {
      signal: ends.signal,
      emulated: (yes) => { if (!ends.signal.aborted) show(place("band"), emulatedBand(yes)); },
      title: (text) => this.#title(text),
    };
    show(place("content"), this.#of.open(route(), told, this.#who));
  }
}

/** Begin. */
export function startPage(of) {
  new Frame(of).begin();
}
