package main

import (
	"context"
	"io"
	"log/slog"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel"

	"tierway/spool"
	"tierway/telemetry"
)

const (
	// accessDelay is the maximum delay of an access log line. Lines share system calls, and readers
	// do not notice the delay.
	accessDelay = 200 * time.Millisecond
	// lastLines limits how long shutdown waits for a stalled reader of the logs.
	lastLines = time.Second
	// repeatsASecond limits the lines of one message per second: enough to show a pattern, and a
	// complete outage writes only a few megabytes per hour.
	repeatsASecond = 10
)

// logs are the two logs of a gateway. Writing never waits for their readers: lines that do not
// fit are dropped and counted.
type logs struct {
	log     *slog.Logger  // the program's own
	program *spool.Writer // output of log
	access  *spool.Writer // one line per request; nil: written to program
	stop    func()        // ends the counting of repeated messages
}

// openLogs returns logs that write to the two writers; access may be nil. The caller must close
// them. From now on, a closed reader is a write error, which by default ends the process by
// SIGPIPE.
func openLogs(program, access io.Writer, level string) *logs {
	signal.Ignore(syscall.SIGPIPE)
	l := &logs{}
	l.program = spool.NewWriter(spool.WriterConfig{To: program, OnLoss: func(lost int64, over bool) {
		l.lost("program", lost, over)
	}})
	h := logHandler(l.program, level)
	l.log, l.stop = slog.New(h), countRepeats(h)
	logOTel(l.log)
	if access != nil {
		l.access = spool.NewWriter(spool.WriterConfig{To: access, Delay: accessDelay,
			OnLoss: func(lost int64, over bool) { l.lost("access", lost, over) }})
	}
	return l
}

// lost logs that a log drops lines, or that it resumed.
func (l *logs) lost(name string, lines int64, over bool) {
	if over {
		l.log.Warn("log output resumed", "log", name, "dropped", lines)
		return
	}
	l.log.Warn("dropping log lines; requests are not affected", "log", name,
		"cause", "the reader is too slow or gone, or the disk is full")
}

// dropped returns the number of dropped lines, for metrics.
func (l *logs) dropped() telemetry.Logs {
	d := telemetry.Logs{Program: l.program.Dropped()}
	if l.access != nil {
		d.Access = l.access.Dropped()
	}
	return d
}

func (l *logs) close() {
	if l.access != nil {
		l.access.Close(lastLines)
	}
	l.stop()
	l.program.Close(lastLines)
}

// logHandler returns the handler of the program's log, which writes JSON lines. It writes only
// some lines of a repeated message, and lines with the number of the others.
func logHandler(w io.Writer, level string) *telemetry.LogHandler {
	var l slog.Level
	if l.UnmarshalText([]byte(level)) != nil {
		l = slog.LevelInfo // the configuration check rejects other words
	}
	return telemetry.NewLogHandler(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: l}), repeatsASecond)
}

// countRepeats runs the handler's counter of dropped lines until stop, which writes the last
// counts.
func countRepeats(h *telemetry.LogHandler) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var owned sync.WaitGroup
	owned.Go(func() { h.Run(ctx) })
	return func() {
		cancel()
		owned.Wait()
	}
}

// logOTel sends the reports of the OpenTelemetry SDK to the program's log instead of standard
// error.
func logOTel(log *slog.Logger) {
	reports := otelLog{log}
	otel.SetLogger(logr.FromSlogHandler(reports))
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { reports.warn(err.Error()) }))
}

// otelLog is a slog.Handler for reports of the SDK. It omits their values and errors, because
// these may repeat environment variables with a collector's key.
type otelLog struct{ log *slog.Logger }

// Enabled is part of slog.Handler. The SDK's warnings have the level -1.
func (otelLog) Enabled(_ context.Context, level slog.Level) bool { return level >= -1 }

func (o otelLog) Handle(_ context.Context, report slog.Record) error {
	o.warn(report.Message)
	return nil
}

func (o otelLog) WithAttrs([]slog.Attr) slog.Handler { return o }

func (o otelLog) WithGroup(string) slog.Handler { return o }

func (o otelLog) warn(problem string) {
	o.log.Warn("OpenTelemetry SDK reported a problem; check the OTEL_* variables", "problem", problem)
}
