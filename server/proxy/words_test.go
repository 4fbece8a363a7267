package proxy

import (
	"strings"
	"testing"

	"tierway/openai"
)

func TestFirstWordsAreOneReadableLine(t *testing.T) {
	for text, want := range map[string]string{
		"CUDA error:\n  out of memory\x1b[2J":       "CUDA error: out of memory [2J",
		"<html><h1>502 Bad Gateway</h1>\r\n</html>": "502 Bad Gateway",
		strings.Repeat("ä", wordsMost+1):            strings.Repeat("ä", wordsMost) + "…",
		strings.Repeat("ä", wordsMost):              strings.Repeat("ä", wordsMost),
		" \n":                                       "",
	} {
		if got := firstWords(text, wordsMost); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestWordsThatRepeatTheRequestAreFound, in any notation, with other blanks, and however short the user's text is.
func TestWordsThatRepeatTheRequestAreFound(t *testing.T) {
	for _, tt := range []struct {
		content, words string // content is a JSON string without its quotes
		want           bool
	}{
		{`the code is 1234`, "cannot answer: the code is 1234", true},
		{`the code is 1234`, "out of memory", false},
		{`der Code \u00e4ndert sich \u00fcberall`, "Fehler: Code ändert sich überall", true},
		{`der Code \u00e4ndert sich \u00fcberall`, `Fehler: Code \\u00E4ndert sich`, true},
		{`say \"open sesame\" now`, `got "open sesame"`, true},
		{`密码是一二三四五六七`, "错误 密码是一二三四五六七", true},
		{`\u5bc6\u7801\u662f\u4e00\u4e8c\u4e09`, "密码是一二三", true},
		{`мой пароль`, `bad input: \u043c\u043e\u0439 \u043f\u0430\u0440\u043e\u043b\u044c`, true},
		{`мой пароль`, `bad input: {\\\"content\\\":\\\"\\\\u043f\\\\u0430\\\\u0440\\\\u043e\\\\u043b\\\\u044c`, true},
		{`\u043c\u043e\u0439 \u043f\u0430\u0440\u043e\u043b\u044c`, `МОЙ&nbsp;&#1087;&#1072;&#1088;&#1086;&#1083;&#1100;`, true},
		{`мой пароль`, `b'\xd0\xbc\xd0\xbe\xd0\xb9 \xd0\xbf\xd0\xb0\xd1\x80\xd0\xbe\xd0\xbb\xd1\x8c'`, true},
		{`für alle Ämter`, `'f\xfcr alle \xc4mter'`, true},
		{`open\nthe\tvault`, "cannot parse: open the vault", true},
		{`open\nthe\tvault`, `cannot parse: 'open\nthe\tvault'`, true},
		{`open  the vault`, "cannot parse: open the vault", true},
		{`Open The Vault`, "cannot parse: OPEN-THE-VAULT", true},
		{`pw hunter2`, "cannot answer pw hunter2", true},
		{`hunter2`, "cannot answer (hunter2)", true},
		{`Remember: the key is hunter2, and be quiet`, "bad input: the key is hunter2", true},
		{`pw error 12`, "cannot answer pw error 12", true},
		{`密码`, "错误密码", true},
		{`42`, "cannot answer 42", true},
		{`42`, "HTTP 421", false},
		{`hi`, "the machine is on fire", false},
		{`abc`, "abc", true},
		{"", "out of memory", false},
		{`my <b>pass</b> <i>word`, "cannot read: my <b>pass</b> <i>word", true},
		{`my <b>pass</b> <i>word`, "cannot read: my <b>pass</b> <i>word" + strings.Repeat(" x", wordsMost), true},
		{`!@#$%^*()`, "cannot answer !@#$%^*()", true},
		{`?!`, "out of memory", false},
		{`How does the CUDA error with the internal server memory happen?`, "CUDA error: out of memory", false},
		{`Is an internal server error of the model bad?`, "Internal Server Error", false},
		{`The model is in the service that was loaded`, "The model `m-7` does not exist.", false},
		{`any`, "", false},
	} {
		body := `{"model":"small","messages":[{"role":"user","content":"` + tt.content + `"}]}`
		r, err := openai.Parse(openai.Chat, []byte(body))
		if err != nil {
			t.Fatal(err)
		}
		if got := wordsApart(r, tt.words); (got == "") != (tt.want || tt.words == "") {
			t.Errorf("%s in %s: %q", tt.words, tt.content, got)
		}
	}
}
