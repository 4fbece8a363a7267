package prompt

import (
	"slices"
	"unicode/utf8"

	"tierway/openai"
)

// excerpt collects texts of a body, one per line, and keeps their beginning and end.
type excerpt struct {
	openai.Reader
	dst   []byte
	most  int  // bytes that are kept at either end
	end   int  // end of the beginning in dst
	cut   bool // text between beginning and end was dropped
	parts int
}

func newExcerpt(r *openai.Request, dst []byte, most int) excerpt {
	// No text is longer than its body, and twice this is still an int.
	most = min(max(most, 0), len(r.Body))
	return excerpt{Reader: r.Reader(), dst: dst, most: most, end: len(dst) + most}
}

func (t *excerpt) empty() bool { return t.parts == 0 }

// add adds one text.
func (t *excerpt) add(raw []byte) {
	if len(raw) == 0 || t.most == 0 {
		return
	}
	if t.parts++; t.parts > 1 {
		t.plain([]byte{'\n'})
	}
	if !openai.Escaped(raw) {
		t.plain(raw)
		return
	}
	// A text has about one escape per line, so a few lines are decoded at once.
	const most = 512
	var buf [most + utf8.UTFMax]byte
	for len(raw) > 0 {
		var n int
		n, raw = openai.Unescape(buf[:], raw, 0, most)
		t.plain(buf[:n])
	}
}

// plain adds decoded text, which need not end at a character boundary.
func (t *excerpt) plain(p []byte) {
	n := min(len(p), max(t.end-len(t.dst), 0))
	t.dst, p = append(t.dst, p[:n]...), p[n:]
	if len(p) > t.most {
		t.dst, p, t.cut = t.dst[:t.end], p[len(p)-t.most:], true
	}
	t.dst = append(t.dst, p...)
	if from := len(t.dst) - t.most; from > t.end+t.most { // the end is twice its maximum length
		t.dst, t.cut = append(t.dst[:t.end], t.dst[from:]...), true
	}
}

// text returns the collected text.
func (t *excerpt) text() []byte {
	from := len(t.dst) - t.most
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
