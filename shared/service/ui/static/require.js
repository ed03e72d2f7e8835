/* One check by its name, held or not. */

import { CheckFailed } from "./bytes.js";

/** One check, by name. Throws CheckFailed. */
export function require(check, held, detail) {
  if (!held) throw new CheckFailed(check, detail);
}
