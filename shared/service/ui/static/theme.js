/* Light, dark, or as the system says; kept in this browser. Knows no page. */

import { h } from "./dom.js";

const KEY = "gput-theme";
const CHOICES = ["system", "light", "dark"];

function kept() {
  try {
    const said = localStorage.getItem(KEY);
    return CHOICES.includes(said) ? said : "system";
  } catch {
    return "system"; // storage may be switched off
  }
}

function put(choice) {
  if (choice === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = choice;
}

/** Apply what was chosen before. */
export function applyTheme() {
  put(kept());
}

/** The switch. */
export function themeSwitch() {
  const select = h("select", { id: "theme" }, CHOICES.map((name) => h("option", { value: name }, name)));
  select.value = kept();
  select.addEventListener("change", () => {
    put(select.value);
    try {
      localStorage.setItem(KEY, select.value);
    } catch {
      // It then lasts as long as the page.
    }
  });
  return h("label", { class: "theme" }, "Theme ", select);
}
