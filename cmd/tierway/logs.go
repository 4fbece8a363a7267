package main

import (
	"context"
	"io"
	"log/slog"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"tierway/spool"
	"tierway/telemetry"
)

const (
	// accessDelay is how late a line of the access log may come: a person who
	// watches does not notice, and lines share system calls.
	accessDelay = 200 * time.Millisecond
	// lastLines bounds how long the end of the program waits for a reader of its
	// logs that has stalled.
	lastLines = time.Second
	// repeatsASecond bounds the lines of one message: enough to see a pattern, and an
	// outage of everything writes a few megabytes an hour.
	repeatsASecond = 10
)

// logs are the two logs of a gateway. Writing to them never waits for their
// readers: lines that do not fit are dropped and counted.
type logs struct {
	log     *slog.Logger  // the program's own
	program *spool.Writer // what log writes to
	access  *spool.Writer // one line for each request; nil: they go to program
	stop    func()        // ends the counting of repeated messages
}

// openLogs returns logs that go to the two writers; access may be nil. They must be
// closed. From now on a reader that has left is an error of a write, which by default
// ends the process by SIGPIPE.
func openLogs(program, access io.Writer, level string) *logs {
	signal.Ignore(syscall.SIGPIPE)
	l := &logs{}
	l.program = spool.NewWriter(spool.WriterConfig{To: program, OnLoss: func(lost int64, over bool) { l.lost("program", lost, over) }})
	h := logHandler(l.program, level)
	l.log, l.stop = slog.New(h), counting(h)
	logOTel(l.log)
	if access != nil {
		l.access = spool.NewWriter(spool.WriterConfig{To: access, Delay: accessDelay,
			OnLoss: func(lost int64, over bool) { l.lost("access", lost, over) }})
	}
	return l
}

// lost logs that a log loses lines, or that it takes them again.
func (l *logs) lost(name string, lines int64, over bool) {
	if over {
		l.log.Warn("log output resumed", "log", name, "dropped", lines)
		return
	}
	l.log.Warn("dropping log lines; requests are not affected", "log", name,
		"cause", "the reader is too slow or gone, or the disk is full")
}

// dropped counts the lines that were lost, for a scrape.
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

// logHandler writes the program's own log as JSON lines. Of a message that repeats
// only some are written, and lines that count the others.
func logHandler(w io.Writer, level string) *telemetry.LogHandler {
	var l slog.Level
	if l.UnmarshalText([]byte(level)) != nil {
		l = slog.LevelInfo // check has refused every other word
	}
	return telemetry.NewLogHandler(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: l}), repeatsASecond)
}

// counting makes the handler write in time how many lines it left out, until stop,
// which writes the last counts.
func counting(h *telemetry.LogHandler) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var owned sync.WaitGroup
	owned.Go(func() { h.Run(ctx) })
	return func() {
		cancel()
		owned.Wait()
	}
}
