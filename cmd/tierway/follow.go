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
	// A watched configuration is looked at this often. Two looks in a row must find
	// the same, so that a change takes twice as long.
	watchEvery = time.Second
	// Reading takes milliseconds. A file system that hangs must not hold what waits
	// for a reload: overrides, changes of tenants, and the program's end.
	readPatience = 5 * time.Second
	// A gateway that has ended waits no longer than this for a reload that has not.
	followPatience = time.Second
)

// reloadable is a gateway that is served.
type reloadable interface {
	Run(ctx context.Context) error
	Reload(ctx context.Context, r control.ReloadRequest) (control.ReloadResult, error)
	Watches() bool
}

// follower reloads the configuration at SIGHUP, and when its file has changed
// while `watch` is set.
type follower struct {
	reloadable
	log    *slog.Logger
	hup    <-chan os.Signal
	path   string // of the configuration; empty for none
	loaded string // hash of what the gateway began with
}

// run serves until ctx ends or serving fails, and follows the
// configuration meanwhile.
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

// follow returns when ctx has ended and nothing is under way.
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

// reload has the gateway read its configuration, which logs how it went.
func (f follower) reload(ctx context.Context, via string) {
	_, err := f.Reload(ctx, control.ReloadRequest{Actor: store.Actor{Name: "tierway", Via: via}})
	if errors.Is(err, control.ErrNoSource) {
		f.log.Info("SIGHUP ignored: the gateway runs without a configuration file", "cause", err.Error())
	}
}

// patient bounds how long a reading of the configuration is waited for. One follows the
// other; while one hangs, no other is begun.
func patient(read func() (*config.File, error)) func() (*config.File, error) {
	type answer struct {
		file *config.File
		err  error
	}
	reading := make(chan struct{}, 1) // holds the one that reads
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
			return nil, fmt.Errorf("the configuration file could not be read within %v: its file system does not respond", readPatience)
		}
	}
}
