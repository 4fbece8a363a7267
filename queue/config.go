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
	MaxDepth   int                    // requests of each class that may wait; 0: nobody waits
	MaxBytes   int64                  // bodies of all that wait; 0 is no bound
	MaxWait    [Classes]time.Duration // by class; 0: nobody of it waits
	Age        [Classes]time.Duration // a request that has waited for longer goes as the class above, and to any worker that is open; 0: never
	AgedShare  float64                // at most this part of the tokens granted while a higher class waits goes to aged requests; 0 to less than 1
	Displace   bool                   // a full queue puts out who is least urgent, or of the tenant with the most waiting, for a newcomer
	EngineWait time.Duration          // how long a request waits for a worker while none is up
}

// waits tells whether a request of the class may wait at all.
func (c *Config) waits(class int) bool { return c.MaxDepth > 0 && c.MaxWait[class] > 0 }

// accrual is how many tokens may go to aged requests for each token that goes
// to the class above them.
func (c *Config) accrual() float64 { return c.AgedShare / (1 - c.AgedShare) }

const (
	// maxOffers bounds how many waiting requests one pass looks at, so that its
	// time under the pool's lock is bounded too. 256 are several times what the
	// bounded loads of a hash ring let wait for full workers while another is open.
	maxOffers = 256
	// maxSeen bounds how many it looks at when most are passed over because others
	// like them were just refused, which costs a few nanoseconds each.
	maxSeen = 4096
	// maxStuck is how many refusals a pass remembers: one for each model of a pool,
	// a few sizes of prompts, and a few that were tried elsewhere or must go to one.
	maxStuck = 64
	// maxReservations bounds the tickets of one pass for which a worker is looked for
	// to be kept.
	maxReservations = 16
	// unpassed is no count of changes: nothing is known of those who wait.
	unpassed = math.MaxUint64
	// maxLost bounds the lost tickets that are offered once more in one pass.
	maxLost = 64
	// graceWhenDown is how long who waits already is kept while nobody is up. A
	// worker whose connection was refused rests for one second; without any grace
	// a restart that takes one would throw the whole queue out.
	graceWhenDown = 2 * time.Second
	// refusedFor is how long a worker whose breaker refused a granted request is
	// not offered to it again: the pool hears of an open breaker within a second.
	refusedFor = time.Second
)
