package queue

import (
	"math"
	"time"
)

// Classes is the number of priority classes: 0 is interactive, 1 background, 2 batch. A lower
// number is more urgent.
const Classes = 3

// Config has the bounds of a queue and the shares of its classes.
type Config struct {
	MaxDepth int                    // waiting requests per class; 0: no request waits
	MaxBytes int64                  // bodies of all waiting requests; 0: unbounded
	MaxWait  [Classes]time.Duration // by class; 0: requests of the class do not wait
	// Age is the wait, by class, after which a request is aged: it may be promoted to the class
	// above, and no longer waits for a worker with a better cache. 0: never.
	Age [Classes]time.Duration
	// AgedShare is the largest share of the tokens dispatched while a higher class waits that goes
	// to aged requests; 0 to less than 1.
	AgedShare float64
	// Displace lets a full queue evict requests for a new one: the least urgent, or those of
	// the tenant with the most waiting.
	Displace   bool
	EngineWait time.Duration // how long a request waits while no worker is up
}

// Waits reports whether requests of the class may wait at all.
func (c *Config) Waits(class int) bool { return c.MaxDepth > 0 && c.MaxWait[class] > 0 }

// accrual returns how many tokens may go to aged requests for each token that goes to the class
// above them.
func (c *Config) accrual() float64 { return c.AgedShare / (1 - c.AgedShare) }

const (
	// maxOffers bounds the requests that one pass offers, and so its time under the pool's
	// lock. It is several times the number of requests that usually wait for full workers while
	// another is open.
	maxOffers = 256
	// maxScanned bounds the requests that one pass looks at. A request that matches a
	// rejectionMemo costs a few nanoseconds.
	maxScanned = 4096
	// maxRejectionMemos bounds the rejections that a pass remembers, by model, size and
	// excluded workers.
	maxRejectionMemos = 64
	// maxReservations bounds the attempts of one pass to reserve a worker.
	maxReservations = 16
	// unknownChanges is not a value of the pool's change counter. It means that every waiting
	// request must be offered.
	unknownChanges = math.MaxUint64
	// maxUnroutable bounds the unroutable tickets that one pass offers again.
	maxUnroutable = 64
	// minWorkerWait is the shortest wait while no worker is up. A worker that refused a
	// connection is in backoff for one second, and its restart must not empty the queue.
	minWorkerWait = 2 * time.Second
	// breakerRefusalTTL is how long a worker is not offered again to a request that its breaker
	// refused. The pool learns of an open breaker within a second.
	breakerRefusalTTL = time.Second
)
