import { expect, test } from "vitest";
import type { TenantView } from "../../api/schema";
import { firstUseOf } from "./firstUse";

test("the first use of a key is its oldest live request, else the use that the list has", () => {
  const rows = [
    { key: "a", time: "12:00:03" },
    { key: "a", time: "12:00:02" },
    { key: "b", time: "12:00:01" },
  ];
  const tenants = [{ key_list: [{ id: "a", last_used_at: "12:01" }, { id: "c", last_used_at: "12:02" }, { id: "d" }] }];
  const of = (key: string) => firstUseOf(key, rows, tenants as unknown as TenantView[]);
  expect(["a", "b", "c", "d", "e"].map(of)).toEqual(["12:00:02", "12:00:01", "12:02", undefined, undefined]);
});
