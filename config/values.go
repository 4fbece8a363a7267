package config

import (
	"fmt"
	"math"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"tierway/tenants"
)

// Size is a number of bytes. A file writes it as an integer or with a unit: B, KB, MB, GB in
// steps of 1000, KiB, MiB, GiB in steps of 1024.
type Size int64

// String returns the size with the largest binary unit that divides it.
func (s Size) String() string {
	for _, u := range sizeUnits {
		if u.bytes%1024 == 0 && s != 0 && int64(s)%u.bytes == 0 {
			return strconv.FormatInt(int64(s)/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// sizeUnits are the units of Size, longer names before their suffixes.
var sizeUnits = [...]struct {
	name  string
	bytes int64
}{
	{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10},
	{"GB", 1e9}, {"MB", 1e6}, {"KB", 1e3}, {"B", 1},
}

// parseSize parses a size; ok is false if text is not a size or exceeds 63 bits.
func parseSize(text string) (size Size, ok bool) {
	number, unit := text, int64(1)
	for _, u := range sizeUnits {
		if rest, found := strings.CutSuffix(text, u.name); found {
			number, unit = strings.TrimRight(rest, " "), u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n > math.MaxInt64/unit || n < -math.MaxInt64/unit {
		return 0, false
	}
	return Size(n * unit), true
}

func (d *decoder) scalar(n *yaml.Node, path string, k key, v reflect.Value) {
	if d.isNull(n) {
		hint := "remove the key to use the default"
		if v.Kind() == reflect.String {
			hint += `, or write "" for an empty value`
		}
		d.reportNode(n, path, "the key has no value", hint)
		return
	}
	if n.Kind != yaml.ScalarNode {
		d.reportNode(n, path, "want "+wanted(v.Type(), k)+", got "+kindOf(n), "")
		return
	}
	text, expanded, ok := d.expand(n, path)
	if !ok {
		return
	}
	if expanded {
		d.expanded[expansionKey(path, n.Value)] = text
		d.raw[path] = n.Value
	}
	// A quoted number is a string, except for ${…}, which YAML requires to be quoted.
	quoted := n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle|yaml.LiteralStyle|yaml.FoldedStyle) != 0 && !expanded
	hint, ok := setScalar(v, k, text, quoted)
	if !ok {
		shown := quote(n.Value)
		if k.secret {
			shown = fmt.Sprintf("%d characters", len(text))
		}
		d.reportNode(n, path, "want "+wanted(v.Type(), k)+", got "+shown, hint).hide = k.secret
	}
}

// setScalar stores text in v. If it does not fit, ok is false and hint may say how to correct
// it.
func setScalar(v reflect.Value, k key, text string, quoted bool) (hint string, ok bool) {
	switch {
	case v.Type() == reflect.TypeFor[time.Duration]():
		return setDuration(v, k, text)
	case v.Type() == reflect.TypeFor[Size]():
		size, ok := parseSize(text)
		if !ok || size < 0 || size == 0 && !k.zero {
			return "write a number with a unit, such as 32MiB, or bytes, such as 33554432", false
		}
		v.SetInt(int64(size))
		return "", true
	case v.Kind() == reflect.String:
		return setString(v, k, text)
	case quoted:
		if hint, ok = setScalar(reflect.New(v.Type()).Elem(), k, text, false); ok {
			hint = "remove the quotes"
		}
		return hint, false
	case v.Type() == reflect.TypeFor[tenants.Money]():
		amount, err := tenants.ParseMoney(text)
		if err != nil {
			return "write at most 9 decimals, such as 12.50", false
		}
		v.SetInt(int64(amount))
	case v.Kind() == reflect.Bool:
		if text != "true" && text != "false" {
			return "write true or false", false
		}
		v.SetBool(text == "true")
	case v.CanInt():
		i, err := strconv.ParseInt(text, 10, 64)
		if err != nil || !k.within(float64(i)) {
			return k.maximumHint(text), false
		}
		v.SetInt(i)
	case v.CanFloat():
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || !k.within(f) {
			return k.maximumHint(text), false
		}
		v.SetFloat(f)
	default:
		return "", false
	}
	return "", true
}

// within reports whether a number is within the bounds of the key.
func (k key) within(number float64) bool {
	return (number > k.min || number == k.min && !k.above) && (number < k.max || number == k.max && !k.below)
}

// maximumHint returns the hint for a number over the general maximum, which expected ranges
// omit.
func (k key) maximumHint(text string) string {
	if number, err := strconv.ParseFloat(text, 64); k.max == noBound && err == nil && number > k.max {
		return "the maximum is 2147483647"
	}
	return ""
}

// setDuration stores a duration above zero, or zero if the key allows it.
func setDuration(v reflect.Value, k key, text string) (hint string, ok bool) {
	dur, err := time.ParseDuration(text)
	if err != nil {
		if _, number := strconv.ParseFloat(text, 64); number == nil {
			return "add a unit, such as 5s", false
		}
		return "write a number with a unit, such as 250ms, 5s, 2m or 1h30m", false
	}
	if dur < 0 || dur == 0 && !k.zero {
		return "", false
	}
	v.SetInt(int64(dur))
	return "", true
}

// setString stores a string, which must be one of the key's words if it has any.
func setString(v reflect.Value, k key, text string) (hint string, ok bool) {
	if k.required && text == "" {
		return asHint(k.doc), false
	}
	if k.words != nil && !slices.Contains(k.words, text) {
		switch hint := policyHints[text]; {
		case hint != "" && slices.Contains(k.words, "chwbl"):
			return hint, false
		case nearest(text, k.words) == "":
			return "", false // the message lists the words
		}
		return DidYouMean(text, k.words), false
	}
	if k.form != "" && text != "" && !isForm(k.form, text) {
		return "", false
	}
	v.SetString(text)
	return "", true
}

func wanted(t reflect.Type, k key) string {
	above := " above 0"
	if k.zero {
		above = ""
	}
	switch {
	case forms[k.form].want != "":
		return forms[k.form].want
	case k.words != nil:
		return "one of " + strings.Join(k.words, ", ")
	case t == reflect.TypeFor[time.Duration]():
		return "a duration" + above
	case t == reflect.TypeFor[Size]():
		return "a size" + above
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t == reflect.TypeFor[tenants.Money]():
		return "an amount" + k.bounds()
	case isNumber(t) && t.Kind() == reflect.Float64:
		return "a number" + k.bounds()
	case isNumber(t):
		return "an integer" + k.bounds()
	}
	return "a string"
}

func (k key) bounds() string {
	plain := func(bound float64) string { return strconv.FormatFloat(bound, 'f', -1, 64) }
	low, high := plain(k.min), plain(k.max)
	switch {
	case k.below:
		return " of " + low + " or more and below " + high
	case k.above && k.max == noBound:
		return " above " + low
	case k.above:
		return " above " + low + ", up to " + high
	case k.max == noBound:
		return " of " + low + " or more"
	}
	return " from " + low + " to " + high
}

// isNumber reports whether keys of this type accept plain numbers.
func isNumber(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Int, reflect.Float64:
		return true
	case reflect.Int64:
		return t != reflect.TypeFor[time.Duration]() && t != reflect.TypeFor[Size]() && t != reflect.TypeFor[tenants.Money]()
	}
	return false
}

// expand replaces ${NAME} and ${NAME:-default} in a scalar; $${ is a literal ${. If a variable
// without default is unset or an expression is malformed, it reports a problem and ok is false.
func (d *decoder) expand(n *yaml.Node, path string) (text string, expanded, ok bool) {
	if !strings.Contains(n.Value, "${") { // a usual value
		return n.Value, false, true
	}
	if text, known := d.allowedExpansions[expansionKey(path, n.Value)]; known {
		return text, true, true
	}
	rest := n.Value
	var b strings.Builder
	ok = true
	for {
		i := strings.Index(rest, "${")
		if i < 0 {
			b.WriteString(rest)
			return b.String(), expanded, ok
		}
		if i > 0 && rest[i-1] == '$' {
			b.WriteString(rest[:i-1] + "${")
			rest = rest[i+2:]
			continue
		}
		b.WriteString(rest[:i])
		inside, after, closed := strings.Cut(rest[i+2:], "}")
		name, fallback, hasFallback := strings.Cut(inside, ":-")
		if !closed || !isForm("variable", name) {
			d.reportNode(n, path, "want ${NAME} or ${NAME:-default}, got "+quote(rest[i:]), "write $${ for a literal ${")
			return "", expanded, false
		}
		if d.draft {
			d.reportNode(n, path, "a draft may not read the environment variable "+shorten(name),
				"write the value; ${…} is allowed only where the live file has the same text under the same key")
			return "", true, false
		}
		value, set := d.env(name)
		// Values of fewer than six bytes are words such as "true", not secrets.
		if len(value) >= 6 {
			d.variables[name] = value
		}
		switch {
		case set && value != "":
			b.WriteString(inStoreURL(path, b.String(), value, after))
		case hasFallback:
			b.WriteString(fallback)
		case set:
		default:
			d.reportNode(n, path, "the environment variable "+name+" is not set", "set it, or write ${"+shorten(name)+
				":-default}")
			ok = false
		}
		expanded, rest = true, after
	}
}

// inStoreURL returns a variable's value between two parts of the URL at path. In the credentials of a store's URL it is
// percent-encoded, so that a password that looks encoded is taken literally. before is expanded, after is not.
func inStoreURL(path, before, value, after string) string {
	scheme, begun, inside := strings.Cut(before, "://")
	if path != "store.sql" && path != "store.redis" || !inside || scheme == "sqlite" || strings.Contains(begun, "@") ||
		!strings.Contains(after, "@") {
		return value
	}
	return strings.ReplaceAll(url.PathEscape(value), "@", "%40")
}
