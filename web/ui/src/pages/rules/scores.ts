/** ScoreMeaning is what the score of a candidate and its terms are under one policy. */
export interface ScoreMeaning {
  /** For the header of the column, such as s; empty for a number without a unit. */
  unit: string;
  text: string;
  terms: Record<string, TermMeaning>;
}

interface TermMeaning {
  unit: string;
  text: string;
}

const load: ScoreMeaning = { unit: "tokens", text: "booked tokens per unit of weight", terms: {} };

const step: TermMeaning = { unit: "", text: "place clockwise on the ring after the home, which has 0" };
const requests: TermMeaning = { unit: "", text: "requests in flight per unit of weight" };

const kvAware: ScoreMeaning = {
  unit: "s",
  text: "expected cost of the request on the worker in seconds, the sum of the terms",
  terms: {
    first_token: { unit: "s", text: "time until the first token: prefills booked on the worker, then the uncached tokens of the request" },
    queue: { unit: "s", text: "time that later requests wait because of its prefill" },
    decode: { unit: "s", text: "time of its answer, and the delay of other answers on the worker" },
    cache: { unit: "s", text: "time to compute conversations again that it evicts from the cache" },
  },
};
const freeShare: TermMeaning = { unit: "", text: "1 minus its share of the busiest candidate's load, × the weight of the load" };

// docs/routing.md and docs/policies.md describe the policies.
const meanings: Record<string, ScoreMeaning> = {
  kv_aware: kvAware,
  lmcache_aware: {
    unit: "",
    text: "prefix_lookup: as kv_aware, in seconds; occupancy: sum of the terms with a minus sign",
    terms: { ...kvAware.terms, keys: { unit: "", text: "share of the most keys in LMCache × cache_weight" }, load: freeShare },
  },
  chwbl: {
    unit: "",
    text: step.text,
    terms: {
      step,
      requests: { unit: "", text: "requests with this one ÷ the bound on requests; above 1 the worker is over its bound" },
      tokens: { unit: "", text: "booked tokens with this request ÷ the bound on tokens; above 1 the worker is over its bound" },
    },
  },
  consistent_hash: { unit: "", text: step.text, terms: { step } },
  rendezvous_hash: { unit: "", text: "rank of the worker for the key, from a hash of both and the weight", terms: {} },
  kv_overlap: {
    unit: "",
    text: "sum of the terms with a minus sign",
    terms: {
      overlap: { unit: "", text: "share of the prompt in its cache × overlap_weight" },
      load: freeShare,
      health: { unit: "", text: "share of its recent requests that succeeded × health_weight" },
    },
  },
  cache_aware: {
    unit: "",
    text: "share of the prompt in its cache with a minus sign",
    terms: {
      match: { unit: "", text: "share of the prompt in its cache, 0 to 1" },
      requests,
      blocks: { unit: "blocks", text: "blocks of prompts in the gateway's model of its cache" },
    },
  },
  least_latency: {
    unit: "s",
    text: "average time to the first event × requests per unit of weight",
    terms: {
      seconds: { unit: "s", text: "moving average of the time to the first event" },
      requests: { unit: "", text: "requests with this one per unit of weight" },
    },
  },
  round_robin: { unit: "turns", text: "turns before its own", terms: {} },
  weighted_round_robin: {
    unit: "",
    text: "credit with the weight of this turn, with a minus sign",
    terms: { has: { unit: "", text: "credit before this turn" } },
  },
  least_load: load,
  power_of_two: load,
  random: load,
};

/** scoreMeaning returns the meaning of the scores of a choice; undefined for an unknown policy. */
export function scoreMeaning(policy: string | undefined, reason: string | undefined): ScoreMeaning | undefined {
  if (reason === "least_load") return load; // the policy made no choice, so the load decided
  return policy === undefined || !Object.hasOwn(meanings, policy) ? undefined : meanings[policy];
}
