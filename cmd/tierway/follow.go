package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"time"

	"tierway/config"
	"tierway/server/control"
	"tierway/store"
)

const (
	// watchEvery is the poll interval of a watched configuration. A change applies after two equal
	// reads, so it takes twice as long.
	watchEvery = time.Second
	// followPatience limits the wait of a stopped gateway for a running reload.
	followPatience = time.Second
)

// reloadable is a gateway that can be served and reloaded.
type reloadable interface {
	Run(ctx context.Context) error
	Reload(ctx context.Context, r control.ReloadRequest) (control.ReloadResult, error)
	Watches() bool
	Announcements() <-chan control.Announcement
}

// follower reloads the configuration at SIGHUP and, with `watch`, when its file has changed.
type follower struct {
	reloadable
	log    *slog.Logger
	hup    <-chan os.Signal
	source *configSource // nil without a configuration file
	path   string        // of the configuration; empty for none
	loaded string        // hash of the initial configuration

	announcer *announcer // shows the secret for the first admin
}

// run serves until ctx ends or serving fails, and reloads the configuration meanwhile.
func (f follower) run(ctx context.Context) error {
	following, cancel := context.WithCancel(ctx)
	announcing, stop := context.WithCancel(context.WithoutCancel(ctx)) // a secret can be used until the drain ends
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var owned sync.WaitGroup
		owned.Go(func() { f.announcer.showSecrets(announcing, f.Announcements()) })
		f.follow(following)
		owned.Wait()
	}()
	err := f.Run(ctx)
	cancel()
	stop()
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
	if f.source != nil {
		owned.Go(func() {
			config.Watch(ctx, config.WatchConfig{Path: f.path, Every: watchEvery, Loaded: f.loaded, Wanted: f.Watches,
				Stale: f.source.unread.Load, Changed: func() { f.reload(ctx, "file") }})
		})
	}
	owned.Wait()
}

// reload lets the gateway reload its configuration; the gateway logs the result.
func (f follower) reload(ctx context.Context, via string) {
	if f.source != nil {
		f.source.unread.Store(false)
	}
	_, err := f.Reload(ctx, control.ReloadRequest{Actor: store.Actor{Name: "tierway", Via: via}})
	if errors.Is(err, control.ErrNoSource) {
		f.log.Info("SIGHUP ignored: the gateway runs without a configuration file", "cause", err.Error())
	}
}
