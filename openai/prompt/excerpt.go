package prompt

import (
	"slices"
	"unicode/utf8"

	"tierway/openai"
)

// excerpt collects texts of a body, one per line, and keeps their beginning and end.
type excerpt struct {
	openai.Reader
	search
	dst   []byte
	limit int  // bytes that are kept at either end
	end   int  // end of the beginning in dst
	cut   bool // text between beginning and end was dropped
	parts int
}

func newExcerpt(r *openai.Request, dst []byte, limit int) excerpt {
	// No text is longer than its body, and twice this is still an int.
	limit = min(max(limit, 0), len(r.Body))
	return excerpt{Reader: r.Reader(), search: search{left: searchLimit}, dst: dst, limit: limit, end: len(dst) + limit}
}

func (t *excerpt) empty() bool { return t.parts == 0 }

func (t *excerpt) addText(raw []byte) {
	if len(raw) == 0 || t.limit == 0 {
		return
	}
	if t.parts++; t.parts > 1 {
		t.addDecoded([]byte{'\n'})
	}
	if !openai.Escaped(raw) {
		t.addDecoded(raw)
		return
	}
	// A text has about one escape per line, so a few lines are decoded at once.
	const limit = 512
	var buf [limit + utf8.UTFMax]byte
	for len(raw) > 0 {
		var n int
		n, raw = openai.Unescape(buf[:], raw, 0, limit)
		t.addDecoded(buf[:n])
	}
}

// addDecoded adds decoded text, which need not end at a character boundary.
func (t *excerpt) addDecoded(p []byte) {
	n := min(len(p), max(t.end-len(t.dst), 0))
	t.dst, p = append(t.dst, p[:n]...), p[n:]
	if len(p) > t.limit {
		t.dst, p, t.cut = t.dst[:t.end], p[len(p)-t.limit:], true
	}
	t.dst = append(t.dst, p...)
	if from := len(t.dst) - t.limit; from > t.end+t.limit { // the end is twice its maximum length
		t.dst, t.cut = append(t.dst[:t.end], t.dst[from:]...), true
	}
}

func (t *excerpt) text() []byte {
	from := len(t.dst) - t.limit
	if !t.cut && from <= t.end {
		return t.dst
	}
	for from < len(t.dst) && !utf8.RuneStart(t.dst[from]) {
		from++
	}
	end := t.end
	if last, size := utf8.DecodeLastRune(t.dst[:end]); last == utf8.RuneError && size == 1 {
		for end--; end > 0 && !utf8.RuneStart(t.dst[end]); {
			end--
		}
	}
	return slices.Replace(t.dst, end, from, '\n')
}
