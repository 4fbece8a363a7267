// Sentences for the codes in records and explanations. docs/routing.md, docs/tiers.md and docs/errors.md have the
// same codes with more detail.
import { count, money } from "./format";

const texts = {
  /** Result of a request. */
  outcome: {
    ok: "ok",
    refused: "rejected",
    failed: "failed",
    truncated: "truncated",
    client_gone: "client disconnected",
  },
  /** Reason for the worker. */
  worker: {
    prefix_home: "the beginning of the prompt hashes to this worker",
    prefix_overflow: "the home of the prompt is over its bound or full, and this is the next suitable worker",
    prefix_saturated: "all workers are over their bounds; this is the home, or the next worker that is not full",
    model_home: "the name of the model hashes to this worker",
    model_overflow: "the home of the model is over its bound or full, and this is the next suitable worker",
    model_saturated: "all workers are over their bounds; this is the model's home, or the next one that is not full",
    kv_events: "lowest cost, with a part of the prompt in its cache by the engine's events",
    kv_history: "lowest cost, with a part of the prompt in its cache by the gateway's history",
    lowest_cost: "lowest cost, with nothing of the prompt in its cache",
    least_load: "fewest booked tokens per unit of weight",
    session_home: "the session hashes to this worker",
    header_home: "the value of the header hashes to this worker",
    body_home: "the body hashes to this worker",
    session_pin: "it served the session while the session's home took no requests",
    cache_match: "it has the largest part of the prompt, above cache_threshold",
    cache_miss: "no worker has enough of the prompt, and on_miss selected this one",
    imbalanced: "least load, because the loads differ too much",
    kv_overlap: "highest score of overlap, load and health",
    lmcache_lookup: "lowest cost, with a part of the prompt in its cache by LMCache's controller",
    lmcache_occupancy: "highest score of keys in LMCache and load",
    least_latency: "lowest product of average time to the first event and load",
    latency_probe: "it got no stream for 10 s, so its average may be out of date",
    power_of_two: "the less loaded of two drawn workers",
    weighted_round_robin: "next in weighted order",
    round_robin: "next in order",
    random: "drawn at random",
  },
  /** Rule that selected the tier, up to its colon. */
  rule: {
    header: "X-Model-Tier names the tier",
    model: "the tier, or its model, has the requested name",
    alias: "models: in config.yaml maps the requested name",
    prompt_tokens: "the prompt is longer than the threshold",
    max_tokens: "the requested output is longer than the threshold",
    keyword: "keywords of the group match",
    score: "the score of its keyword groups and length selects the tier",
    share: "the rank of its score among the recent ones selects the tier",
    exploration: "drawn at random, so that labels compare the first and the last tier (learning.exploration)",
    sticky: "the chat was at this tier, or this tier stores the response that the request continues",
    clamped: "the nearest tier that the tenant may use",
    context: "the prompt does not fit the context of a lower tier",
    unavailable: "the selected tier has no worker up",
    fallback: "an earlier target of the list could not take the request",
    budget: "the tenant's budget is spent, and its requests move to the cheapest tier",
    default: "no other rule matches",
    path: "the pool passes this path through",
    stored: "the request is about a stored response",
  },
  /** Why a worker could not be selected. */
  exclusion: {
    requests: "over its bound on requests",
    tokens: "over its bound on booked tokens",
    full: "takes no request before another one ends",
    not_drawn: "not among the workers drawn at random",
    down: "health checks fail, or the engine is asleep or paused",
    no_weight: "drained, or its weight is 0",
    role: "its role does not serve this stage of the request",
    model: "does not serve the model",
    other_worker: "another worker stores the response that the request continues",
    tried: "the request was tried there",
    open: "ejected after failures, or its server accepts no connection",
    backoff: "in backoff after 429 or 503",
    overdue: "its requests are overdue, and another worker is usable",
    group: "a group with a lower priority number has a usable worker",
    saturated: "the engine's metrics show saturation",
    region: "a worker of a nearer region takes requests",
    slow_start: "in slow start, and already has its reduced share",
  },
  /** How the prompt of an attempt was computed. */
  prompt: {
    remote: "by a prefill worker",
    local: "by the decode worker",
    recomputed: "by the decode worker, without a hand-over",
    failed: "the attempt failed",
    abandoned: "the client left between the stages",
    refused: "refused by the prefill worker",
  },
  /** Why the queue rejected a request. */
  shed: {
    depth: "the queue has its maximum of waiting requests",
    bytes: "the waiting bodies fill the queue",
    wait: "the wait limit, or the client's timeout, was reached",
    deadline: "the wait would exceed its limit, or the client's timeout",
    displaced: "another request displaced it from the full queue",
    engine: "no worker of the pool came up in time",
  },
  /** Limit of a tenant or key, as a noun after an amount. */
  limit: {
    rpm: "requests per minute",
    rps: "requests per second",
    tpm: "tokens per minute",
    token_burst: "tokens at once",
    concurrent: "requests in flight",
    day_tokens: "tokens per UTC day",
    month_tokens: "tokens per UTC month",
    day_money: "units of money per UTC day",
    month_money: "units of money per UTC month",
  },
  /** Why an attempt failed, if the worker sent no status. */
  attempt: {
    gateway: "the gateway could not send the request",
    connect: "no connection",
    timeout: "no data for longer than the timeout",
    cut: "the connection broke off",
    protocol: "the answer violates the protocol",
    client_gone: "the client disconnected",
    shutdown: "the gateway shut down",
  },
  /** Code of a returned error. */
  error: {
    invalid_json: "the body is no valid JSON",
    json_too_deep: "the body is nested too deeply",
    ambiguous_json: "the body has a duplicate field",
    invalid_value: "a field has an invalid value",
    missing_field: "a required field is missing",
    context_length_exceeded: "prompt and output exceed the context length of the model",
    invalid_api_key: "the API key is missing, malformed or unknown",
    tenant_disabled: "the tenant is disabled",
    cross_site_request: "a web page of another site sent the request",
    host_not_allowed: "the request is for another host name",
    model_not_found: "the model does not exist, or the key may not use it",
    endpoint_not_supported: "no pool that serves the model supports the endpoint",
    feedback_disabled: "the gateway records no feedback, and no pool covers /v1/feedback; set learning.directory",
    unknown_url: "the URL does not exist",
    response_not_found: "the response does not exist, has expired or belongs to another tenant",
    previous_response_not_found: "the previous response does not exist, has expired or belongs to another tenant",
    conversation_not_found: "the conversation does not exist or belongs to another tenant",
    method_not_allowed: "the URL does not support the HTTP method",
    request_timeout: "the body arrived too slowly",
    request_too_large: "the body exceeds the size limit",
    unsupported_media_type: "the endpoint does not support the Content-Type",
    unsupported_encoding: "the Content-Encoding is not supported",
    websocket_not_supported: "WebSocket is not supported",
    rate_limit_exceeded: "a rate limit is reached, or the last worker returned 429",
    insufficient_quota: "the budget of the key or tenant is spent",
    internal_error: "the gateway failed with an internal error",
    worker_error: "the worker failed or could not be reached",
    worker_refused: "the worker rejected the request",
    worker_auth_failed: "the worker rejected the gateway's credentials",
    worker_protocol: "the worker's answer does not match the format of the endpoint",
    worker_timeout: "the worker did not answer in time",
    response_too_large: "the worker's answer exceeds max_response_bytes",
    overloaded: "all workers are busy, and the queue rejected the request",
    no_healthy_worker: "no worker that could serve the request is up",
    server_shutting_down: "the gateway is shutting down",
    auth_backend_unavailable: "the key database is unavailable",
    ratelimit_unavailable: "Redis is unavailable, and the tenant has fail_closed",
    stored_response_unavailable: "Redis is unavailable, and the gateway does not know the stored response",
    loop_detected: "the request passed this gateway before",
    rejected_by_hook: "a hook rejected the request",
    hook_unavailable: "a hook failed to check the request",
  },
  /** What the response cache did. */
  cache: {
    exact_hit: "the kept answer of an equal request was sent",
    semantic_hit: "the kept answer of a request that means the same was sent",
    miss: "no kept answer fits",
    bypass: "no look-up in the cache",
  },
  /** Why a request bypassed the response cache. */
  bypass: {
    tenant: "the tenant has no response_cache",
    temperature: "the temperature is above 0, absent, or given twice",
    tools: "the request has tools",
    media: "the request has images, audio, video or files",
    choices: "several answers are requested",
    logprobs: "log probabilities are requested",
    stored: "the response is stored, or the request continues a stored one",
    handover: "a field of the request names engines",
    size: "the body is too long",
    no_cache: "Cache-Control requires a new answer",
  },
  /** Whether the new answer after a miss is kept, or why not. */
  kept: {
    kept: "for the next such request",
    no_store: "Cache-Control forbids to keep it",
    fallback: "another tier or model answered",
    dropped: "the tenant's answers were removed meanwhile, or the cache has no room for it",
    failed: "the request failed, or the client left",
    finish: "the model did not end it itself",
    content: "it has more than text and reasoning",
    size: "it is too long",
    choices: "it has several choices",
    logprobs: "it has log probabilities",
  },
  /** Result of the call of a hook. */
  hook: {
    allowed: "the request continues as it was",
    rejected: "the service rejected the request",
    transformed: "the service changed the request",
    timeout: "no answer in time",
    error: "no connection, or no valid answer",
    refused: "the service made a change that the hook may not make",
    busy: "not called, because 64 calls were in flight",
    open: "not called, because its breaker was open",
    cancelled: "the client disconnected",
  },
  /** What is odd about the usage that the engine reported. */
  usage: {
    "output above max_tokens": "the engine reported more output than the request allowed, and this is booked",
    "output not plausible": "the engine reported more output than is possible; the gateway's count is booked instead",
    "prompt not plausible": "the engine reported a longer prompt than is possible; the gateway's estimate is booked instead",
    "usage not plausible": "the engine reported more tokens than are possible; the gateway's counts are booked instead",
  },
  /** Why a replay leaves out a record. */
  skip: {
    not_routed: "no tier is needed, or the client disconnected before one was selected",
    refused_before_tier: "rejected or failed before a tier was selected",
    keywords_not_recorded: "the tier depends on keyword groups that the edited configuration adds or changes",
    score_not_recorded: "the tier depends on a score, and the record has no length of the text",
    share_not_started: "the shares of the edited configuration start after 200 prompts of a tenant and alias",
    model_score_not_recorded: "the tier depends on the model of the edited configuration, and the record has no score of it",
    tier_not_reproduced: "the configuration in force does not reproduce the tier, and the edited one changes it",
    refused_by_limit: "rejected by a limit",
    no_worker_chosen: "no policy selected a worker",
    pool_unknown: "the tier or pool no longer exists",
    candidates_missing: "the record lacks candidates",
    no_worker_in_draft: "no worker of the edited configuration can take the request",
    worker_not_reproduced: "the configuration in force does not reproduce the worker, and the edited one changes it",
  },
} satisfies Record<string, Record<string, string>>;

/** ReasonKind is what a code is about. The same code can mean different things. */
export type ReasonKind = keyof typeof texts;

/** reasonText returns a code in words, without a capital and a full stop; the code itself if it is unknown. */
export function reasonText(kind: ReasonKind, code: string): string {
  const all: Record<string, string> = texts[kind];
  return Object.hasOwn(all, code) ? all[code]! : code;
}

/** ruleText returns a rule such as keyword:code in words. */
export function ruleText(rule: string): string {
  const at = rule.indexOf(":");
  const name = at < 0 ? rule : rule.slice(0, at);
  const text = reasonText("rule", name);
  if (text === name) return rule;
  return at < 0 ? text : `${text} (${rule.slice(at + 1)})`;
}

/** codedText returns a code with its words, as prefix_home: the beginning of the prompt hashes to this worker. */
export function codedText(kind: ReasonKind, code: string): string {
  const text = reasonText(kind, code);
  return text === code ? code : `${code}: ${text}`;
}

/** Rejection has the facts about a request that was not served. */
export interface Rejection {
  outcome: string;
  code?: string;
  limit?: string;
  shed?: string;
  /** Use of the limits, if it is known. */
  uses?: LimitUse[];
}

interface LimitUse {
  scope: string;
  limit: string;
  used: number;
  room: number;
  rate?: number;
  would_use?: number;
}

/** rejectionText returns why a request was not served, as one sentence; undefined for an unknown reason. */
export function rejectionText(r: Rejection): string | undefined {
  const why = r.limit ? limitText(r.limit, r.uses ?? []) : r.shed ? reasonText("shed", r.shed) : r.code && reasonText("error", r.code);
  if (!why || why === r.code) return undefined;
  const result = reasonText("outcome", r.outcome);
  return `${result[0]!.toUpperCase()}${result.slice(1)}: ${why}.`;
}

function limitText(limit: string, uses: LimitUse[]): string {
  const name = reasonText("limit", limit);
  if (limit === "token_burst") return "the request alone exceeds the tokens that may be reserved at once";
  const own = uses.filter((u) => u.limit === limit);
  const use = own.find((u) => u.used + (u.would_use ?? 0) > u.room) ?? own[0];
  if (!use) return `the tenant or its key reached the limit of ${name}`;
  const amount = limit.endsWith("_money") ? money(use.room) : count(use.rate ?? use.room);
  return `the ${use.scope} reached ${amount} ${name}`;
}
