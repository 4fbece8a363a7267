package config

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"tierway/openai"
	"tierway/workers"
)

// maxHeader is the longest value of a header in bytes, as most servers accept.
const maxHeader = 8 << 10

// headerName is the syntax of a header's name (RFC 9110 §5.6.2).
var headerName = regexp.MustCompile("^[0-9A-Za-z!#$%&'*+.^_`|~-]+$")

// keyHeader returns the header with the key of a worker; "" without a key.
func keyHeader(engine string, w workers.Config) string {
	switch {
	case w.APIKeyEnv == "" && w.APIKeyFile == "":
		return ""
	case openai.Engine(engine) == openai.EngineAnthropic:
		return "X-Api-Key"
	}
	return "Authorization"
}

func (d *decoder) checkPoolHeaders(s section) {
	key, owner := "", ""
	for i, w := range s.Workers {
		if key = keyHeader(s.Engine, w); key != "" {
			owner = fmt.Sprintf("the key of %s.workers[%d]", s.path, i)
			break
		}
	}
	d.checkHeaders(s.path+".headers", s.Headers, owner, key)
}

// checkHeaders checks the headers at path. owner names the key that is sent in the header key; key is "" without one.
// No message shows a value, which may be a secret.
func (d *decoder) checkHeaders(path string, headers workers.Headers, owner, key string) {
	seen := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(headers)) {
		canonical := http.CanonicalHeaderKey(name)
		way, reserved := workers.ReservedHeader(name)
		message, hint := checkHeaderValue(headers[name])
		switch {
		case !headerName.MatchString(name):
			message, hint = "want a header's name of letters, digits and hyphens, got "+quote(name), "correct the name"
		case reserved:
			message, hint = "the gateway sets this header", way
		case key != "" && canonical == key:
			message, hint = owner+" is sent in this header", "remove the header, or api_key_env and api_key_file"
		case seen[canonical] != "":
			message, hint = "is the header "+seen[canonical]+", which is already set", "remove one of them"
		}
		if message != "" {
			d.report(join(path, name), message, hint).hide = true
		}
		seen[canonical] = cmp.Or(seen[canonical], name)
	}
}

// checkHeaderValue returns what is wrong with the value of a header, without the value.
func checkHeaderValue(value string) (message, hint string) {
	switch {
	case value == "":
		return "has no value", "write one, or remove the header"
	case len(value) > maxHeader:
		return fmt.Sprintf("the value has %d bytes", len(value)), fmt.Sprintf("servers accept at most %d", maxHeader)
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }):
		return "the value has a line break, a control character or a letter outside ASCII, which headers do not allow",
			"remove the character: VALUE=$(cat file) drops trailing line breaks"
	case strings.TrimSpace(value) != value:
		return "the value begins or ends with a blank", "remove the blank"
	}
	return "", ""
}

// restoreHeaders sets the headers that a draft has from ReadText, without their values, to the values of f.
func (f *File) restoreHeaders(from *File) {
	restore := func(headers, known workers.Headers) {
		for name, value := range headers {
			if value == hiddenText && known[name] != "" {
				headers[name] = known[name]
			}
		}
	}
	pools, servers := map[string]workers.Headers{}, map[string]workers.Headers{}
	for _, s := range from.sections() {
		pools[s.Name] = s.Headers
		for _, w := range s.Workers {
			servers[w.Name] = w.Headers
		}
	}
	for _, s := range f.sections() {
		restore(s.Headers, pools[s.Name])
		for _, w := range s.Workers {
			restore(w.Headers, servers[w.Name])
		}
	}
}
