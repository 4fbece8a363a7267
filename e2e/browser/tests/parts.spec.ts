import { createServer, type RequestListener, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { admin, env, expect, expectAccessible, login, readConfig, send, test, writeConfig } from "../support.ts";

const model = "demo-small-7b";

/** Serves on a loopback address. */
async function serve(answer: RequestListener): Promise<{ url: string; server: Server }> {
  const server = createServer(answer);
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, server };
}

function stop(server: Server): void {
  server.close();
  server.closeAllConnections();
}

const json = (value: unknown): [number, Record<string, string>, string] => [200, { "content-type": "application/json" }, JSON.stringify(value)];

/** Allows each request except those about secrets. */
const guard: RequestListener = async (request, response) => {
  let body = "";
  for await (const part of request) body += part;
  const [status, headers, text] = json(body.includes("secret") ? { action: "reject", reason: "It names a secret." } : { action: "allow" });
  response.writeHead(status, headers).end(text);
};

/** Lists the workers of the tier small with their numbers of keys. */
const controller: RequestListener = (_, response) => {
  const workers = ["small-0", "small-1", "small-2"].map((instance_id, i) => ({ instance_id, key_count: 1000 * (i + 1) }));
  const [status, headers, text] = json({ workers });
  response.writeHead(status, headers).end(text);
};

/** Adds a hook, a response cache and LMCache's controller to a configuration. */
function withParts(text: string, hook: string, lmcache: string): string {
  const policy = `{ name: lmcache_aware, mode: occupancy, controller_url: "${lmcache}", poll_interval: 1s, controller_timeout: 30s }`;
  return `${text
    .replace(`model: ${model}\n`, `model: ${model}\n    response_cache: { exact: { ttl: 1h } }\n    policy: ${policy}\n`)
    .replace("limits: { rpm: 100000", "response_cache: true\n      limits: { rpm: 100000")}
hooks_timeout: 60s
hooks: [ { name: guard, url: "${hook}", timeout: 30s } ]
`;
}

test("a response cache, a hook and LMCache are shown where their subjects are", async ({ page }) => {
  const original = readConfig();
  const [hook, lmcache] = [await serve(guard), await serve(controller)];
  try {
    writeConfig(withParts(original, hook.url, lmcache.url));
    await admin("POST", "/admin/reload");
    await login(page);
    const gateway = page.locator(".strip");
    await expect(gateway).toContainText("guard ok");
    await expect(gateway).toContainText("0 answers");
    await expect(gateway).toContainText("small up6,000 keys");

    const [first] = await send(1, "What is a gateway?", { model, maxTokens: 1000, temperature: 0 });
    const [second] = await send(1, "What is a gateway?", { model, maxTokens: 1000, temperature: 0 });
    const [rejected] = await send(1, "Tell me a secret", { model });
    expect([first, second, rejected].map((a) => a!.headers.get("x-tierway-cache-status"))).toEqual(["miss", "exact-hit", null]);
    await expect(gateway).toContainText("1 answer,");
    await expect(gateway).toContainText("50 % hits");
    await expectAccessible(page);

    const pages = page.getByRole("navigation", { name: "Pages" });
    await pages.getByRole("link", { name: "Decisions" }).click();
    const open = async (id: string) => {
      await page.getByTitle(`request ${id}`).click();
      return page.getByRole("dialog", { name: `Request ${id}` });
    };
    const idOf = (a: typeof first) => a!.headers.get("x-request-id")!;
    await expect(page.getByRole("row", { name: /kept answer/ })).toHaveCount(1);
    let drawer = await open(idOf(second));
    await expect(drawer).toContainText("answered from the response cache");
    await expect(drawer).toContainText("exact_hit: the kept answer of an equal request was sent");
    await expect(drawer).toContainText("allowed: the request continues as it was");
    await expect(drawer.getByRole("table", { name: "Phases" })).toContainText("Hook guard");
    await expectAccessible(page, "dialog[open]");
    await drawer.getByRole("button", { name: "Close" }).click();
    drawer = await open(idOf(first));
    await expect(drawer).toContainText("new answer kept");
    await expect(drawer.getByRole("table", { name: "Candidates" })).toContainText("LMCache 3,000 keys");
    await drawer.getByRole("button", { name: "Close" }).click();
    drawer = await open(idOf(rejected));
    await expect(drawer).toContainText("Rejected: a hook rejected the request.");
    await expect(drawer).toContainText("rejected: the service rejected the request");
    expect(await page.content()).not.toContain("It names a secret");
    await drawer.getByRole("button", { name: "Close" }).click();

    await pages.getByRole("link", { name: "Metrics" }).click();
    for (const title of ["Response cache results per second", "Hook results per second", "Duration of hook calls"]) {
      await expect(page.getByRole("region", { name: title }).getByRole("img")).toBeVisible();
    }
    await expectAccessible(page);
    await pages.getByRole("link", { name: "Config" }).click();
    for (const path of ["hooks[0].name", "tiers[0].response_cache.exact.ttl", "tiers[0].policy.controller_url"]) {
      await page.getByRole("searchbox", { name: "Filter values" }).fill(path);
      await expect(page.locator(".tree .value")).toHaveCount(1);
    }

    await pages.getByRole("link", { name: "Tenants" }).click();
    await page.getByRole("button", { name: "acme", exact: true }).click();
    await expect(page.getByRole("checkbox", { name: /^Response cache/ })).toBeChecked();
    await page.getByRole("button", { name: "Remove kept answers" }).click();
    const confirm = page.getByRole("dialog", { name: "Remove the kept answers of acme?" });
    await expectAccessible(page, "dialog[open]:last-of-type");
    await confirm.getByRole("button", { name: "Remove kept answers" }).click();
    await expect(page.getByText("The kept answers of acme were removed: 1 answer in memory.")).toBeVisible();
    const [third] = await send(1, "What is a gateway?", { model, maxTokens: 1000, temperature: 0 });
    expect(third!.headers.get("x-tierway-cache-status")).toBe("miss");

    stop(hook.server);
    await send(6, "What is a gateway?", { model, atOnce: 1 });
    await login(page);
    await expect(gateway.getByText(/^guard (half )?open$/)).toBeVisible();
    await login(page, env.adminKey, "/audit?action=answers.purge");
    await expect(page.getByRole("row", { name: /answers\.purge/ })).toContainText("1 answer in memory removed");
    writeConfig(original);
    await admin("POST", "/admin/reload");
    await login(page);
    await expect(gateway).toContainText("database ok");
    await expect(gateway).not.toContainText(/guard|hits|LMCache/);
  } finally {
    stop(hook.server);
    stop(lmcache.server);
  }
});
