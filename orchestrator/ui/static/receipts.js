/* Placeholder. */
import { h } from "./common/dom.js";
export const receiptsTab = () => ({ element: h("p", null, "…") });
