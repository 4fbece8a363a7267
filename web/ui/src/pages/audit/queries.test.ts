import { afterEach, beforeEach, expect, test, vi } from "vitest";

beforeEach(() => {
  vi.resetModules();
  vi.stubGlobal("document", { baseURI: "http://gateway.example/" });
  vi.stubGlobal("addEventListener", () => {});
});
afterEach(() => vi.unstubAllGlobals());

// Returns the entry that a log with these ids has, and the requests for it.
async function fetchEntry(id: string, ids: number[]) {
  const urls: string[] = [];
  vi.stubGlobal("fetch", (request: Request) => {
    urls.push(request.url);
    const cursor = Number(new URL(request.url).searchParams.get("cursor"));
    const items = ids.filter((i) => i < cursor).slice(0, 1).map((i) => ({ id: i }));
    return Promise.resolve(Response.json({ items }));
  });
  const { entryQuery } = await import("./queries");
  const read = entryQuery(id).queryFn as unknown as () => Promise<{ id: number } | null>;
  return { entry: await read(), urls };
}

test("an entry is read by the cursor after it", async () => {
  const { entry, urls } = await fetchEntry("7", [9, 8, 7, 6]);
  expect(entry).toEqual({ id: 7 });
  expect(urls).toEqual(["http://gateway.example/admin/audit?cursor=8&limit=1"]);
});

test("an entry that does not exist is not replaced by an older one", async () => {
  expect((await fetchEntry("7", [9, 8, 6])).entry).toBeNull();
  expect((await fetchEntry("7", [])).entry).toBeNull();
});

test.each(["0", "-1", "x", "1e3", "99999999999999999999"])("the id %s causes no request", async (id) => {
  expect(await fetchEntry(id, [9])).toEqual({ entry: null, urls: [] });
});
