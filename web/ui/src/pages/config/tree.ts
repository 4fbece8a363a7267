/** Node is one value or section of the effective configuration. */
export interface Node {
  /** Path as origins have it, such as tiers[0].workers[1].weight. */
  path: string;
  /** The last part of the path. */
  name: string;
  /** Name of a list's item, if it has one. */
  label?: string;
  /** Text of a scalar; undefined for a section. */
  value?: string;
  children: Node[];
}

const plainKey = /^[A-Za-z0-9_-]+$/;

function below(path: string, key: string): string {
  if (!plainKey.test(key)) return `${path}[${JSON.stringify(key)}]`;
  return path ? `${path}.${key}` : key;
}

function labelOf(value: unknown): string | undefined {
  const name = (value as { name?: unknown } | null)?.name;
  return typeof name === "string" ? name : undefined;
}

/** treeOf returns the nodes of a JSON value. */
export function treeOf(value: unknown, path = ""): Node[] {
  if (Array.isArray(value)) {
    return value.map((v, i) => nodeOf(v, `${path}[${i}]`, `[${i}]`));
  }
  if (typeof value === "object" && value !== null) {
    return Object.entries(value).map(([key, v]) => nodeOf(v, below(path, key), key));
  }
  return [];
}

function nodeOf(value: unknown, path: string, name: string): Node {
  const children = treeOf(value, path);
  if (children.length > 0) return { path, name, label: labelOf(value), children };
  const empty = typeof value === "object" && value !== null;
  const text = empty ? (Array.isArray(value) ? "[]" : "{}") : typeof value === "string" ? value : JSON.stringify(value);
  return { path, name, value: text === "" ? '""' : text, children };
}

/** filtered returns the nodes whose path, label or value contains a text, with their sections. */
export function filtered(nodes: Node[], text: string, keep: (n: Node) => boolean = () => true): Node[] {
  const wanted = text.toLowerCase();
  return nodes.flatMap((n) => {
    const itself = [n.path, n.label, n.value].some((t) => t?.toLowerCase().includes(wanted));
    if (n.children.length === 0) return itself && keep(n) ? [n] : [];
    const children = filtered(n.children, itself ? "" : text, keep);
    return children.length > 0 ? [{ ...n, children }] : [];
  });
}
