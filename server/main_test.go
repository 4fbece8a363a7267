package server

import (
	"os"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/gin-gonic/gin"

	"tierway/fixedseed"
)

// TestMain sets gin's release mode, as the program does, so that gin does not print its routes. In a bubble
// little runs at the same time, so a second processor and frequent garbage collections only cost time.
func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	if fixedseed.IsUsual() { // make soak runs all interleavings under the race detector
		runtime.GOMAXPROCS(1)
	}
	debug.SetGCPercent(400)
	debug.SetMemoryLimit(512 << 20) // max_buffered_bytes depends on it
	os.Exit(m.Run())
}
