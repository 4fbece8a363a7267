package queue

import (
	"math"
	"time"
)

// Classes is how many classes of priority there are: 0 is interactive, 1 is
// background, 2 is batch. A lower number is more urgent.
const Classes = 3

// Config bounds a queue and says how its classes share the pool.
type Config struct {
	MaxDepth   int                    // requests of each class that may wait; 0: none waits
	MaxBytes   int64                  // bodies of all that wait; 0 is no bound
	MaxWait    [Classes]time.Duration // by class; 0: none of it waits
	Age        [Classes]time.Duration // a request that has waited for longer goes as the class above, and to any worker that is open; 0: never
	AgedShare  float64                // at most this part of the tokens granted while a higher class waits goes to aged requests; 0 to less than 1
	Displace   bool                   // a full queue evicts the least urgent request, or one of the tenant with the most waiting, for a new one
	EngineWait time.Duration          // how long a request waits for a worker while none is up
}

// Waits reports whether a request of the class may wait at all.
func (c *Config) Waits(class int) bool { return c.MaxDepth > 0 && c.MaxWait[class] > 0 }

// accrual is how many tokens may go to aged requests for each token that goes
// to the class above them.
func (c *Config) accrual() float64 { return c.AgedShare / (1 - c.AgedShare) }

const (
	// maxOffers bounds the requests that one pass offers, and so its time under the pool's
	// lock: several times as many as wait for full workers while another is open.
	maxOffers = 256
	// maxSeen bounds the requests that one pass looks at: one like another that was just
	// refused costs a few nanoseconds.
	maxScanned = 4096
	// maxStuck is how many refusals a pass remembers, by model, size and tried workers.
	maxRejectionMemos = 64
	// maxReservations bounds the attempts of one pass to reserve a worker.
	maxReservations = 16
	// unpassed is no count of changes: nothing is known of the waiting requests.
	unknownChanges = math.MaxUint64
	// maxLost bounds the lost tickets that are offered once more in one pass.
	maxUnroutable = 64
	// graceWhenDown is how long requests wait while no worker is up. A worker that refused a
	// connection rests for one second, and its restart must not empty the queue.
	minWorkerWait = 2 * time.Second
	// refusedFor is how long a worker whose breaker refused a granted request is not offered
	// to it again: the pool learns of an open breaker within a second.
	breakerRefusalTTL = time.Second
)
