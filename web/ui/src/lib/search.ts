// The state of a page is in its address, as readable text: #/workers?q=small&sort=-load

/** parseSearch reads the parameters of an address; all values are texts. */
export function parseSearch(search: string): Record<string, string> {
  return Object.fromEntries(new URLSearchParams(search));
}

/** stringifySearch writes parameters; empty and undefined values are omitted. */
export function stringifySearch(search: Record<string, unknown>): string {
  const p = new URLSearchParams();
  for (const [name, value] of Object.entries(search)) {
    if (value !== undefined && value !== null && value !== "") p.set(name, String(value));
  }
  const text = p.toString();
  return text && `?${text}`;
}

/** picked returns a validator that keeps only the named parameters. */
export function picked<K extends string>(...names: K[]) {
  return (search: Record<string, unknown>): Partial<Record<K, string>> => {
    const kept: Partial<Record<K, string>> = {};
    for (const name of names) {
      const value = search[name];
      if (typeof value === "string" && value !== "") kept[name] = value;
    }
    return kept;
  };
}
