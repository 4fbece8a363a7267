package workers

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"
)

const (
	// keyFileEvery is the interval at which a key file in use is compared with its last state.
	keyFileEvery = time.Second
	// maxKeyFile is the longest key in bytes, as HTTP headers allow.
	maxKeyFile = 8 << 10
)

// keyFile is the key of a worker in a file. The file is read again when it changes; while it cannot be read, the last
// key applies. It is safe for concurrent use.
type keyFile struct {
	path string
	log  *slog.Logger

	mu          sync.Mutex // guards the rest
	next        time.Time  // of the next comparison
	state       os.FileInfo
	key, former string
	failing     bool
}

// keys returns the present key and the one before it.
func (f *keyFile) keys() (key, former string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); !now.Before(f.next) {
		f.next = now.Add(keyFileEvery)
		f.refreshLocked()
	}
	return f.key, f.former
}

// refreshLocked reads the file if it has changed.
func (f *keyFile) refreshLocked() {
	state, err := os.Stat(f.path)
	if err == nil && f.state != nil && os.SameFile(state, f.state) && state.ModTime().Equal(f.state.ModTime()) &&
		state.Size() == f.state.Size() {
		return
	}
	var key string
	if err == nil {
		key, err = ReadKeyFile(f.path)
	}
	switch {
	case err != nil && !f.failing:
		f.log.Warn("the file of a worker's key cannot be read; the last key applies", "file", f.path, "cause", err.Error())
	case err == nil && key != f.key:
		f.key, f.former = key, f.key
	}
	if f.failing = err != nil; !f.failing {
		f.state = state
	}
}

// ReadKeyFile returns the key in a file: its text without line breaks at the end. An error does not contain the text.
func ReadKeyFile(path string) (key string, err error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxKeyFile+1))
	key = strings.TrimRight(string(text), "\r\n")
	switch {
	case err != nil:
		return "", err
	case len(text) > maxKeyFile:
		return "", fmt.Errorf("longer than %d bytes, so it is not a key", maxKeyFile)
	case key == "":
		return "", errors.New("empty: write the worker's key into it")
	case strings.ContainsFunc(key, unicode.IsControl):
		return "", errors.New("has a line break or another control character within the key")
	}
	return key, nil
}
