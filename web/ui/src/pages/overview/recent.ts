import type { MetricsView } from "../../api/schema";

export type Recent = MetricsView;

/** valuesOf returns the sum of the series with a name and labels; null where none has a value. */
export function valuesOf(recent: Recent | undefined, name: string, labels: Record<string, string> = {}): (number | null)[] {
  const found = (recent?.series ?? []).filter(
    (s) => s.name === name && Object.entries(labels).every(([k, v]) => s.labels[k] === v),
  );
  const [first, ...others] = found;
  if (!first) return [];
  return first.values.map((v, i) =>
    others.reduce<number | null>((sum, s) => {
      const other = s.values[i] ?? null;
      return sum === null ? other : other === null ? sum : sum + other;
    }, v),
  );
}

/** hitsOf returns the kept answers that were sent, and their share of the look-ups; null without a look-up. */
export function hitsOf(recent: Recent | undefined): { rate: (number | null)[]; share: number | null } {
  const [exact, semantic, missed] = ["exact_hit", "semantic_hit", "miss"].map((result) => valuesOf(recent, "response_cache", { result }));
  const rate = exact!.map((v, i) => (v === null ? null : v + (semantic![i] ?? 0)));
  const sum = (values: (number | null)[]) => values.reduce<number>((a, b) => a + (b ?? 0), 0);
  const lookups = sum(rate) + sum(missed!);
  return { rate, share: lookups > 0 ? sum(rate) / lookups : null };
}
