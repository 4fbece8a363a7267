package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"tierway/server"
)

const (
	// cutExitLimit limits how long the process lives after the second signal: frames to clients that do not read
	// take 1.5 s, and the rest is for rows, records and spans. Only a database that hangs needs longer.
	cutExitLimit = 10 * time.Second
	// interrupted is the exit status after a second signal, as shells report an interrupt.
	interrupted = 130
)

// shutdown ends a gateway at SIGTERM and SIGINT. The first signal starts its drain, the second one cuts the
// drain, and a third one ends the process at once.
type shutdown struct {
	gateway atomic.Pointer[server.Server] // nil until it is built
	log     *slog.Logger
	clear   func() // removes what must not outlive the process
	flush   func() // writes the buffered log lines
	cut     atomic.Bool
}

// signals returns a context that ends at the first signal. The caller must call stop.
func (e *shutdown) signals(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancel(parent)
	ch := make(chan os.Signal, 3)
	signal.Notify(ch, syscall.SIGTERM, os.Interrupt)
	go func() {
		for _, act := range []func(){cancel, e.cutRequests, func() { os.Exit(interrupted) }} {
			if _, received := <-ch; received {
				act()
			}
		}
	}()
	return ctx, func() {
		signal.Stop(ch)
		close(ch)
		cancel()
	}
}

// cutRequests cuts the requests in flight. Before there is a gateway, it ends the process.
func (e *shutdown) cutRequests() {
	e.clear()
	s := e.gateway.Load()
	if s == nil {
		os.Exit(interrupted)
	}
	e.cut.Store(true)
	s.Cut("a second signal")
	time.AfterFunc(cutExitLimit, func() {
		e.log.Error("ending before all usage rows, records and spans are written", "cause", "a second signal",
			"waited", cutExitLimit.String())
		e.flush()
		os.Exit(interrupted)
	})
}

// status returns the result of a gateway that has ended with err.
func (e *shutdown) status(err error) error {
	if err == nil && e.cut.Load() {
		return exit(interrupted)
	}
	return err
}
