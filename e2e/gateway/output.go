package gateway

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"sync"
)

// Output collects the output of a process. The zero value is empty. It is safe for concurrent
// use.
type Output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write appends p.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

// String returns the output so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// lines returns the complete JSON lines with the message msg.
func (o *Output) lines(msg string) []map[string]any {
	text := o.String()
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
