/* Placeholder. */
import { h } from "./common/dom.js";
export const contractTab = () => ({ element: h("p", null, "…") });
