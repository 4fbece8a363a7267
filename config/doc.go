package config

import (
	"math"
	"reflect"
	"strings"

	"tierway/openai"
	"tierway/routing"
	"tierway/tenants"
)

// key is what is known of one key beside its Go type. The decoder checks by it
// and the references are written from it.
type key struct {
	doc      string          // one sentence or two for docs/config.md
	required bool            // its section is nothing without it
	words    func() []string // the only values, if there are such
	unbuilt  []string        // values of other builds, to refuse them by name
	min, max float64         // of a number; max noBound is none
	above    bool            // a number must be more than min
	zero     bool            // a duration may be 0, a text with a default empty
	fits     func(string) bool
	pattern  string // fits, as a regular expression for editors
	want     string // what the value must be, where its type does not say it
	secret   bool   // the value is never shown
	url      bool   // the value may hold a password, and is shown without
	inherits string // what an absent value is taken from
	policy   string // the only routing policy that reads the key
}

// noBound marks an integer without an upper bound.
const noBound = math.MaxInt32

const (
	maxCount = 1_000_000_000         // requests a minute or second: beyond any gateway
	maxUsage = 1_000_000_000_000_000 // tokens: 10^15 are exact in JSON, and nobody's month
	maxPrice = 1_000_000             // units for a million tokens: with nine decimals still exact as a float64
)

const (
	namePattern   = `^[a-z0-9][a-z0-9._-]{0,62}$`
	tenantPattern = `^[a-z0-9-]{1,63}$`
	digestPattern = `^[0-9a-fA-F]{64}$`
	nameWant      = "a name of up to 63 lower-case letters, digits, dots, underscores and hyphens that starts with a letter or digit"
)

// keyOf returns what is known of a key of a section.
func keyOf(section reflect.Type, name string) key { return known[section.String()+"."+name] }

// fields are the keys of a section in their order.
type fields struct {
	names []string
	index map[string]int
}

// fieldsOf reads the keys of a section off its yaml tags.
func fieldsOf(section reflect.Type) fields {
	f := fields{index: map[string]int{}}
	for i := range section.NumField() {
		name, _, _ := strings.Cut(section.Field(i).Tag.Get("yaml"), ",")
		if name == "" || name == "-" {
			continue
		}
		f.names = append(f.names, name)
		f.index[name] = i
	}
	return f
}

// isTenant reports whether s can name a tenant.
func isTenant(s string) bool {
	return s != "" && len(s) <= 63 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

// isName reports whether s can name a tier, pool, worker or admin key.
func isName(s string) bool {
	if s == "" || len(s) > 63 || strings.ContainsRune("._-", rune(s[0])) {
		return false
	}
	return strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789._-") == ""
}

// isDigest reports whether s is a SHA-256 digest in hex.
func isDigest(s string) bool {
	return len(s) == 64 && strings.Trim(s, "0123456789abcdefABCDEF") == ""
}

func noKeyWords() []string       { return []string{"least_load", "model_hash"} }
func depthWords() []string       { return []string{"adaptive", "fixed"} }
func modeWords() []string        { return []string{"max", "first_match"} }
func presetWords() []string      { return []string{"groups", "lesson", "none"} }
func placeWords() []string       { return []string{"user", "system"} }
func unavailableWords() []string { return []string{"up", "down", "refuse"} }

func engineWords() []string {
	return []string{string(openai.EngineAuto), string(openai.EngineVLLM), string(openai.EngineSGLang),
		string(openai.EngineLlamaCpp), string(openai.EngineOllama), string(openai.EngineOpenAI)}
}

func dialectWords() []string {
	var words []string
	for d := openai.Chat; d.String() != openai.Other.String(); d++ {
		words = append(words, d.String())
	}
	return words
}

func roleWords() []string  { return []string{roleAdmin, "viewer"} }
func levelWords() []string { return []string{"debug", "info", "warn", "error"} }

// known holds every key of the file by section and name.
var known = map[string]key{
	"config.File.listen":             {doc: "Address of the data plane, host:port. A host that is not loopback needs `tls` or `insecure`."},
	"config.File.tls":                {doc: "Certificate of the data plane."},
	"config.File.insecure":           {doc: "Serve the data plane in plain text on an address that is not loopback, for example behind a proxy that ends TLS."},
	"config.File.admin":              {doc: "The admin plane."},
	"config.File.metrics":            {doc: "Where Prometheus reads."},
	"config.File.auth":               {doc: "Who may use the data plane."},
	"config.File.max_body_bytes":     {doc: "Longest request body, unpacked. Longer ones are answered 413."},
	"config.File.max_response_bytes": {doc: "Longest answer of a worker that is not a stream."},
	"config.File.drain":              {doc: "How the program stops."},
	"config.File.policy":             {doc: "The routing policy of every tier and pool that names none."},
	"config.File.tiers":              {doc: "The model tiers, least capable first."},
	"config.File.pools":              {doc: "Workers for models outside the tiers."},
	"config.File.models":             {doc: "Aliases: model names that clients ask for, each with the tier, pool or model it stands for. `*` in a name is any run of characters, `?` is one; exact names go before patterns, longer patterns before shorter ones. The target `classify` asks the classifier."},
	"config.File.classifier":         {doc: "Which tier a request goes to that leaves the choice to the gateway, by `auto` or another name that stands for `classify`."},
	"config.File.breaker":            {doc: "When a worker that fails gets no more requests, and for how long."},
	"config.File.health":             {doc: "How workers are asked whether they are up."},
	"config.File.retry":              {doc: "How often a request is tried. Nothing is tried again once content was sent."},
	"config.File.timeouts":           {doc: "How long each stage of a request may take."},
	"config.File.queue":              {doc: "How requests wait."},
	"config.File.routing_headers":    {doc: "Send the headers that explain a decision: X-Model-Tier, X-Tier-Reason, X-Routed-To, X-Route-Reason, X-Queue-Ms."},
	"config.File.cors":               {doc: "Which browser pages may call the data plane."},
	"config.File.store":              {doc: "Where what outlives the program is kept, and what several gateways share. No request waits for the database, and none is lost with either."},
	"config.File.gateways":           {doc: "How many gateways share the traffic. While no Redis counts for all of them, each enforces its part of every rate and of every bound on requests under way.", min: 1, max: 1000},
	"config.File.watch":              {doc: "Load this file again when it changes. SIGHUP and the admin plane do so at any time."},
	"config.File.trusted_proxies":    {doc: "Addresses and networks (CIDR) of proxies in front of the gateway. Of a request from one of them, X-Forwarded-For says who the client is; from anybody else the header says nothing."},
	"config.File.log":                {doc: "What is logged, as JSON lines: the program's own log on standard error, the access log on standard output."},

	"config.TLS.cert": {doc: "PEM file with the certificate and its chain. Read again when it changes."},
	"config.TLS.key":  {doc: "PEM file with the private key."},

	"config.Admin.listen":    {doc: "Address of the admin plane, host:port. May be the data plane's."},
	"config.Admin.tls":       {doc: "Certificate of the admin plane. Stays empty where both planes share an address."},
	"config.Admin.insecure":  {doc: "Serve the admin plane in plain text on an address that is not loopback."},
	"config.Admin.keys":      {doc: "Keys of the admin plane. Without any, here or in the database, it stays closed."},
	"config.AdminKey.name":   {doc: "Who holds the key.", required: true, fits: isName, pattern: namePattern, want: nameWant},
	"config.AdminKey.sha256": {doc: "SHA-256 of the key in hex: `printf %s \"$KEY\" | sha256sum | cut -d ' ' -f 1`. The key must not begin with `tw-` unless the gateway made it.", required: true, fits: isDigest, pattern: digestPattern, want: "64 hex digits", secret: true},

	"config.AdminKey.role": {doc: "`viewer` sees everything but secrets and changes nothing.", words: roleWords, inherits: "`admin`"},

	"config.Store.sql":       {doc: "Database of tenants, keys, the ledger, live overrides and the audit log: `sqlite://FILE`, `sqlite://:memory:` or `postgres://…`. A relative FILE lies beside this file. Empty: none; keys then stand in this file alone. May hold a password, which is shown nowhere.", zero: true, url: true},
	"config.Store.redis":     {doc: "Redis for limits that several gateways share, and for word of changes: `redis://…`, `rediss://…`, `redis+cluster://…` or `redis+sentinel://…`. Empty: none. May hold a password, which is shown nowhere.", url: true},
	"config.Store.retention": {doc: "How long the ledger keeps a row for each request. What tenants used by day stays. `0s` keeps all.", zero: true},

	"tenants.Price.input":        {doc: "A million tokens of the prompt.", max: maxPrice},
	"tenants.Price.cached_input": {doc: "A million tokens of the prompt that came from the engine's cache.", max: maxPrice, inherits: "`input`"},
	"tenants.Price.output":       {doc: "A million tokens of the answer.", max: maxPrice},

	"config.Metrics.listen": {doc: "Address of /metrics, host:port. Empty: the admin plane's."},

	"config.Auth.required":       {doc: "Ask for a key. `false` works only while every address is loopback."},
	"config.Auth.keys":           {doc: "Tenants and their keys."},
	"tenants.KeyConfig.name":     {doc: "The tenant. Several keys with the same rights may name the same one.", required: true, fits: isTenant, pattern: tenantPattern, want: "a name of up to 63 lower-case letters, digits and hyphens"},
	"tenants.KeyConfig.sha256":   {doc: "SHA-256 of the key in hex: `printf %s \"$KEY\" | sha256sum | cut -d ' ' -f 1`. The key must not begin with `tw-` unless the gateway made it.", required: true, fits: isDigest, pattern: digestPattern, want: "64 hex digits", secret: true},
	"tenants.KeyConfig.tiers":    {doc: "Tiers and pools that the key may use, by name. `[]`: none.", inherits: "all"},
	"tenants.KeyConfig.models":   {doc: "Model names that the key may ask by; `*` stands for any run of characters, `?` for one. `[]`: none.", inherits: "all"},
	"tenants.KeyConfig.priority": {doc: "The highest class that the key may ask for.", words: tenants.Classes, inherits: "`interactive`"},

	"tenants.KeyConfig.default_priority": {doc: "The class of a request that asks for none. Not above `priority`.", words: tenants.Classes, inherits: "`priority`"},
	"tenants.KeyConfig.limits":           {doc: "What the tenant may use, all its keys together. What is absent or 0 is not limited."},
	"tenants.KeyConfig.isolate_cache":    {doc: "Keep its prompts out of what other tenants share in the engines' caches."},
	"tenants.KeyConfig.degrade":          {doc: "When a budget is spent, go on with the cheapest tier that it may use, instead of refusing."},
	"tenants.KeyConfig.fail_closed":      {doc: "Refuse its requests while Redis is away, instead of limiting by what this gateway alone knows."},

	"tenants.Limits.rpm":          {doc: "Requests a minute.", max: maxCount},
	"tenants.Limits.rps":          {doc: "Requests a second.", max: maxCount},
	"tenants.Limits.burst":        {doc: "Requests at once. Needs `rpm` or `rps`.", max: maxCount, inherits: "a sixth of `rpm`, a second of `rps`"},
	"tenants.Limits.tpm":          {doc: "Tokens a minute, of prompts and answers.", max: maxUsage},
	"tenants.Limits.token_burst":  {doc: "Tokens at once. Needs `tpm`.", max: maxUsage, inherits: "a minute of `tpm`"},
	"tenants.Limits.concurrent":   {doc: "Requests under way.", max: maxCount},
	"tenants.Limits.day_tokens":   {doc: "Tokens a UTC day.", max: maxUsage},
	"tenants.Limits.month_tokens": {doc: "Tokens a UTC month.", max: maxUsage},
	"tenants.Limits.day_money":    {doc: "Money a UTC day, at the prices of tiers and pools."},
	"tenants.Limits.month_money":  {doc: "Money a UTC month, at the prices of tiers and pools."},

	"config.Drain.accept_grace": {doc: "How long new requests are still taken after /readyz began to refuse.", zero: true},
	"config.Drain.timeout":      {doc: "How long requests under way may take to end."},

	"routing.Config.name":              {doc: "The policy's name. A tier's or pool's section replaces the file's whole.", words: routing.Names, unbuilt: otherPolicies[:]},
	"routing.Config.epsilon":           {doc: "`chwbl`: how far over the mean load of its peers a worker may go, as a share of it.", max: noBound, inherits: "`0.25`", policy: "chwbl"},
	"routing.Config.slack":             {doc: "`chwbl`: requests that a worker may have over that, times the square root of the mean: with few requests the share alone would be less than one.", max: noBound, inherits: "`2`", policy: "chwbl"},
	"routing.Config.virtual_nodes":     {doc: "`chwbl`: points on the hash ring for each unit of weight. More spread prompts more evenly and take longer to set up.", min: 1, max: 1000, inherits: "`150`", policy: "chwbl"},
	"routing.Config.max_prefix_length": {doc: "`chwbl`: characters at the prompt's beginning that place it. 0 is no bound.", max: noBound, policy: "chwbl"},
	"routing.Config.no_key":            {doc: "`chwbl`: what places a request without a prompt. `model_hash` sends all requests for a model to the same worker.", words: noKeyWords, inherits: "`least_load`", policy: "chwbl"},
	"routing.Config.depth":             {doc: "`chwbl`: how much of the prompt places it. `adaptive` goes past what most of the traffic shares, `fixed` takes the first turn.", words: depthWords, inherits: "`adaptive`", policy: "chwbl"},

	"config.Tier.name":    {doc: "The tier's name, unique in the file.", required: true, fits: isName, pattern: namePattern, want: nameWant},
	"config.Tier.model":   {doc: "The model that its workers serve, as they name it.", required: true},
	"config.Tier.engine":  {doc: "What its workers run. `auto` is told from their answers.", words: engineWords, inherits: "`auto`"},
	"config.Tier.serves":  {doc: "The kinds of request that its workers answer.", words: dialectWords, inherits: "chat, completions, responses, messages, tokenize"},
	"config.Tier.context": {doc: "Tokens of prompt and answer together that its model takes. A request that does not fit moves to a higher tier, if the client did not ask for the model by name; one that surely fits nowhere is refused. 0 is not known and checks nothing.", max: noBound},
	"config.Tier.price":   {doc: "What its tokens cost, in units of money for each million.", inherits: "free"},
	"config.Tier.policy":  {doc: "The tier's routing policy.", inherits: "`policy`"},
	"config.Tier.queue":   {doc: "How the tier's requests wait.", inherits: "`queue`"},
	"config.Tier.health":  {doc: "How the tier's workers are checked, key by key.", inherits: "`health`"},
	"config.Tier.workers": {doc: "The tier's workers.", required: true},

	"config.PoolConfig.name":    {doc: "The pool's name, unique in the file.", required: true, fits: isName, pattern: namePattern, want: nameWant},
	"config.PoolConfig.model":   {doc: "The model that its workers serve, as they name it. Aliases of the pool are sent with this name."},
	"config.PoolConfig.models":  {doc: "Further models that its workers serve, such as adapters. Clients ask for them by these names."},
	"config.PoolConfig.engine":  {doc: "What its workers run. `auto` is told from their answers.", words: engineWords, inherits: "`auto`"},
	"config.PoolConfig.serves":  {doc: "The kinds of request that its workers answer. Needed by a pool with models.", words: dialectWords},
	"config.PoolConfig.paths":   {doc: "Other paths that go through to the pool untouched: exact, or with `*` at the end for everything below."},
	"config.PoolConfig.context": {doc: "Tokens of prompt and answer together that its models take. A request that does not fit is refused. 0 is not known and checks nothing.", max: noBound},
	"config.PoolConfig.price":   {doc: "What its tokens cost, in units of money for each million.", inherits: "free"},
	"config.PoolConfig.policy":  {doc: "The pool's routing policy.", inherits: "`policy`"},
	"config.PoolConfig.queue":   {doc: "How the pool's requests wait.", inherits: "`queue`"},
	"config.PoolConfig.health":  {doc: "How the pool's workers are checked, key by key.", inherits: "`health`"},
	"config.PoolConfig.workers": {doc: "The pool's workers.", required: true},

	"workers.Config.name":         {doc: "The worker's name, unique in the file, as X-Routed-To shows it.", required: true, fits: isName, pattern: namePattern, want: nameWant},
	"workers.Config.url":          {doc: "Where it listens: http://host:port, https://host/base or unix:///path. Without user and password.", required: true},
	"workers.Config.weight":       {doc: "Its share beside its peers. 0 takes no new requests. `round_robin` and `random` ignore all but 0.", max: 100, inherits: "`1`"},
	"workers.Config.max_inflight": {doc: "Requests that it works on at once. 0 is no bound.", max: noBound},
	"workers.Config.priority":     {doc: "Its group. A lower number is used first, a higher one only while every worker below it is down, resting or tried.", max: noBound},
	"workers.Config.models":       {doc: "Which of its tier's or pool's models it serves, such as the adapters that it has loaded.", inherits: "all"},
	"workers.Config.api_key_env":  {doc: "The environment variable that holds the worker's own bearer key.", fits: isVariable, pattern: `^[A-Za-z_][A-Za-z0-9_]*$`, want: "the name of an environment variable, not the key", secret: true},
	"workers.Config.health":       {doc: "How this worker is checked, key by key.", inherits: "the tier's or pool's `health`, then the file's"},

	"workers.Health.path":       {doc: "What is asked: a path, `auto` (/health, else /v1/models) or `off` (always up).", fits: isHealthPath, pattern: `^(auto|off|/.*)$`, want: "auto, off or a path that starts with /"},
	"workers.Health.interval":   {doc: "Time between two checks."},
	"workers.Health.timeout":    {doc: "How long a check may take. At most `interval`."},
	"workers.Health.down_after": {doc: "Failed checks in a row before the worker counts as down.", min: 1, max: 1000},
	"workers.Health.up_after":   {doc: "Good checks in a row before it counts as up again.", min: 1, max: 1000},

	"tiers.Rules.mode":          {doc: "`max`: the highest tier that the prompt's length, max_tokens or a keyword asks for. `first_match`: the first of these that asks for any.", words: modeWords},
	"tiers.Rules.prompt_tokens": {doc: "Prompt tokens that must be exceeded for a tier. A map that is given replaces the default one whole; `{}` turns the rule off.", max: noBound, inherits: "`16000` for the last tier, of three or more `4000` for the second"},
	"tiers.Rules.max_tokens":    {doc: "Requested output tokens that must be exceeded for a tier. A request that names no limit asks for nothing. A map that is given replaces the default one whole; `{}` turns the rule off.", max: noBound, inherits: "`2000` for the last tier, of three or more `500` for the second"},
	"tiers.Rules.preset":        {doc: "Built-in keywords: `groups` knows code, maths, logic, analysis and extraction, `lesson` is four groups of single words, `none` leaves your own keywords.", words: presetWords},
	"tiers.Rules.keywords":      {doc: "Groups of expressions, besides the preset's. A group counts once however often it matches."},
	"tiers.Rules.keyword_score": {doc: "What the weights of the matched groups must add up to for a tier; groups for a higher tier count for a lower one too. A map that is given replaces the default one whole; `{}` turns the rule off.", above: true, max: noBound, inherits: "`1` for the last tier and for those of `keywords`"},
	"tiers.Rules.default":       {doc: "The tier of requests that nothing else decides.", inherits: "the first tier"},
	"tiers.Rules.sticky":        {doc: "A chat does not fall to a lower tier while its cache is warm."},
	"tiers.Rules.unavailable":   {doc: "Where a request goes whose tier has no worker up: to the next tier `up` or `down`, or nowhere: `refuse`. Models asked for by their own name never move.", words: unavailableWords},
	"tiers.Keyword.tier":        {doc: "The tier that the group speaks for.", required: true},
	"tiers.Keyword.name":        {doc: "The group's name, as X-Tier-Reason shows it: keyword:name.", required: true, fits: isName, pattern: namePattern, want: nameWant},
	"tiers.Keyword.weight":      {doc: "What it adds to the tier's score.", above: true, max: noBound, inherits: "`1`"},
	"tiers.Keyword.in":          {doc: "Where it is looked for: `user` is the last user turn, `system` the system prompt.", words: placeWords, inherits: "user"},
	"tiers.Keyword.match":       {doc: "Regular expressions of RE2, matched without regard to case. In single quotes a backslash stays one.", required: true},
	"tiers.Sticky.enabled":      {doc: "Keep a chat at its tier."},
	"tiers.Sticky.idle":         {doc: "How long a chat is remembered after its last request."},

	"breaker.Config.consecutive_failures": {doc: "Failures in a row that take the worker out.", min: 1, max: 1000},
	"breaker.Config.failure_ratio":        {doc: "Share of failures within `window` that takes the worker out.", above: true, max: 1},
	"breaker.Config.min_requests":         {doc: "Requests within `window` before the share counts.", min: 1, max: noBound},
	"breaker.Config.window":               {doc: "How far back failures count."},
	"breaker.Config.open_for":             {doc: "How long a worker that was taken out gets nothing, spread by a tenth. A good health check ends it early, unless the worker was too slow or a probe has just failed all the same."},
	"breaker.Config.probes":               {doc: "Requests at once that try it after that, all of which must succeed.", min: 1, max: 10},
	"breaker.Config.probe_timeout":        {doc: "How long a probe may take to its first event. A longer one has failed."},
	"breaker.Config.slow":                 {doc: "When a worker counts as too slow to be used."},
	"breaker.Slow.factor":                 {doc: "How many times slower than its peers: by the median time to first token, each measured against what was predicted. 0 turns it off.", max: 1000},
	"breaker.Slow.min_samples":            {doc: "Streams before that median says anything. It is taken over the last 64 at most.", min: 5, max: 64},
	"breaker.Slow.p95_above":              {doc: "Also slow when 5 of 100 first tokens take longer than this. 0s turns it off.", zero: true},

	"config.Retry.attempts": {doc: "Attempts for each request, the first included.", min: 1, max: 5},
	"config.Retry.budget":   {doc: "Further attempts as a share of all requests. 3 a second are always allowed.", max: 1},

	"config.Timeouts.connect":      {doc: "To connect to a worker."},
	"config.Timeouts.first_byte":   {doc: "From the request sent to the first byte of the answer."},
	"config.Timeouts.idle":         {doc: "Between two pieces of an answer."},
	"config.Timeouts.total":        {doc: "For a whole request, by class."},
	"config.Timeouts.client_stall": {doc: "How long a client may leave an answer unread before it is dropped."},
	"config.Total.interactive":     {doc: "For interactive requests."},
	"config.Total.background":      {doc: "For background requests."},
	"config.Total.batch":           {doc: "For batch requests."},

	"config.Queue.heartbeat_after": {doc: "When a stream that has nothing to send yet is opened and kept alive with comments."},

	"config.CORS.origins": {doc: "Origins, such as https://app.example.com; `*` alone is any. Empty: none."},
	"config.CORS.max_age": {doc: "How long a browser may remember the permission.", zero: true},

	"config.Log.level":  {doc: "Least level that is logged.", words: levelWords},
	"config.Log.access": {doc: "Log one line a request."},
}
