package workers

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
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
// key applies. It is safe for concurrent use: one request reads the file, and the others use the last key meanwhile.
type keyFile struct {
	path    string
	log     *slog.Logger
	current atomic.Pointer[fileKey] // nil before the first reading

	mu      sync.Mutex // held while the file is read; guards the rest
	state   os.FileInfo
	failing bool
}

// fileKey is the key of a file. It is immutable.
type fileKey struct {
	key, former string
	due         time.Time // of the next comparison
}

// keys returns the present key and the one before it.
func (f *keyFile) keys() (key, former string) {
	k := f.current.Load()
	switch {
	case k == nil:
		f.mu.Lock()
	case time.Now().Before(k.due) || !f.mu.TryLock():
		return k.key, k.former
	}
	defer f.mu.Unlock()
	k = f.current.Load()
	if k == nil || !time.Now().Before(k.due) {
		k = f.refreshLocked(k)
		f.current.Store(k)
	}
	return k.key, k.former
}

// refreshLocked reads the file if it has changed since last, which may be nil.
func (f *keyFile) refreshLocked(last *fileKey) *fileKey {
	var now fileKey
	if last != nil {
		now = *last
	}
	defer func() { now.due = time.Now().Add(keyFileEvery) }()
	state, err := os.Stat(f.path)
	if err == nil && f.state != nil && os.SameFile(state, f.state) && state.ModTime().Equal(f.state.ModTime()) &&
		state.Size() == f.state.Size() {
		return &now
	}
	var key string
	if err == nil {
		key, err = ReadKeyFile(f.path)
	}
	switch {
	case err != nil && !f.failing:
		f.log.Warn("the file of a worker's key cannot be read; the last key applies", "file", f.path, "cause", err.Error())
	case err == nil && key != now.key:
		now.key, now.former = key, now.key
	}
	if f.failing = err != nil; !f.failing {
		f.state = state
	}
	return &now
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
