package server

import (
	"os"
	"testing"

	"github.com/gin-gonic/gin"

	_ "tierway/fixedseed"
)

// TestMain sets gin's release mode, as the program does, so that gin does not print its routes.
func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	os.Exit(m.Run())
}
