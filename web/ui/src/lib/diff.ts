/** Difference is one value that differs between two JSON values. */
interface Difference {
  path: string;
  before: string | undefined;
  after: string | undefined;
}

/** leaves returns the scalar values of a JSON value by path, such as limits.rpm or tiers[0]. */
export function leaves(value: unknown, path = ""): Map<string, string> {
  if (Array.isArray(value) && value.length > 0) {
    return new Map(value.flatMap((v, i) => [...leaves(v, `${path}[${i}]`)]));
  }
  if (typeof value === "object" && value !== null && Object.keys(value).length > 0) {
    return new Map(Object.entries(value).flatMap(([name, v]) => [...leaves(v, path ? `${path}.${name}` : name)]));
  }
  return new Map(value === undefined ? [] : [[path, typeof value === "string" ? value : JSON.stringify(value)]]);
}

/** differences returns the values that differ, ordered by path. */
export function differences(before: unknown, after: unknown): Difference[] {
  const [was, is] = [leaves(before), leaves(after)];
  const paths = [...new Set([...was.keys(), ...is.keys()])].sort();
  return paths
    .filter((p) => was.get(p) !== is.get(p))
    .map((p) => ({ path: p, before: was.get(p), after: is.get(p) }));
}
