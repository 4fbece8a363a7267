package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"tierway/config"
	"tierway/server/control"
	"tierway/store"
)

const (
	// watchEvery is the poll interval of a watched configuration. A change applies after two equal
	// reads, so it takes twice as long.
	watchEvery = time.Second
	// readPatience limits a read, which normally takes milliseconds. A blocked file system must not
	// delay overrides, changes of tenants and shutdown, which wait for the reload.
	readPatience = 5 * time.Second
	// followPatience limits the wait of a stopped gateway for a running reload.
	followPatience = time.Second
)

// reloadable is a gateway that can be served and reloaded.
type reloadable interface {
	Run(ctx context.Context) error
	Reload(ctx context.Context, r control.ReloadRequest) (control.ReloadResult, error)
	Watches() bool
}

// follower reloads the configuration at SIGHUP and, with `watch`, when its file has changed.
type follower struct {
	reloadable
	log    *slog.Logger
	hup    <-chan os.Signal
	path   string // of the configuration; empty for none
	loaded string // hash of the initial configuration
}

// run serves until ctx ends or serving fails, and reloads the configuration meanwhile.
func (f follower) run(ctx context.Context) error {
	following, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		f.follow(following)
	}()
	err := f.Run(ctx)
	cancel()
	select {
	case <-ended:
	case <-time.After(followPatience):
	}
	return err
}

// follow returns when ctx has ended and no reload is running.
func (f follower) follow(ctx context.Context) {
	var owned sync.WaitGroup
	owned.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-f.hup:
				f.reload(ctx, "signal")
			}
		}
	})
	if f.path != "" {
		owned.Go(func() {
			config.Watch(ctx, config.WatchConfig{Path: f.path, Every: watchEvery, Loaded: f.loaded, Wanted: f.Watches,
				Changed: func() { f.reload(ctx, "file") }})
		})
	}
	owned.Wait()
}

// reload lets the gateway reload its configuration; the gateway logs the result.
func (f follower) reload(ctx context.Context, via string) {
	_, err := f.Reload(ctx, control.ReloadRequest{Actor: store.Actor{Name: "tierway", Via: via}})
	if errors.Is(err, control.ErrNoSource) {
		f.log.Info("SIGHUP ignored: the gateway runs without a configuration file", "cause", err.Error())
	}
}

// limitReadTime limits the time of a read of the configuration. Reads do not overlap: while one is
// blocked, no other one starts.
func limitReadTime(read func() (*config.File, error)) func() (*config.File, error) {
	type answer struct {
		file *config.File
		err  error
	}
	reading := make(chan struct{}, 1) // holds the running read
	var hangs atomic.Bool
	return func() (*config.File, error) {
		late := time.After(readPatience)
		earlier := errors.New("an earlier read of the configuration file has not finished: its file system does not respond")
		if hangs.Load() && len(reading) > 0 {
			return nil, earlier
		}
		select {
		case reading <- struct{}{}:
			hangs.Store(false)
		case <-late:
			return nil, earlier
		}
		got := make(chan answer, 1)
		go func() {
			file, err := read()
			<-reading
			got <- answer{file, err}
		}()
		select {
		case a := <-got:
			return a.file, a.err
		case <-late:
			hangs.Store(true)
			return nil, fmt.Errorf("the configuration file could not be read within %v: its file system does not respond",
				readPatience)
		}
	}
}
