package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// OB-08: the program's log writes ten lines of a message that repeats, and one that
// counts the others.
func TestTheLogCountsWhatRepeats(t *testing.T) {
	var out bytes.Buffer
	h := logHandler(&out, "warn")
	stop := counting(h)
	log := slog.New(h)
	for range 300 {
		log.Error("a worker is away")
		log.Info("below the level")
	}
	stop()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 11 || !strings.Contains(lines[10], `"level":"ERROR","msg":"a worker is away","left_out":290}`) || strings.Contains(out.String(), "below") {
		t.Errorf("%d lines:\n%s", len(lines), out.String())
	}
}
