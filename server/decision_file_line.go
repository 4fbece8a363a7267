package server

import (
	"encoding/json"
	"math"
	"strconv"
	"time"

	"tierway/decisions"
	"tierway/routing"
)

// recordLine writes records as encoding/json does, byte for byte, in a third of its
// time and without garbage: every request of a busy gateway is written.
type recordLine struct {
	b   []byte
	bad bool // a number that JSON has not
}

// appendRecord appends a record as JSON, without a newline; it reports false, and
// appends nothing, of one that JSON cannot hold.
func appendRecord(b []byte, d *decisions.Decision) ([]byte, bool) {
	l := recordLine{b: append(b, '{')}
	l.count("schema_version", int64(d.SchemaVersion))
	l.key("time")
	l.b = append(d.Time.AppendFormat(append(l.b, '"'), time.RFC3339Nano), '"')
	l.text("request_id", d.RequestID)
	l.count("config_generation", d.Generation)
	l.some("tenant", d.Tenant)
	l.some("key", d.Key)
	l.some("class", d.Class)
	l.some("asked_class", d.AskedClass)
	l.text("method", d.Method)
	l.text("route", d.Route)
	l.some("trace_id", d.TraceID)
	l.some("dialect", d.Dialect)
	l.flag("stream", d.Stream)
	l.some("requested_model", d.RequestedModel)
	l.some("model", d.Model)
	l.some("tier", d.Tier)
	l.some("rule", d.Rule)
	l.some("rule_note", d.RuleNote)
	l.features(&d.Features)
	l.some("policy", d.Policy)
	l.some("worker", d.Worker)
	l.some("reason", d.Reason)
	l.attempts(d.Attempts)
	l.choice("refused_choice", d.Refused)
	l.flag("promoted", d.Promoted)
	l.course(d)
	if l.bad {
		return b, false
	}
	return append(l.b, '}'), true
}

// course writes how the request went.
func (l *recordLine) course(d *decisions.Decision) {
	l.counted("prompt_tokens_estimate", d.PromptTokens)
	l.counted("max_tokens", d.MaxTokens)
	l.usage(d.Usage)
	l.flag("estimated", d.Estimated)
	l.number("queue_ms", d.QueueMs)
	l.measured("ttft_ms", d.TTFTMs)
	l.number("duration_ms", d.DurationMs)
	l.number("overhead_ms", d.OverheadMs)
	l.text("outcome", string(d.Result))
	l.count("status", int64(d.Status))
	l.some("code", d.Code)
	l.some("limit", d.Limit)
	l.some("shed", d.Shed)
	l.some("cause", d.Cause)
}

func (l *recordLine) features(f *decisions.Features) {
	before := len(l.b)
	l.open("features", '{')
	began := len(l.b)
	l.some("header", f.Header)
	l.flag("classified", f.Classified)
	l.counted("estimated_tokens", f.Estimate)
	l.counted("counted_tokens", f.Counted)
	l.counted("user_text_bytes", int64(f.UserTextBytes))
	if len(f.Groups) > 0 {
		l.open("groups", '[')
		for _, g := range f.Groups {
			l.comma()
			l.quote(g)
		}
		l.b = append(l.b, ']')
	}
	l.flag("limit_required", f.LimitRequired)
	l.flag("tools", f.Tools)
	l.flag("media", f.Media)
	l.hash("session", f.Session)
	l.hash("model", f.Model)
	l.hash("prefix", f.Prefix)
	if len(f.Chain) > 0 {
		l.open("chain", '[')
		for _, k := range f.Chain {
			l.comma()
			l.b = append(appendHash(append(l.b, '"'), k.Hash), ':')
			l.b = append(strconv.AppendInt(l.b, k.End, 10), '"')
		}
		l.b = append(l.b, ']')
	}
	l.counted("blocks", int64(f.Blocks))
	if len(l.b) == began {
		l.b = l.b[:before]
		return
	}
	l.b = append(l.b, '}')
}

func (l *recordLine) attempts(all []decisions.Attempt) {
	if len(all) == 0 {
		return
	}
	l.open("attempts", '[')
	for i := range all {
		a := &all[i]
		l.object()
		l.text("worker", a.Worker)
		l.text("reason", a.Reason)
		l.number("at_ms", a.AtMs)
		l.measured("queue_ms", a.QueueMs)
		l.measured("selection_us", a.SelectionUs)
		l.counted("status", int64(a.Status))
		l.some("error", a.Error)
		l.some("error_type", a.ErrorType)
		l.number("duration_ms", a.DurationMs)
		l.measured("first_at_ms", a.FirstAtMs)
		l.measured("end_at_ms", a.EndAtMs)
		l.count("predicted_cached_tokens", a.Predicted)
		l.usage(a.Usage)
		l.hash("span", a.Span)
		l.choice("choice", a.Choice)
		l.b = append(l.b, '}')
	}
	l.b = append(l.b, ']')
}

func (l *recordLine) choice(name string, c *routing.Choice) {
	if c == nil {
		return
	}
	l.open(name, '{')
	l.text("policy", c.Policy)
	l.hash("key", c.Key)
	l.some("key_of", c.KeyOf)
	l.measured("memory", c.Memory)
	l.counted("halved", int64(c.Halved))
	l.key("rand")
	l.b = append(appendHash(append(l.b, '"'), uint64(c.Rand)), '"')
	l.count("prompt_tokens", c.PromptTokens)
	l.count("expected_output_tokens", c.OutputTokens)
	l.measured("waited_ms", c.WaitedMs)
	l.flag("waits", c.Waits)
	l.flag("held", c.Held)
	l.some("runner_up", c.RunnerUp)
	l.count("seen", int64(c.Seen))
	if c.Candidates == nil {
		l.key("candidates")
		l.b = append(l.b, "null}"...)
		return
	}
	l.open("candidates", '[')
	for i := range c.Candidates {
		l.candidate(&c.Candidates[i])
	}
	l.b = append(l.b, "]}"...)
}

func (l *recordLine) candidate(c *routing.Candidate) {
	l.object()
	l.text("worker", c.Worker)
	l.count("index", int64(c.Index))
	l.number("score", c.Score)
	l.some("passed", c.Passed)
	l.count("weight", int64(c.Weight))
	l.count("inflight", int64(c.Inflight))
	l.counted("max_inflight", int64(c.MaxInflight))
	l.flag("full", c.Full)
	l.count("pending_tokens", c.PendingTokens)
	l.count("output_tokens", c.OutputTokens)
	l.count("overlap_tokens", c.Overlap)
	l.counted("waiting", int64(c.Waiting))
	l.measured("kv_usage", c.KVUsage)
	l.number("prefill_rate", c.Rate)
	if !c.Terms.IsZero() {
		l.key("terms")
		text, err := c.Terms.MarshalJSON()
		l.b, l.bad = append(l.b, text...), l.bad || err != nil
	}
	l.b = append(l.b, '}')
}

func (l *recordLine) usage(u decisions.Usage) {
	if u != (decisions.Usage{}) {
		l.open("usage", '{')
		l.count("prompt", u.Prompt)
		l.count("cached", u.Cached)
		l.count("output", u.Output)
		l.b = append(l.b, '}')
	}
}

// comma separates what comes from what was before it.
func (l *recordLine) comma() {
	if last := l.b[len(l.b)-1]; last != '{' && last != '[' {
		l.b = append(l.b, ',')
	}
}

func (l *recordLine) key(name string) {
	l.comma()
	l.b = append(append(append(l.b, '"'), name...), `":`...)
}

func (l *recordLine) open(name string, bracket byte) {
	l.key(name)
	l.b = append(l.b, bracket)
}

func (l *recordLine) object() {
	l.comma()
	l.b = append(l.b, '{')
}

// text, count and number are always there; some, counted, measured, hash and flag
// are not where they have nothing to say.
func (l *recordLine) text(name, value string) {
	l.key(name)
	l.quote(value)
}

func (l *recordLine) some(name, value string) {
	if value != "" {
		l.text(name, value)
	}
}

func (l *recordLine) quote(value string) {
	for i := range len(value) {
		if c := value[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			text, err := json.Marshal(value)
			l.b, l.bad = append(l.b, text...), l.bad || err != nil
			return
		}
	}
	l.b = append(append(append(l.b, '"'), value...), '"')
}

func (l *recordLine) count(name string, value int64) {
	l.key(name)
	l.b = strconv.AppendInt(l.b, value, 10)
}

func (l *recordLine) counted(name string, value int64) {
	if value != 0 {
		l.count(name, value)
	}
}

func (l *recordLine) number(name string, value float64) {
	l.key(name)
	switch size := math.Abs(value); {
	case math.IsNaN(value) || math.IsInf(value, 0):
		l.bad = true
	case size == math.Trunc(size) && size < 1<<53 && !(value == 0 && math.Signbit(value)): // most of them
		l.b = strconv.AppendInt(l.b, int64(value), 10)
	case size >= 1e-6 && size < 1e21: // beyond that, exponents, as encoding/json has them
		l.b = strconv.AppendFloat(l.b, value, 'f', -1, 64)
	default:
		text, err := json.Marshal(value)
		l.b, l.bad = append(l.b, text...), l.bad || err != nil
	}
}

func (l *recordLine) measured(name string, value float64) {
	if value != 0 {
		l.number(name, value)
	}
}

func (l *recordLine) flag(name string, on bool) {
	if on {
		l.key(name)
		l.b = append(l.b, "true"...)
	}
}

func (l *recordLine) hash(name string, h routing.Hash) {
	if h != 0 {
		l.key(name)
		l.b = append(appendHash(append(l.b, '"'), uint64(h)), '"')
	}
}

func appendHash(b []byte, h uint64) []byte {
	for shift := 60; shift >= 0; shift -= 4 {
		b = append(b, hexDigits[h>>shift&0xf])
	}
	return b
}
