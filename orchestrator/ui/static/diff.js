/* Two documents side by side, field by field. Pure: knows no element and no manifest. */

/** Every leaf of a JSON value by its path; lists of named things go by their `holder`. */
export function flat(value, path = "") {
  if (value === null || typeof value !== "object") return [[path, JSON.stringify(value)]];
  const entries = Array.isArray(value) ? value.map((one, at) => [one?.holder ?? at, one]) : Object.entries(value);
  if (entries.length === 0) return [[path, Array.isArray(value) ? "[]" : "{}"]];
  return entries.flatMap(([name, one]) => flat(one, path ? `${path}.${name}` : String(name)));
}

/** Rows {path, before, after, kind}: kind is same, changed, added or removed; in order of path. */
export function differences(before, after) {
  const [old, fresh] = [new Map(flat(before)), new Map(flat(after))];
  const paths = [...new Set([...old.keys(), ...fresh.keys()])].sort();
  return paths.map((path) => {
    const [was, is] = [old.get(path) ?? null, fresh.get(path) ?? null];
    const kind = was === is ? "same" : was === null ? "added" : is === null ? "removed" : "changed";
    return { path, before: was, after: is, kind };
  });
}
