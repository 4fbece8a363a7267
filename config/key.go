package config

import (
	"math"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"tierway/openai"
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
	below    bool            // a number must be less than max
	zero     bool            // a duration or size may be 0, a text with a default empty
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
	headerPattern = `^[0-9A-Za-z-]+$`
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

// isHost reports whether s is a host's name, as a Host header has it without a port.
func isHost(s string) bool {
	const longest = 253 // characters of a name (RFC 1035)
	_, err := netip.ParseAddr(s)
	return err != nil && s != "" && len(s) <= longest && !strings.ContainsAny(s[:1], ".-") &&
		strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789._-") == ""
}

// isHeader reports whether s is the name of a header as they are in use: a proxy may drop
// one with other characters.
func isHeader(s string) bool {
	return s != "" && strings.Trim(s, "-0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") == ""
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

func engineFieldWords() []string { return slices.Clone(openai.EngineFields[:]) }

func roleWords() []string  { return []string{roleAdmin, "viewer"} }
func levelWords() []string { return []string{"debug", "info", "warn", "error"} }
