package server

import (
	"io"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"tierway/routing"
)

// accessLog writes one JSON line a request, in the form of log/slog's JSON
// handler. Lines are gathered and written together: a system call a line would
// cost more than everything else about it. It is safe for concurrent use.
type accessLog struct {
	mu  sync.Mutex
	to  io.Writer
	buf []byte
}

const (
	// accessBuffer is how much is gathered: some 100 lines.
	accessBuffer = 64 << 10
	// accessDelay is how late a line may come: soon enough for a person who
	// watches.
	accessDelay = 200 * time.Millisecond
)

func newAccessLog(to io.Writer) *accessLog {
	return &accessLog{to: to, buf: make([]byte, 0, accessBuffer+4096)} // and one more line
}

// write adds a request's line, made from its Decision alone.
func (l *accessLog) write(d *routing.Decision) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.buf = appendDecision(l.buf, d)
	if len(l.buf) >= accessBuffer {
		l.flushLocked()
	}
}

// flush writes what was gathered.
func (l *accessLog) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flushLocked()
}

func (l *accessLog) flushLocked() {
	if len(l.buf) > 0 {
		l.to.Write(l.buf) //nolint:errcheck // a full disk must not stop requests
		l.buf = l.buf[:0]
	}
}

// run flushes until stop is closed, and once more then.
func (l *accessLog) run(stop <-chan struct{}) {
	tick := time.NewTicker(accessDelay)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			l.flush()
		case <-stop:
			l.flush()
			return
		}
	}
}

// appendDecision appends a line with its newline.
func appendDecision(b []byte, d *routing.Decision) []byte {
	b = append(b, `{"time":"`...)
	b = d.Time.UTC().AppendFormat(b, time.RFC3339Nano)
	b = append(b, `","level":"`...)
	if d.Outcome == routing.Failed || d.Outcome == routing.Truncated {
		b = append(b, "WARN"...)
	} else {
		b = append(b, "INFO"...)
	}
	b = append(b, `","msg":"request"`...)
	b = appendText(b, "request_id", d.RequestID)
	b = appendText(b, "method", d.Method)
	b = appendText(b, "route", d.Route)
	b = appendNumber(b, "status", float64(d.Status))
	b = appendText(b, "outcome", string(d.Outcome))
	b = appendNumber(b, "duration_ms", d.DurationMs)
	b = appendText(b, "code", d.Code)
	b = appendText(b, "cause", d.Cause)
	b = appendNumber(b, "config_generation", float64(d.Generation))
	b = appendText(b, "limit", d.Limit)
	b = appendText(b, "shed", d.Shed)
	b = appendText(b, "tenant", d.Tenant)
	b = appendText(b, "key", d.Key)
	b = appendText(b, "class", d.Class)
	b = appendText(b, "asked_class", d.AskedClass)
	b = appendText(b, "dialect", d.Dialect)
	b = appendText(b, "requested_model", d.RequestedModel)
	b = appendText(b, "model", d.Model)
	b = appendText(b, "tier", d.Tier)
	b = appendText(b, "rule", d.Rule)
	b = appendText(b, "rule_note", d.RuleNote)
	b = appendText(b, "worker", d.Worker)
	b = appendText(b, "reason", d.Reason)
	if n := len(d.Attempts); n > 0 {
		b = appendNumber(b, "attempts", float64(n))
		b = appendNumber(b, "overhead_ms", d.OverheadMs)
	}
	if len(d.Attempts) > 0 || d.QueueMs > 0 {
		b = appendNumber(b, "queue_ms", d.QueueMs)
	}
	if d.Promoted {
		b = append(b, `,"promoted":true`...)
	}
	if d.Stream {
		b = append(b, `,"stream":true`...)
	}
	if d.TTFTMs > 0 {
		b = appendNumber(b, "ttft_ms", d.TTFTMs)
	}
	if u := d.Usage; u != (routing.Usage{}) {
		b = appendNumber(b, "prompt_tokens", float64(u.Prompt))
		b = appendNumber(b, "cached_tokens", float64(u.Cached))
		b = appendNumber(b, "output_tokens", float64(u.Output))
	}
	if d.Estimated {
		b = append(b, `,"estimated":true`...)
	}
	return append(b, "}\n"...)
}

// appendText appends a member, unless it is empty.
func appendText(b []byte, key, value string) []byte {
	if value == "" {
		return b
	}
	b = append(b, `,"`...)
	b = append(b, key...)
	b = append(b, `":"`...)
	for _, r := range value {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r < ' ' || r == 0x7f || r == 0x2028 || r == 0x2029:
			b = append(b, `\u`...)
			for shift := 12; shift >= 0; shift -= 4 {
				b = append(b, hexDigits[r>>shift&0xf])
			}
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}

func appendNumber(b []byte, key string, value float64) []byte {
	b = append(b, `,"`...)
	b = append(b, key...)
	b = append(b, `":`...)
	return strconv.AppendFloat(b, value, 'f', -1, 64)
}

// logAccess writes a request's line, if there is an access log.
func (s *Server) logAccess(d *routing.Decision) {
	if s.access != nil {
		s.access.write(d)
	}
}
