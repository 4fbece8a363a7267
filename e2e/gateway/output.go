package gateway

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"sync"
)

// output keeps what a process writes.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write keeps p.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// lines returns the JSON lines that are complete and have the message msg.
func (o *output) lines(msg string) []map[string]any {
	text := o.text()
	var out []map[string]any
	for line := range strings.Lines(text[:strings.LastIndexByte(text, '\n')+1]) {
		var fields map[string]any
		if json.Unmarshal([]byte(line), &fields) == nil && fields["msg"] == msg {
			out = append(out, fields)
		}
	}
	return out
}

// tail returns the last n lines.
func tail(text string, n int) string {
	all := slices.Collect(strings.Lines(text))
	return strings.Join(all[max(0, len(all)-n):], "")
}
