import { admin, env, expect, send, test } from "../support.ts";

test("an operator logs in, moves a weight, creates a tenant and reads a decision", async ({ page }) => {
  await page.goto("/");
  await page.getByLabel("Admin key").fill(env.adminKey);
  await page.keyboard.press("Enter");
  await expect(page.getByRole("heading", { level: 1, name: "Overview" })).toBeVisible();
  const pages = page.getByRole("navigation", { name: "Pages" });

  await pages.getByRole("link", { name: "Workers" }).click();
  await page.getByRole("slider", { name: "Weight of small-0" }).focus();
  await page.keyboard.press("ArrowRight");
  await expect(page.getByText("The weight of small-0 is 2.")).toBeVisible();
  expect((await admin("GET", "/admin/workers/small-0")).weights.effective).toBe(2);

  await pages.getByRole("link", { name: "Tenants" }).click();
  await page.getByRole("button", { name: "Create tenant" }).click();
  await page.getByRole("dialog").getByLabel("Name", { exact: false }).first().fill("journey");
  await page.getByRole("button", { name: "Create", exact: true }).click();
  const key = (await page.getByTestId("secret").textContent())!;
  await page.getByLabel("I stored this key").check();
  await page.getByRole("button", { name: "Close", exact: true }).last().click();

  const [answer] = await send(1, "Say hello", { key });
  expect(answer!.status).toBe(200);
  await pages.getByRole("link", { name: "Decisions" }).click();
  const row = page.getByRole("row", { name: /\bjourney\b/ });
  await expect(row).toContainText(answer!.headers.get("x-routed-to")!);
  await row.getByRole("button").first().click();
  await expect(page.getByRole("dialog", { name: "Request" })).toContainText(answer!.headers.get("x-request-id")!);
});
