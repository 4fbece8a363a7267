package main

import (
	"github.com/gin-gonic/gin"
	"github.com/redis/go-redis/v9/logging"
)

// silenceLibraries ends the lines that libraries write to standard output and error by
// settings of the whole process: gin lists its routes, and the Redis client reports each
// failed dial, which the gateway logs itself.
func silenceLibraries() {
	gin.SetMode(gin.ReleaseMode)
	logging.Disable()
}
