/* Losses into curves, and the recency bias they show. Pure: knows no element. */

export const BIAS_SHARE = 0.1;
const MIN_PAIRS = 2;

/** Curves by holder: [step, loss] in order of step; a repeated visit's losses stand in place of the earlier attempt's, and of one that a restore took back there are none. */
export function curves(visited, losses, told = [], closes) {
  const [visits, facts] = placed(visited, told, closes);
  const left = new Set(kept(visits, facts)), gone = new Set(visits.filter((one) => !left.has(one)).map((one) => one.id));
  const byStep = new Map();
  const put = (holder, step, loss) => {
    const name = holder || "all holders";
    if (!byStep.has(name)) byStep.set(name, new Map());
    byStep.get(name).set(step, loss);
  };
  for (const visit of left) {
    (visit.losses ?? []).forEach((loss, at) => put(visit.holder, (visit.first_step ?? 0) + at, loss));
  }
  for (const one of losses) if (!gone.has(one.visit)) put(one.holder, one.step, one.loss);
  return new Map([...byStep].map(([name, found]) => [name, [...found].sort((a, b) => a[0] - b[0])]));
}

function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/** Visits that were closed, in order of their steps; after a restore a visit is made again, and its last attempt stands for it. */
function closedOnce(visits) {
  const closed = visits.filter((one) => one.outcome === "closed");
  return [...new Map(closed.map((one) => [`${one.holder}:${one.first_step}`, one])).values()].sort((a, b) => a.first_step - b.first_step);
}

/**
 * Recency bias, from released losses alone: how much worse the model is at a holder's records when it comes back than when it left.
 *
 * For each holder's last two closed visits: loss on arrival now against loss on leaving then. `share` is the median over the holders of
 * (arrival − leaving) ÷ leaving; a loss on leaving that was released as 0 has no share. Returns {state: "unknown" | "none" | "biased", share, rows: [{holder, left, back, share}]}.
 */
export function recency(visited, told = [], closes) {
  const [visits, facts] = placed(visited, told, closes);
  const closed = closedOnce(kept(visits, facts)).filter((one) => (one.losses ?? []).length > 0);
  const byHolder = new Map();
  for (const visit of closed) byHolder.set(visit.holder, [...(byHolder.get(visit.holder) ?? []).slice(-1), visit]);
  const rows = [];
  for (const [holder, pair] of byHolder) {
    if (pair.length < 2) continue;
    const left = pair[0].losses.at(-1);
    const back = pair[1].losses[0];
    if (left !== 0) rows.push({ holder, left, back, share: (back - left) / Math.abs(left) });
  }
  if (rows.length < MIN_PAIRS) return { state: "unknown", share: null, rows };
  const share = median(rows.map((one) => one.share));
  return { state: share >= BIAS_SHARE ? "biased" : "none", share, rows };
}

/** At most `most` points of a curve: of each piece its lowest and highest, so that no spike is lost. */
export function thinned(points, most) {
  if (points.length <= most) return points;
  const size = Math.ceil((points.length * 2) / most);
  const found = [];
  for (let at = 0; at < points.length; at += size) {
    const piece = points.slice(at, at + size);
    const low = piece.reduce((a, b) => (b[1] < a[1] ? b : a));
    const high = piece.reduce((a, b) => (b[1] > a[1] ? b : a));
    found.push(...(low[0] <= high[0] ? [low, high] : [high, low]));
  }
  return found.filter((point, at) => at === 0 || point !== found[at - 1]);
}

/** Both with `place`, what came before what in the session's journal: `closes` has that of visits' closes by id; of others the time says between which facts they were. As `_placed` in `gput.tracking`. */
function placed(visits, told, closes = new Map()) {
  const facts = told.map((one, n) => ({ ...one, place: one.place ?? n }));
  let latest = -Infinity;
  const times = facts.map((one) => (latest = Math.max(latest, one.at)));
  const between = (at) => {
    let [low, high] = [0, times.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (times[middle] < at) low = middle + 1;
      else high = middle;
    }
    return low < facts.length ? facts[low].place - 0.5 : Infinity;
  };
  return [visits.map((one) => ({ ...one, place: closes.get(one.id) ?? between(one.closed_at) })), facts];
}

/** Of these visits those whose step a `tour_judged` is about: asked for each of very many tours, so each looks at its round's alone. Who joins a round late is in a later step of it. */
function ofTours(visits) {
  const byRound = new Map(visits.map((one) => [one.round, []]));
  for (const one of visits) byRound.get(one.round).push(one);
  return ({ round, place }) => (byRound.get(round) ?? []).filter((one) => one.place <= place);
}

/** Of closed visits and facts those that no later restore took back: its steps are behind nothing that was measured since. As `_standing` in `gput.tracking`. */
function standing(closed, facts) {
  const restores = facts.filter((one) => one.fact === "restored" && one.position !== undefined);
  const stands = (stop, place, until = Infinity) => restores.every((back) => !(place <= back.place && back.place <= until) || stop <= back.position);
  const judged = ofTours(closed);
  const behind = (one) => (one.fact !== "tour_judged" ? one.position ?? 0
    : judged(one).reduce((most, visit) => (stands(visit.index, visit.place, one.place) ? Math.max(most, visit.index) : most), 0));
  return [closed.filter((one) => stands(one.index, one.place)), facts.filter((one) => stands(behind(one), one.place))];
}

/** Visits without the closed ones that a restore took back: where they were passed over then, another holder's made their steps. */
function kept(visits, facts) {
  const closed = visits.filter((one) => one.outcome === "closed"), stood = new Set(standing(closed, facts)[0]);
  return visits.filter((one) => one.outcome !== "closed" || stood.has(one));
}

/** Held-out losses that the orchestrator measured: [step, loss], one of each step. Visits of one tour begin at one step; `facts` tell of restores, of accumulated tours and of the end; one whose visits are not there yet has no step. */
export function heldOut(visited, told = [], closes) {
  const [visits, facts] = placed(visited, told, closes);
  const [stood, measured] = standing(visits.filter((one) => one.outcome === "closed"), facts);
  const closed = closedOnce(stood), ends = new Map(), found = new Map(), judged = ofTours(closed);
  for (const { first_step: first, steps } of closed) ends.set(first, (ends.get(first) ?? first) + steps);
  const put = (of, loss) => loss != null && of.length > 0 && found.set(of.reduce((most, one) => Math.max(most, ends.get(one.first_step)), 0), loss);
  for (const one of closed) put([one], one.validation_after);
  for (const fact of measured) {
    if (fact.fact === "tour_judged" && fact.stepped) put(judged(fact), fact.validation_after);
    if (fact.fact === "last_checked") put(closed.filter((one) => one.index <= fact.position), fact.validation_after);
  }
  return [...found].sort((a, b) => a[0] - b[0]);
}
