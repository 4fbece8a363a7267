package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"tierway/server/control"
)

// announcer shows the bootstrap secret to the operator: on the terminal, else in a file that
// only its user may read, while the secret is valid. It never logs the secret. Its methods are
// safe for concurrent use.
type announcer struct {
	out     io.Writer
	log     *slog.Logger
	address string // base URL of the admin plane; set before showSecrets

	mu     sync.Mutex // guards the rest
	path   string     // of the file; empty if there is none
	expiry *time.Timer
}

// bootstrapFiles is the pattern of the file name. Its random part separates the gateways of one
// directory, and prevents other users from creating the file first.
const bootstrapFiles = "tierway-bootstrap-*.txt"

// showSecrets shows each announced secret and removes the file of a void one, until ctx ends.
func (a *announcer) showSecrets(ctx context.Context, announcements <-chan control.Announcement) {
	for {
		select {
		case <-ctx.Done():
			return
		case last := <-announcements:
			for len(announcements) > 0 { // a later announcement voids the secret
				last = <-announcements
			}
			switch {
			case last.Secret == "":
				a.clear()
			case ctx.Err() == nil && time.Now().Before(last.Until):
				a.announce(last.Secret, last.Until)
			}
		}
	}
}

// announce shows a new secret, which invalidates the previous one.
func (a *announcer) announce(secret string, until time.Time) {
	a.clear()
	text := fmt.Sprintf("There is no admin key yet. Until %s, this command creates the first one:\n  curl -X POST "+
		"%s/admin/bootstrap -H 'Content-Type: application/json' -d '{\"secret\":\"%s\",\"name\":\"me\"}'\n",
		until.Format("15:04"), a.address, secret)
	if terminal(a.out) {
		fmt.Fprint(a.out, text)
		return
	}
	path, err := writeOwn(text)
	if err != nil {
		a.log.Warn("bootstrap secret could not be written to a file; create the first admin key with `tierway keys create "+
			"--admin --name NAME`", "cause", err.Error())
		return
	}
	a.mu.Lock()
	a.path, a.expiry = path, time.AfterFunc(time.Until(until), func() { a.remove(path) })
	a.mu.Unlock()
	a.log.Info("no admin key exists; the file contains the command that creates the first one", "file", path, "until",
		until.UTC().Format(time.RFC3339))
}

// writeOwn writes text into a new file of the working directory that only its user may read. It
// does not follow or overwrite existing files.
func writeOwn(text string) (path string, err error) {
	folder, err := os.Getwd() // the working directory may change
	if err != nil {
		return "", err
	}
	f, err := os.CreateTemp(folder, bootstrapFiles) // O_EXCL and 0600
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(f.Name()) // remove the incomplete file
		return "", err
	}
	return f.Name(), nil
}

// clear removes the file with the expired secret.
func (a *announcer) clear() { a.remove("") }

// remove removes the file if path is empty or the path of the file.
func (a *announcer) remove(path string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.path == "" || path != "" && path != a.path {
		return
	}
	a.expiry.Stop()
	_ = os.Remove(a.path) // it may be gone already
	a.path = ""
}
