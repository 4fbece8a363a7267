import { admin, env, expect, login, send, statusError, test } from "../support.ts";

test.use({ viewport: { width: 390, height: 844 }, hasTouch: true, isMobile: true });

const tapped = [
  { page: "/decisions", cell: ".decisions tbody tr[aria-rowindex='6'] td:first-child button", dialog: /^Request / },
  { page: "/workers", cell: "tr[data-key='small-1'] td:first-child button", dialog: "small-1" },
  { page: "/workers", cell: "tr[data-key='small-1'] td:nth-child(2)", dialog: "small-1" },
  { page: "/tenants", cell: "tr[data-key='acme'] td:first-child button", dialog: "acme" },
  { page: "/tenants", cell: "tr[data-key='acme'] td:nth-child(2)", dialog: "acme" },
];

for (const { page: path, cell, dialog } of tapped) {
  test(`the first tap on ${cell} of ${path} opens the row`, async ({ page }) => {
    await send(12, "Say hello");
    await login(page, env.adminKey, path);
    const target = page.locator(cell).first();
    await expect(target).toBeVisible();
    await target.scrollIntoViewIfNeeded();
    const box = (await target.boundingBox())!;
    await page.touchscreen.tap(box.x + Math.min(box.width / 2, 20), box.y + 4);
    await expect(page.getByRole("dialog", { name: dialog })).toBeVisible();
  });
}

test("a tap moves no row of the decisions, also while requests end", async ({ page }) => {
  await send(12, "Say hello");
  await login(page, env.adminKey, "/decisions");
  const row = page.locator(".decisions tbody tr[aria-rowindex='4']");
  await expect(row).toBeVisible();
  const before = (await row.boundingBox())!.y;
  await page.locator(".decisions tbody tr[aria-rowindex='4'] td:first-child button").tap();
  await page.getByRole("button", { name: "Close" }).click();
  await send(5, "Say hello");
  expect((await row.boundingBox())!.y).toBe(before);
});

test("the permissions of a tenant are check boxes with the names that exist", async ({ page, journal }) => {
  journal.permit(statusError(422));
  const name = `boxes-${Date.now().toString(36)}`;
  await admin("POST", "/admin/tenants", { name });
  await login(page, env.adminKey, `/tenants?tenant=${name}`);
  const drawer = page.getByRole("dialog", { name });
  const box = (label: string | RegExp) => drawer.getByRole("checkbox", { name: label });
  await box(/^All tiers/).uncheck();
  await box("medium").uncheck();
  await drawer.getByRole("button", { name: "Save" }).click();
  await expect(page.getByText(`The settings of ${name} were saved.`)).toBeVisible();
  expect((await admin("GET", `/admin/tenants/${name}`)).tiers).toEqual(["small", "large"]);
  await box("All models").uncheck();
  await expect(drawer.getByText(/None: each request is rejected/)).toBeVisible();
  await drawer.getByRole("textbox", { name: /^Models/ }).fill("gtp-9");
  await drawer.getByRole("button", { name: "Save" }).click();
  await expect(drawer.getByText(/matches no model/).first()).toBeVisible();
});
