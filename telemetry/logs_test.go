package telemetry

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestDroppedLogLinesAreShownByLog(t *testing.T) {
	m := New("test")
	m.ObserveLogs(func() Logs { return Logs{Access: 3, Program: 1} })
	const name = "tierway_log_dropped_lines_total"
	want := "# HELP " + name + " " + logSeries[0].help + "\n# TYPE " + name + " counter\n" +
		name + "{log=\"access\"} 3\n" + name + "{log=\"program\"} 1\n"
	if err := testutil.GatherAndCompare(m.registry, strings.NewReader(want), name); err != nil {
		t.Error(err)
	}
}
