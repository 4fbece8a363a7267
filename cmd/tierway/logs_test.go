package main

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// OB-08: the program's log writes ten lines of a repeated message, and one line that counts the others.
func TestRepeatedLogLinesAreCounted(t *testing.T) {
	var out bytes.Buffer
	h := logHandler(&out, "warn")
	stop := countRepeats(h)
	log := slog.New(h)
	for range 300 {
		log.Error("a worker is away")
		log.Info("below the level")
	}
	stop()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 11 || !strings.Contains(lines[10], `"level":"ERROR","msg":"a worker is away","left_out":290}`) ||
		strings.Contains(out.String(), "below") {
		t.Errorf("%d lines:\n%s", len(lines), out.String())
	}
}

// left is a pipe without a reader, until another reader is set.
type left struct {
	mu    sync.Mutex
	again bool
}

func (l *left) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.again {
		return 0, syscall.EPIPE
	}
	return len(b), nil
}

func TestLossOfLogLinesIsLoggedAtItsStartAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		var reader left
		l := openLogs(&out, &reader, "info")
		for range 2 {
			_, _ = l.access.Write([]byte("a line\n"))
		}
		time.Sleep(time.Second)
		reader.mu.Lock()
		reader.again = true
		reader.mu.Unlock()
		_, _ = l.access.Write([]byte("a line\n"))
		time.Sleep(5 * time.Second)
		if d := l.dropped(); d.Access != 2 || d.Program != 0 {
			t.Errorf("dropped are %+v", d)
		}
		l.close()
		text := out.String()
		if strings.Count(text, "\n") != 2 ||
			!strings.Contains(text, `"msg":"dropping log lines; requests are not affected","log":"access"`) ||
			!strings.Contains(text, `"msg":"log output resumed","log":"access","dropped":2`) {
			t.Errorf("the log is %s", text)
		}
	})
}
