package decisions

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"

	"tierway/openai"
)

// attrs collects the attributes of spans and span events in one list.
type attrs struct {
	list  []attribute.KeyValue
	start int // start of the current span's or event's attributes
}

// next returns the attributes that were added since the last call.
func (a *attrs) next() []attribute.KeyValue {
	from := a.start
	a.start = len(a.list)
	return a.list[from:a.start:a.start]
}

// text adds a text that is not empty.
func (a *attrs) text(key attribute.Key, value string) {
	if value != "" {
		a.list = append(a.list, key.String(clean(value)))
	}
}

// number adds a number; count adds a number that is not 0.
func (a *attrs) number(key attribute.Key, value int64) { a.list = append(a.list, key.Int64(value)) }

func (a *attrs) count(key attribute.Key, value int64) {
	if value != 0 {
		a.number(key, value)
	}
}

// ms adds a duration, or another measurement, that is not 0.
func (a *attrs) ms(key attribute.Key, value float64) {
	if value != 0 {
		a.list = append(a.list, key.Float64(value))
	}
}

// yes adds a condition that is true.
func (a *attrs) yes(key attribute.Key, value bool) {
	if value {
		a.list = append(a.list, key.Bool(true))
	}
}

func (a *attrs) usage(u Usage) {
	if u != (Usage{}) {
		a.number(semconv.GenAIUsageInputTokensKey, u.Prompt)
		a.number(semconv.GenAIUsageOutputTokensKey, u.Output)
		a.number(semconv.GenAIUsageCacheReadInputTokensKey, u.Cached)
	}
}

// maxAttribute bounds an attribute's text: longer than any configured name.
const maxAttribute = 256

// clean returns a text that is safe in a span. Some texts come from clients, and a backend may
// reject a whole batch for one invalid UTF-8 text.
func clean(s string) string {
	plain := len(s) <= maxAttribute
	for i := 0; plain && i < len(s); i++ {
		plain = ' ' <= s[i] && s[i] <= '~'
	}
	if plain {
		return s
	}
	if len(s) > maxAttribute {
		s = strings.ToValidUTF8(s[:maxAttribute], "") + "…"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return utf8.RuneError
	}, s)
}

// asksModel reports whether the request generates or embeds with a model. Requests that pass
// unchanged, or that read a stored answer, do not.
func (t Trace) asksModel() bool {
	return t.Dialect != openai.Other.String() && t.Route != RouteOther && t.Rule != RuleStored
}

// operation returns the conventions' name for the request's dialect, or the dialect if they have
// none.
func (t Trace) operation() string {
	switch t.Dialect {
	case openai.Chat.String(), openai.Responses.String(), openai.Messages.String():
		return "chat"
	case openai.Completions.String():
		return "text_completion"
	}
	return t.Dialect
}

// provider returns the API that the worker speaks, as the conventions require if the provider is
// unknown.
func (t Trace) provider() string {
	if t.Dialect == openai.Messages.String() {
		return "anthropic"
	}
	return "openai"
}
