package openai

import (
	"strings"
	"time"
)

// Quoted prepares a client's text for a message: in backticks, cut to 128 bytes, and without
// control characters.
func Quoted(s string) string {
	const limit = 128 // the longest model names have some 90 bytes
	if len(s) > limit {
		s = s[:limit] + "…"
	}
	return "`" + strings.ToValidUTF8(strings.Map(printable, s), "?") + "`"
}

// printable maps characters that could forge a line or a colour to a question mark.
func printable(r rune) rune {
	if r < ' ' || r == 0x7f || r == '`' {
		return '?'
	}
	return r
}

// MediaType returns the media type of a Content-Type in lower case, without parameters.
func MediaType(v string) string {
	v, _, _ = strings.Cut(v, ";")
	return strings.ToLower(strings.TrimSpace(v))
}

// ShortDuration formats a duration like OpenAI's headers: 12ms, 1.5s, 6m0s. It rounds up to
// milliseconds below a second, to tenths of a second below a minute, and to seconds above.
func ShortDuration(d time.Duration) string {
	switch {
	case d <= 0:
		return "0s"
	case d < time.Second:
		return ((d + time.Millisecond - 1) / time.Millisecond * time.Millisecond).String()
	case d < time.Minute:
		return ((d + 100*time.Millisecond - 1) / (100 * time.Millisecond) * (100 * time.Millisecond)).String()
	}
	return ((d + time.Second - 1) / time.Second * time.Second).String()
}
