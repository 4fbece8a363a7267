package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"tierway/store"
	"tierway/telemetry"
	"tierway/tenants"
)

func TestRecoveredPanicIsCountedAndLoggedWithoutItsValue(t *testing.T) {
	log, metrics := &strings.Builder{}, telemetry.New("test")
	recoverer := NewRecoverer(slog.New(slog.NewJSONHandler(log, nil)), metrics)
	err := recoverer.Try("reading an answer", func() error { panic("a prompt") })
	if !errors.Is(err, errPanicked) || counted(metrics, "tierway_panics_total") != "1" {
		t.Errorf("%v, %s panics counted", err, counted(metrics, "tierway_panics_total"))
	}
	line := log.String()
	for _, want := range []string{`"msg":"recovered from a panic"`, `"work":"reading an answer"`, `panics_test.go`} {
		if !strings.Contains(line, want) {
			t.Errorf("the line has no %s: %s", want, line)
		}
	}
	if strings.Contains(line, "a prompt") || strings.Count(line, "\n") != 1 {
		t.Errorf("the log is %s", line)
	}
	if err := recoverer.Try("reading an answer", func() error { return io.EOF }); !errors.Is(err, io.EOF) {
		t.Errorf("a step's own error is %v", err)
	}
}

// TestPanicInADatabaseReadDoesNotEndTheLoop: here every read panics.
func TestPanicInADatabaseReadDoesNotEndTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newTestControl(t, "store: { sql: \"sqlite://:memory:\" }\n"+small)
		c.Bootstrap = nil
		ctx, stop := context.WithCancel(t.Context())
		var run sync.WaitGroup
		run.Go(func() { c.followDatabase(ctx) })
		for n := range 2 {
			if _, err := c.Stores.SQL.CreateTenant(ctx, store.Actor{}, tenants.Tenant{Name: fmt.Sprint("t", n)}); err != nil {
				t.Fatal(err)
			}
			c.Database.requestRead()
			synctest.Wait()
			if got := counted(c.metrics, "tierway_panics_total"); got != strconv.Itoa(n+1) {
				t.Fatalf("%s reads have panicked, want %d", got, n+1)
			}
		}
		stop()
		run.Wait()
		c.changing.Lock() // hangs if a panic has left it locked
		defer c.changing.Unlock()
	})
}
