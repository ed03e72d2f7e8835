/* The holder's page: what stands at its top, and its two places. Knows pages by name only. */

import { startPage } from "./common/frame.js";
import { SESSION_ID, nothingHere } from "./common/panel.js";
import { homePage } from "./home.js";
import { connection } from "./identity.js";
import { requestPage } from "./request.js";

startPage({
  path: "/v1/identity",
  access: "Operator's access",
  words: "Paste what is in operator.token (it may decide) or in auditor.token (it only reads), both in the holder's data folder. "
    + "This page shows counts and commitments, and never a record.",
  suffix: "Data holder",
  name: (who) => (who ? `Data holder ${who.name}` : "Data holder"),
  top: connection,
  // #/ or #/requests/SESSION
  open: ([kind, session], told, who) => {
    told.emulated(who.backend === "emulated");
    if (kind !== "requests" || !session) {
      told.title(who.name);
      return homePage(who, told.signal);
    }
    if (!SESSION_ID.test(session)) return nothingHere("request", told);
    told.title(session);
    return requestPage(session, told.signal);
  },
});
