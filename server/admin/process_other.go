//go:build !unix

package admin

import "time"

// processorTime returns 0: the processor time is unknown on this system.
func processorTime() time.Duration { return 0 }
