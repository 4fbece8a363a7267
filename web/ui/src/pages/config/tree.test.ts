import { expect, test } from "vitest";
import { filtered, treeOf } from "./tree";

const config = {
  listen: "127.0.0.1:8080",
  tiers: [{ name: "small", workers: [{ name: "small-0", weight: 3 }] }],
  models: { "gpt-4*": "large" },
  keys: [],
};

test("paths are those of the origins", () => {
  const paths: string[] = [];
  const walk = (nodes: ReturnType<typeof treeOf>) => {
    for (const n of nodes) {
      paths.push(n.path);
      walk(n.children);
    }
  };
  walk(treeOf(config));
  expect(paths).toEqual([
    "listen",
    "tiers",
    "tiers[0]",
    "tiers[0].name",
    "tiers[0].workers",
    "tiers[0].workers[0]",
    "tiers[0].workers[0].name",
    "tiers[0].workers[0].weight",
    "models",
    'models["gpt-4*"]',
    "keys",
  ]);
  expect(treeOf(config)[1]?.children[0]?.label).toBe("small");
});

test("a filter keeps matching values with their sections", () => {
  const found = filtered(treeOf(config), "small-0");
  expect(found).toHaveLength(1);
  expect(found[0]?.children[0]?.children[0]?.path).toBe("tiers[0].workers");
  expect(filtered(treeOf(config), "nothing")).toEqual([]);
  expect(filtered(treeOf(config), "", (n) => n.path.endsWith("weight"))[0]?.path).toBe("tiers");
});
