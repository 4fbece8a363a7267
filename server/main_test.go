package server

import (
	"os"
	"testing"

	"github.com/gin-gonic/gin"
)

// TestMain sets gin's mode, as the program does: its routes are not printed.
func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	os.Exit(m.Run())
}
