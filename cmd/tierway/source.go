package main

import (
	"errors"
	"fmt"
	"io/fs"
	"sync/atomic"
	"time"

	"tierway/config"
)

const (
	// readPatience limits a read, which normally takes milliseconds. A blocked file system must not
	// delay overrides, changes of tenants and shutdown, which wait for the reload.
	readPatience = 5 * time.Second
	// missingPatience is the time for which a missing file is awaited: editors and Kubernetes replace
	// a file within milliseconds.
	missingPatience = time.Second
	// missingRetry is the pause between two reads of a missing file.
	missingRetry = 20 * time.Millisecond
)

// configSource reads the configuration file for reloads and for the admin API.
type configSource struct {
	read func() (*config.File, error)
	// unread is set by a read that does not reach the content, for a missing file or a blocked file
	// system. A follower clears it.
	unread atomic.Bool
}

func newConfigSource(read func() (*config.File, error)) *configSource {
	return &configSource{read: limitReadTime(awaitMissing(read))}
}

func (s *configSource) load() (*config.File, error) {
	file, err := s.read()
	var problems config.Problems
	if err != nil && !errors.As(err, &problems) {
		s.unread.Store(true)
	}
	return file, err
}

// awaitMissing repeats read while the file is missing, for at most missingPatience.
func awaitMissing(read func() (*config.File, error)) func() (*config.File, error) {
	return func() (*config.File, error) {
		begun := time.Now()
		for {
			file, err := read()
			if !errors.Is(err, fs.ErrNotExist) || time.Since(begun) >= missingPatience {
				return file, err
			}
			time.Sleep(missingRetry)
		}
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
