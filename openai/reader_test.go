package openai

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

// parseError returns the error of Parse for an invalid body.
func parseError(t *testing.T, d Dialect, body string) *RequestError {
	t.Helper()
	r, err := Parse(d, []byte(body))
	if err == nil {
		t.Fatalf("Parse(%s, %q) accepts it: %+v", d, body, r)
	}
	var rejected *RequestError
	if !errors.As(err, &rejected) {
		t.Fatalf("Parse(%s, %q): %v is a %T", d, body, err, err)
	}
	return rejected
}

func TestMalformedJSONIsRejected(t *testing.T) {
	long := strings.Repeat("x", 40)
	for name, body := range map[string]string{
		"empty":                       ``,
		"only white space":            " \n\t ",
		"no object":                   `"chat"`,
		"array":                       `[{"model":"m"}]`,
		"null":                        `null`,
		"byte order mark":             "\ufeff{}",
		"unclosed object":             `{"a":1`,
		"unclosed after comma":        `{"a":1,`,
		"unclosed name":               `{"a`,
		"name without colon":          `{"a"}`,
		"name without value":          `{"a":}`,
		"name without value at end":   `{"a":`,
		"unquoted name":               `{a:1}`,
		"single quotes":               `{'a':1}`,
		"trailing comma in object":    `{"a":1,}`,
		"trailing comma in array":     `{"a":[1,]}`,
		"leading comma":               `{,"a":1}`,
		"two commas":                  `{"a":[1,,2]}`,
		"no comma in object":          `{"a":1 "b":2}`,
		"no comma in array":           `{"a":[1 2]}`,
		"array closed by brace":       `{"a":[1}}`,
		"object closed by bracket":    `{"a":{"b":1]}`,
		"unclosed array":              `{"a":[1`,
		"text after it":               `{} x`,
		"second value":                `{}{}`,
		"second brace":                `{}}`,
		"zero byte after it":          "{}\x00",
		"comment":                     `{/* c */}`,
		"vertical tab":                "{\v}",
		"no-break space":              "{\u00a0}",
		"NaN":                         `{"a":NaN}`,
		"Infinity":                    `{"a":Infinity}`,
		"-Infinity":                   `{"a":-Infinity}`,
		"leading zero":                `{"a":012}`,
		"negative leading zero":       `{"a":-01}`,
		"no fraction":                 `{"a":1.}`,
		"no whole":                    `{"a":.5}`,
		"plus sign":                   `{"a":+1}`,
		"only minus":                  `{"a":-}`,
		"no exponent":                 `{"a":1e}`,
		"no exponent after its sign":  `{"a":1e+}`,
		"hexadecimal":                 `{"a":0x1F}`,
		"True":                        `{"a":True}`,
		"cut true":                    `{"a":tru}`,
		"cut true at the end":         `{"a":tr`,
		"truer":                       `{"a":truer}`,
		"nil":                         `{"a":nil}`,
		"control character":           "{\"a\":\"x\ny\"}",
		"control character far in":    "{\"a\":\"" + long + "\x1f\"}",
		"zero byte in a string":       "{\"a\":\"\x00\"}",
		"control character in a name": "{\"a\tb\":1}",
		"escape of a":                 `{"a":"\a"}`,
		"escape of x":                 `{"a":"\x41"}`,
		"escape of a quote '":         `{"a":"\'"}`,
		"short unicode escape":        `{"a":"\u12"}`,
		"unicode escape beyond hex":   `{"a":"\u12G4"}`,
		"unicode escape in capitals":  `{"a":"\U0041"}`,
		"escape at the end":           `{"a":"\`,
		"unclosed string":             `{"a":"x`,
		"unclosed long string":        `{"a":"` + long,
		"lone continuation byte":      "{\"a\":\"\x80\"}",
		"overlong slash":              "{\"a\":\"\xc0\xaf\"}",
		"cut UTF-8":                   "{\"a\":\"\xe6\x9d\"}",
		"UTF-8 of a surrogate":        "{\"a\":\"\xed\xa0\x80\"}",
		"UTF-8 beyond Unicode":        "{\"a\":\"\xf4\x90\x80\x80\"}",
		"Latin-1":                     "{\"a\":\"" + long + "\xe9\"}",
		"Latin-1 in a name":           "{\"\xe9\":1}",
		"in a skipped value":          `{"unread":{"deep":[{"x":"\q"}]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			// Other requires no field, so only the JSON can be invalid.
			if got := parseError(t, Other, body); got.Reason != CodeInvalidJSON {
				t.Errorf("%q: %s, want %s", body, got.Reason, CodeInvalidJSON)
			} else if !strings.Contains(got.Message, " byte ") {
				t.Errorf("%q: %q does not name the byte", body, got.Message)
			}
			if json.Valid([]byte(body)) && utf8.ValidString(body) && body[0] == '{' {
				t.Errorf("encoding/json accepts %q", body)
			}
		})
	}
}

func TestEveryPrefixOfABodyIsRejected(t *testing.T) {
	body :=
		`{"model":"m\u0031","messages":[{"role":"user","content":"é\ud83d\ude00 x"}],"n":2,"stream":true,"x":[-1.5e+3,null,false,{}]}`
	if _, err := Parse(Chat, []byte(body)); err != nil {
		t.Fatal(err)
	}
	for n := range len(body) {
		got := parseError(t, Chat, body[:n])
		cutPair := strings.Contains(body[:n], `\ud83d`) && !strings.Contains(body[:n], `\ude00`)
		if want := map[bool]Code{false: CodeInvalidJSON, true: CodeInvalidValue}[cutPair]; got.Reason != want {
			t.Errorf("%q: %v", body[:n], got)
		}
	}
}

// An unpaired surrogate is no character and has no UTF-8 encoding. Engines return 500 for it.
func TestUnpairedSurrogateIsRejected(t *testing.T) {
	for name, tt := range map[string]struct {
		d           Dialect
		body, param string
		at          int
	}{
		"high half": {Chat, `{"model":"m","messages":[{"role":"user","content":"\ud800"}]}`, "messages",
			51},
		"low half": {Chat, `{"model":"m","messages":[{"role":"user","content":"x\uDFFFx"}]}`, "messages",
			52},
		"halves in the wrong order": {Chat, `{"model":"m","messages":[{"role":"user","content":"\ude00\ud83d"}]}`,
			"messages", 51},
		"half before a pair": {Chat, `{"model":"m","messages":[{"role":"user","content":"\ud83d\ud83d\ude00"}]}`,
			"messages", 51},
		"half after a pair": {Chat, `{"model":"m","messages":[{"role":"user","content":"\ud83d\ude00\ude00"}]}`,
			"messages", 63},
		"before another escape":  {Completions, `{"model":"m","prompt":"\ud800\u0041"}`, "prompt", 23},
		"before a broken escape": {Completions, `{"model":"m","prompt":"\ud800\x"}`, "prompt", 23},
		"in a name":              {Chat, `{"model":"m","messages":[{"\udc00":1}]}`, "messages", 27},
		"in the model's name":    {Embeddings, `{"model":"\udc00","input":"x"}`, "model", 10},
		"in a tool's schema": {Messages, `{"model":"m","tools":[{"input_schema":{"enum":["\ud800"]}}]}`, "tools",
			48},
		"in a salt":              {Chat, `{"model":"m","cache_salt":"\ud800"}`, "cache_salt", 27},
		"in an unread field":     {Chat, `{"model":"m","metadata":{"a":"\ud800"}}`, "", 30},
		"in a field's own name":  {Responses, `{"a\ud800":1}`, "", 3},
		"in a pass-through body": {Other, `{"priority":1,"x":["\ud800"]}`, "", 20},
	} {
		t.Run(name, func(t *testing.T) {
			got := parseError(t, tt.d, tt.body)
			if got.Reason != CodeInvalidValue || got.Param != tt.param ||
				!strings.Contains(got.Message, fmt.Sprintf(" at byte %d", tt.at)) ||
				!strings.HasPrefix(got.Message, tt.param) || !strings.Contains(got.Message, "send both halves") {
				t.Errorf("%s: %+v", tt.body, got)
			}
		})
	}
}

func TestValidJSONIsAccepted(t *testing.T) {
	for _, body := range []string{
		`{}`, " {\r\n\t} ", `{"":""}`, `{"a":{},"b":[],"c":[[],{}]}`,
		`{"a":[0,-0,1.5,1E9,1e-9,-1.25E+10,1e400,123456789012345678901234567890]}`,
		`{"a":[true,false,null]}`, `{"a":"\"\\\/\b\f\n\r\t\u0000\uFFFF"}`,
		`{"a":"\ud83d\ude00\ud800\udc00x\ufffd\uFFFD\udbff\udfff"}`, "{\"a\":\"é東😀\u007f\u2028\"}",
		`{"a":1,"a":2}`,
	} {
		if _, err := Parse(Other, []byte(body)); err != nil {
			t.Errorf("%s: %v", body, err)
		}
	}
}

func TestNestingIsLimited(t *testing.T) {
	nest := func(open, closing string, n int) string {
		return `{"a":` + strings.Repeat(open, n) + `1` + strings.Repeat(closing, n) + `}`
	}
	for name, shape := range map[string][2]string{"arrays": {"[", "]"}, "objects": {`{"a":`, "}"}} {
		t.Run(name, func(t *testing.T) {
			if _, err := Parse(Other, []byte(nest(shape[0], shape[1], 63))); err != nil {
				t.Errorf("64 deep: %v", err)
			}
			if got := parseError(t, Other, nest(shape[0], shape[1], 64)); got.Reason != CodeJSONTooDeep {
				t.Errorf("65 deep: %v", got)
			}
			if _, err := parseFor(Other, []byte(nest(shape[0], shape[1], 3)), "", 3); err == nil {
				t.Error("4 levels are accepted with a limit of 3")
			}
			if got := parseError(t, Other, `{"a":`+strings.Repeat(shape[0], 1_000_000)); got.Reason != CodeJSONTooDeep {
				t.Errorf("a million deep: %v", got)
			}
		})
	}
	for _, body := range []string{
		`{"model":"m","messages":[],"tools":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`,
		`{"model":"m","messages":` + strings.Repeat("[", 64) + strings.Repeat("]", 64) + `}`,
		`{"model":"m","response_format":` + strings.Repeat(`{"a":`, 64) + `1` + strings.Repeat("}", 64) + `}`,
		`{"model":"m","messages":[{"source":` + strings.Repeat(`{"content":`, 64) + `1` + strings.Repeat("}", 64) + `}]}`,
	} {
		got := parseError(t, Messages, strings.Replace(body, `"messages":[],`, "", 1))
		if got.Reason != CodeJSONTooDeep {
			t.Errorf("%v", got)
		}
	}
}

func TestDepthCountsOpenContainersOnly(t *testing.T) {
	body := `{"a":[` + strings.Repeat(`[],{"b":[]},`, 1000) + `1]}`
	if _, err := parseFor(Other, []byte(body), "", 4); err != nil {
		t.Error(err)
	}
}

func TestPlainEndFindsTheFirstOtherByte(t *testing.T) {
	for _, c := range []byte{0, 1, 0x1f, '"', '\\', 0x80, 0xff} {
		for n := range 40 {
			b := []byte(strings.Repeat("a~ !#[]\x7f", 5))
			b[n] = c
			for from := range n + 1 {
				if got := plainEnd(b, from); got != n {
					t.Fatalf("byte %#x at %d, search from %d: found at %d", c, n, from, got)
				}
			}
			if n+1 < len(b) {
				b[n+1] = '"' // the first one counts
				if got := plainEnd(b, 0); got != n {
					t.Fatalf("byte %#x at %d before a quote: found at %d", c, n, got)
				}
			}
		}
	}
	for c := range 256 {
		isPlain := c >= 0x20 && c < 0x80 && c != '"' && c != '\\'
		for _, b := range [][]byte{{byte(c)}, []byte("1234567" + string([]byte{byte(c)}))} {
			if got := plainEnd(b, 0) == len(b); got != isPlain {
				t.Errorf("byte %#x: plain is %v", c, got)
			}
		}
	}
}

// The decoded text is that of encoding/json.
func TestStringSizesAreThoseOfTheDecodedText(t *testing.T) {
	for _, raw := range []string{
		`""`, `"plain text that is longer than eight bytes"`, `"é東😀"`, `"\u00e9\u6771\ud83d\ude00"`,
		`"\ufffd"`, `"\ud800\udc00\udbff\udfff"`, `"a\nb\"c\\d\/e"`,
		`"\u0041\u007f\u0080\uffff"`, "\"mixed \\u00e9 é \\n 東京 \\ud83d\\ude00 tail tail tail\"",
	} {
		var want string
		if err := json.Unmarshal([]byte(raw), &want); err != nil {
			t.Fatal(err)
		}
		s := Reader{b: []byte(raw), strict: true}
		s.Str()
		got := s.chars
		if s.bad || s.i != len(raw) {
			t.Fatalf("%s: stopped at %d: %v", raw, s.i, s.fail)
		}
		ascii := 0
		for i := range len(want) {
			if want[i] < utf8.RuneSelf {
				ascii++
			}
		}
		if got.bytes != len(want) || got.ascii != ascii || got.wide != utf8.RuneCountInString(want)-ascii {
			t.Errorf("%s: %+v, want %d bytes, %d ASCII of %d characters", raw, got, len(want), ascii,
				utf8.RuneCountInString(want))
		}
		if whole := string(decoded([]byte(raw[1:len(raw)-1]), 1<<20)); whole != want {
			t.Errorf("%s: %q, want %q", raw, whole, want)
		}
		for limit := range len(want) {
			cut := string(decoded([]byte(raw[1:len(raw)-1]), limit))
			if len(cut) > limit || !strings.HasPrefix(want, cut) || !utf8.ValidString(cut) {
				t.Errorf("%s cut to %d: %q", raw, limit, cut)
			}
		}
	}
}
