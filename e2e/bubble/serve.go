package bubble

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"

	"github.com/gin-gonic/gin"

	"tierway/config"
	"tierway/server"
	"tierway/telemetry"
)

// Prepare sets up a test's process for bubbles: gin's release mode as in the binary, and rare garbage collections. If
// singleProcessor is true, the process has one processor.
//
// In a bubble little runs at the same time: a second processor makes tests a third more expensive and their figures
// less repeatable. Tests leave little behind, so rare collections save time, within the memory of a small machine.
func Prepare(singleProcessor bool) {
	gin.SetMode(gin.ReleaseMode)
	if singleProcessor {
		runtime.GOMAXPROCS(1)
	}
	debug.SetGCPercent(800)
	debug.SetMemoryLimit(512 << 20)
}

// Serve serves a configuration until the test ends, in a bubble that the caller has begun. Serve sets o.Config and
// o.Rand, and o.Log and o.Metrics if they are nil. The caller sets the network.
func Serve(t *testing.T, text string, o server.Options) {
	t.Helper()
	file, err := config.Parse("test.yaml", []byte(text), func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	o.Config, o.Rand = file, seeded(rand.NewPCG(3, 4))
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Metrics == nil {
		o.Metrics = telemetry.New("test")
	}
	s, err := server.New(o)
	if err == nil {
		err = s.Listen()
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		stop()
		running.Wait()
	})
}
