package prompt

import (
	"unicode/utf8"

	"tierway/openai"
)

// excerpt collects texts of a body, each on a line of its own, and keeps their
// beginning and their end.
type excerpt struct {
	openai.Reader
	dst   []byte
	base  int // bytes that were in dst before
	most  int // that are kept at either end
	tail  int // where the end begins in dst once the middle is left out, else 0
	parts int
}

func newExcerpt(r *openai.Request, dst []byte, most int) excerpt {
	// No text is longer than its body, and twice this is still an int.
	return excerpt{Reader: r.Reader(), dst: dst, base: len(dst), most: min(max(most, 0), len(r.Body))}
}

func (t *excerpt) empty() bool { return t.parts == 0 }

// add takes one more text.
func (t *excerpt) add(raw []byte) {
	if len(raw) == 0 || t.most == 0 {
		return
	}
	if t.parts++; t.parts > 1 {
		t.plain(newline[:])
	}
	if !openai.Escaped(raw) {
		t.plain(raw)
		return
	}
	// A text has about one escape a line, so that a few lines at once will do.
	const most = 512
	var buf [most + utf8.UTFMax]byte
	for len(raw) > 0 {
		var n int
		n, raw = openai.Unescape(buf[:], raw, 0, most)
		t.plain(buf[:n])
	}
}

var newline = [...]byte{'\n'}

// plain takes decoded text. What it is given need not end with a character.
func (t *excerpt) plain(p []byte) {
	if t.tail == 0 {
		n := min(len(p), 2*t.most-(len(t.dst)-t.base))
		t.dst = append(t.dst, p[:n]...)
		if p = p[n:]; len(p) == 0 {
			return
		}
		t.split()
	}
	if len(p) >= t.most {
		t.dst = append(t.dst[:t.tail], p[len(p)-t.most:]...)
		return
	}
	if len(t.dst)-t.tail+len(p) > 2*t.most {
		t.trim()
	}
	t.dst = append(t.dst, p...)
}

// split begins the end of a text that is longer than what may be kept.
func (t *excerpt) split() {
	head := t.base + t.most
	for head > t.base && !utf8.RuneStart(t.dst[head]) {
		head--
	}
	t.dst = append(t.dst, 0)
	copy(t.dst[head+1:], t.dst[head:])
	t.dst[head] = newline[0]
	t.tail = head + 1
}

// trim leaves no more than the last most bytes of the end.
func (t *excerpt) trim() {
	if from := len(t.dst) - t.most; from > t.tail {
		t.dst = append(t.dst[:t.tail], t.dst[from:]...)
	}
}

// text returns what was collected.
func (t *excerpt) text() []byte {
	if t.tail == 0 {
		return t.dst
	}
	t.trim()
	from := t.tail
	for from < len(t.dst) && !utf8.RuneStart(t.dst[from]) {
		from++
	}
	return append(t.dst[:t.tail], t.dst[from:]...)
}
