package main

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"tierway/config"
)

// A file system that does not respond delays each reload for a limited time, and blocks one reader in all.
func TestBlockedReadTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var begun atomic.Int32
		hang := make(chan struct{})
		read := limitReadTime(func() (*config.File, error) {
			begun.Add(1)
			<-hang
			return nil, errors.New("read")
		})
		start := time.Now()
		if _, err := read(); err == nil || !strings.Contains(err.Error(), "could not be read within 5s") ||
			time.Since(start) != 5*time.Second {
			t.Errorf("the first: %v after %v", err, time.Since(start))
		}
		start = time.Now()
		if _, err := read(); err == nil || !strings.Contains(err.Error(), "has not finished") || time.Since(start) != 0 ||
			begun.Load() != 1 {
			t.Errorf("the second: %v after %v, reader %d", err, time.Since(start), begun.Load())
		}
		close(hang)
		synctest.Wait()
		if _, err := read(); err == nil || err.Error() != "read" {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// TestReadsDoNotOverlap: a reload during GET /admin/config reads the file after it.
func TestReadsDoNotOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read := limitReadTime(func() (*config.File, error) {
			time.Sleep(time.Second)
			return &config.File{}, nil
		})
		start := time.Now()
		var both sync.WaitGroup
		for range 2 {
			both.Go(func() {
				if f, err := read(); f == nil || err != nil {
					t.Errorf("%v, %v", f, err)
				}
			})
		}
		both.Wait()
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("both took %v", took)
		}
	})
}
