import { parseSearch } from "./search";

/** linkOf returns a link of the API, such as workers?q=small-1, as the router takes it. */
export function linkOf(link: string): { to: string; search: Record<string, string> } {
  const [path = "", search = ""] = link.split("?", 2);
  return { to: `/${path.replace(/^\//, "")}`, search: parseSearch(search) };
}
