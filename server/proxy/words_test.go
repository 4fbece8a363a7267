package proxy

import (
	"strings"
	"testing"
)

func TestFirstWordsAreOneReadableLine(t *testing.T) {
	for text, want := range map[string]string{
		"CUDA error:\n  out of memory\x1b[2J":       "CUDA error: out of memory [2J",
		"<html><h1>502 Bad Gateway</h1>\r\n</html>": "502 Bad Gateway",
		strings.Repeat("ä", wordsMost+1):            strings.Repeat("ä", wordsMost) + "…",
		strings.Repeat("ä", wordsMost):              strings.Repeat("ä", wordsMost),
		" \n":                                       "",
	} {
		if got := firstWords(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestWordsThatRepeatTheRequestAreFound, in any notation of its JSON.
func TestWordsThatRepeatTheRequestAreFound(t *testing.T) {
	for _, tt := range []struct {
		request, words string
		want           bool
	}{
		{`{"content":"the code is 1234"}`, "cannot answer: the code is 1234", true},
		{`{"content":"the code is 1234"}`, "out of memory", false},
		{`{"content":"der Code \u00e4ndert sich \u00fcberall"}`, "Fehler: Code ändert sich überall", true},
		{`{"content":"say \"open sesame\" now"}`, `got "open sesame"`, true},
		{`{"content":"密码是一二三四五六七"}`, "错误 密码是一二三四五六七", true},
		{`{"content":"\u5bc6\u7801\u662f\u4e00\u4e8c\u4e09"}`, "密码是一二三", true},
		{`{"content":"abc"}`, "abc", false}, // too short to be told from other words
		{"", "out of memory", false},
		{`{"model":"small"}`, "", false},
	} {
		if got := repeats([]byte(tt.request), tt.words); got != tt.want {
			t.Errorf("%s in %s: %v", tt.words, tt.request, got)
		}
	}
}
