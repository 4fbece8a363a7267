package server

import (
	"log/slog"
	"testing"

	"tierway/memnet"
)

// TestWhatWaitsForOpenAddressesRunsWithoutTheLock, so that it may read the addresses and wait for a slow terminal.
func TestWhatWaitsForOpenAddressesRunsWithoutTheLock(t *testing.T) {
	ls := &listeners{log: slog.New(slog.DiscardHandler), listen: memnet.New().Listen}
	calls := 0
	look := func() {
		calls++
		if !ls.mu.TryLock() {
			t.Error("the function runs under the lock")
			return
		}
		ls.mu.Unlock()
		if ls.address("data") == "" {
			t.Error("the function does not find the address")
		}
	}
	ls.whenOpen(func() { t.Error("a function is called that a later one has replaced") })
	ls.whenOpen(look)
	if err := ls.open([]address{{plane: "data", listen: "127.0.0.1:1"}}); err != nil {
		t.Fatal(err)
	}
	ls.whenOpen(look)
	if calls != 2 {
		t.Errorf("%d calls, want 2", calls)
	}
	for _, l := range ls.all {
		l.Close()
	}
}
