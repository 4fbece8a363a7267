package telemetry

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestDroppedLogLinesAreCountedByLog(t *testing.T) {
	m := New("test")
	Observe(m, func() Logs { return Logs{Access: 3, Program: 1} })
	const name = "tierway_log_dropped_lines_total"
	want := "# HELP " + name + " Log lines that were dropped, by log (access, program): the reader of the log is " +
		"too slow or has exited, or the disk is full.\n# TYPE " + name + " counter\n" +
		name + "{log=\"access\"} 3\n" + name + "{log=\"program\"} 1\n"
	if err := testutil.GatherAndCompare(m.registry, strings.NewReader(want), name); err != nil {
		t.Error(err)
	}
}
