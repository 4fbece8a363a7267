package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"tierway/config"
	"tierway/server"
	"tierway/store"
)

// watchEvery is how often a watched configuration is looked at. Two looks in a
// row must find the same, so that a change takes twice as long.
const watchEvery = time.Second

// follow reloads the configuration at SIGHUP, and when the file has changed and
// `watch` is set, until ctx ends. The function that it returns waits for the end.
func (f serveFlags) follow(ctx context.Context, s *server.Server) (wait func()) {
	var owned sync.WaitGroup
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	reload := func(via string) {
		// Reload logs how it went.
		_, _ = s.Reload(ctx, server.ReloadRequest{Actor: store.Actor{Name: "tierway", Via: via}})
	}
	owned.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case <-hup:
				reload("signal")
			}
		}
	})
	owned.Go(func() {
		config.Watch(ctx, f.path(), watchEvery, func() {
			if s.Watches() {
				reload("file")
			}
		})
	})
	return func() {
		signal.Stop(hup)
		owned.Wait()
	}
}

// announcer hands the bootstrap secret to whoever started the program: on the
// terminal, else in a file that only its user may read. It is never logged.
type announcer struct {
	out     io.Writer
	log     *slog.Logger
	address string // of the admin plane
	path    string // of the file, once there is one
}

const bootstrapFile = "tierway-bootstrap.txt"

// announce shows the secret once.
func (a *announcer) announce(secret string, until time.Time) {
	text := fmt.Sprintf("No admin yet. Until %s this makes the first one, once:\n  curl -X POST http://%s/admin/bootstrap -H 'Content-Type: application/json' -d '{\"secret\":\"%s\",\"name\":\"me\"}'\n",
		until.Format("15:04"), a.address, secret)
	if f, ok := a.out.(*os.File); ok && terminal(f) {
		fmt.Fprint(a.out, text)
		return
	}
	path, err := filepath.Abs(bootstrapFile)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o600)
	}
	if err != nil {
		a.log.Warn("the first admin cannot be made over the API, because the bootstrap secret cannot be written; `tierway keys create --admin --name NAME` makes one", "cause", err.Error())
		return
	}
	a.path = path
	a.log.Info("there is no admin yet: a file tells how to make the first one", "file", path, "until", until.UTC().Format(time.RFC3339))
}

// clear removes the file: its secret is void when the program ends.
func (a *announcer) clear() {
	if a.path != "" {
		_ = os.Remove(a.path) // it may be gone already
	}
}
