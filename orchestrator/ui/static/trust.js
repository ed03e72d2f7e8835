/* Placeholder. */
import { h } from "./common/dom.js";
export const trustTab = () => ({ element: h("p", null, "…") });
