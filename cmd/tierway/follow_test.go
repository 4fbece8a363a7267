package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"tierway/config"
	"tierway/server/control"
)

// played is a fake gateway that serves until its context ends or it fails.
type played struct {
	failure error         // ends Run at once
	hang    chan struct{} // Reload waits until it is closed; nil: Reload does not wait
	watches bool
	nothing bool          // there is no configuration file
	source  *configSource // read by Reload; nil: none

	mu       sync.Mutex
	via      []string // sources of the reloads so far
	rejected bool     // the last reload failed
}

func (p *played) Run(ctx context.Context) error {
	if p.failure == nil {
		<-ctx.Done()
	}
	return p.failure
}

func (p *played) Reload(_ context.Context, r control.ReloadRequest) (control.ReloadResult, error) {
	p.mu.Lock()
	p.via = append(p.via, r.Actor.Via)
	p.mu.Unlock()
	if p.hang != nil {
		<-p.hang
	}
	if p.source != nil {
		_, err := p.source.load()
		p.mu.Lock()
		p.rejected = err != nil
		p.mu.Unlock()
		return control.ReloadResult{}, err
	}
	if p.nothing {
		return control.ReloadResult{}, control.ErrNoSource
	}
	return control.ReloadResult{}, nil
}

func (p *played) Announcements() <-chan control.Announcement { return nil }

func (p *played) Watches() bool { return p.watches }

// reloads returns the sources of the reloads so far.
func (p *played) reloads() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.via)
}

// hangups returns a channel that has received n SIGHUPs.
func hangups(n int) chan os.Signal {
	hup := make(chan os.Signal, 1)
	for range n {
		hup <- syscall.SIGHUP
	}
	return hup
}

// If a listener fails, run returns its error at once, also while a reload hangs.
func TestRunEndsWhenServingFails(t *testing.T) {
	failure := errors.New("the listener is gone")
	for name, hangs := range map[string]bool{"at rest": false, "in a reload": true} {
		synctest.Test(t, func(t *testing.T) {
			p := &played{failure: failure, watches: true}
			if hangs {
				p.hang = make(chan struct{})
				defer close(p.hang)
			}
			begun := time.Now()
			err := follower{reloadable: p, log: slog.New(slog.DiscardHandler), hup: hangups(1),
				path: "/nowhere/config.yaml", source: &configSource{}}.run(t.Context())
			if took := time.Since(begun); !errors.Is(err, failure) || took > time.Second {
				t.Errorf("%s: it ended with %v after %v", name, err, took)
			}
		})
	}
}

// A SIGHUP reloads the configuration, also if it arrives before the gateway serves. Without a file, the
// log has a line and the process continues.
func TestEverySIGHUPReloads(t *testing.T) {
	for _, nothing := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			var log bytes.Buffer
			p, hup, ended := &played{nothing: nothing}, hangups(1), make(chan error, 1)
			go func() { ended <- follower{reloadable: p, log: slog.New(logHandler(&log, "info")), hup: hup}.run(ctx) }()
			synctest.Wait()
			if got := p.reloads(); !slices.Equal(got, []string{"signal"}) {
				t.Errorf("reloads after the start: %q", got)
			}
			hup <- syscall.SIGHUP
			synctest.Wait()
			if got := p.reloads(); len(got) != 2 {
				t.Errorf("reloads after another: %q", got)
			}
			cancel()
			if err := <-ended; err != nil || strings.Count(log.String(), "nothing to reload") != map[bool]int{true: 2}[nothing] {
				t.Errorf("%v, the log:\n%s", err, log.String())
			}
		})
	}
}

// With watch, an edit between loading the configuration and the first poll is a change.
func TestEditDuringTheStartIsReloaded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	write(t, path, trial)
	loaded, err := config.Load(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	write(t, path, trial+"# edited\n")
	for watches, want := range map[bool][]string{true: {"file"}, false: nil} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			p := &played{watches: watches}
			if err := (follower{reloadable: p, log: slog.New(slog.DiscardHandler), path: path, loaded: loaded.Hash(),
				source: &configSource{}}).run(ctx); err != nil {
				t.Error(err)
			}
			if got := p.reloads(); !slices.Equal(got, want) {
				t.Errorf("watched: %v, reloads: %q", watches, got)
			}
		})
	}
}

// A reload that finds the file missing is repeated when the file is back, even with unchanged content.
func TestReloadIsRepeatedWhenAMissingFileIsBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	write(t, path, trial)
	loaded, err := config.Load(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		gap  time.Duration
		want []string // reloads
	}{
		"shorter than the wait": {missingPatience / 2, []string{"signal"}},
		"longer than the wait":  {3 * missingPatience, []string{"signal", "file"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			move := func(from, to string) {
				if err := os.Rename(from, to); err != nil {
					t.Error(err)
				}
			}
			source := newConfigSource(func() (*config.File, error) { return config.Load(path, nil) })
			p := &played{watches: true, source: source}
			move(path, path+".new")
			time.AfterFunc(c.gap, func() { move(path+".new", path) })
			f := follower{reloadable: p, log: slog.New(slog.DiscardHandler), hup: hangups(1), source: source, path: path,
				loaded: loaded.Hash()}
			if err := f.run(ctx); err != nil {
				t.Error(err)
			}
			if got := p.reloads(); !slices.Equal(got, c.want) || p.rejected {
				t.Errorf("%s: reloads %q, want %q; the last one failed: %v", name, got, c.want, p.rejected)
			}
		})
	}
}

const trial = `auth: { required: false }
store: { sql: "" }
tiers: [{ name: small, model: m, workers: [{ name: s0, url: "http://127.0.0.1:1" }] }]
`

// lines is a log that is written and read concurrently.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}
