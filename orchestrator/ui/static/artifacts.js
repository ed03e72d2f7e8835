/* Placeholder. */
import { h } from "./common/dom.js";
export const artifactsTab = () => ({ element: h("p", null, "…") });
