package queue

import (
	"slices"
	"time"
)

// View is a queue as metrics and the admin API show it.
type View struct {
	Bytes     int64   // bodies of all that wait
	PerSecond float64 // learned: requests that the pool ends in a second
	Classes   [Classes]ClassView
}

// ClassView is one class of a queue.
type ClassView struct {
	Depth  int
	Tokens int64         // prompts and expected answers of the waiting requests
	Oldest time.Duration // how long the oldest one waits
	Drain  time.Duration // how long until the present ones are gone, by the estimate; 0 if none is known

	// Totals since the program started. Entered = Granted + Left + PutOut + Depth.
	Entered    int64                   // had to wait
	Dispatched int64                   // went on after a wait
	Promoted   int64                   // of those granted: went as the class above because they were aged
	Abandoned  int64                   // their clients left meanwhile
	Expired    int64                   // shed after a wait
	Shed       [len(shedReasons)]int64 // by reason as ShedReasons lists them, on entering or after a wait
}

func (c *ClassView) shed(reason string) { c.Shed[slices.Index(shedReasons[:], reason)]++ }

// View returns what is known at now.
func (q *Queue) View(now time.Time) View {
	rate, _ := q.pool.Throughput(now)
	q.mu.Lock()
	defer q.mu.Unlock()
	v := View{Bytes: q.bytes, PerSecond: rate}
	ahead := 0
	for i := range q.classes {
		c := &q.classes[i]
		ahead += c.depth
		cv := &v.Classes[i]
		*cv = c.counts
		cv.Depth, cv.Tokens = c.depth, c.tokens
		if c.all.first != nil {
			cv.Oldest = now.Sub(c.all.first.entered)
		}
		if rate > 0 && c.depth > 0 {
			cv.Drain = seconds(float64(ahead) / rate)
		}
	}
	return v
}

// Waiter is one waiting request.
type Waiter struct {
	Position int // 1 goes next
	ID       string
	Tenant   string
	Class    int
	Tokens   int64
	Waited   time.Duration
	Expected time.Duration // until its turn, by the estimate; 0 if none is known
}

// List returns at most limit waiting requests in the order in which they would go if each
// could. It holds the queue's lock for a microsecond per request.
func (q *Queue) List(now time.Time, limit int) []Waiter {
	rate, _ := q.pool.Throughput(now)
	q.mu.Lock()
	defer q.mu.Unlock()
	list := make([]Waiter, 0, min(limit, int(q.waiting.Load())))
	q.walk.begin(q, now)
	defer q.walk.end()
	for len(list) < limit {
		t, path := q.walk.next()
		if t == nil {
			break
		}
		q.walk.granted(t, path)
		w := Waiter{Position: len(list) + 1, ID: t.ID, Tenant: t.Tenant, Class: t.Class, Tokens: t.Tokens, Waited: now.Sub(t.entered)}
		if rate > 0 {
			w.Expected = seconds(float64(w.Position) / rate)
		}
		list = append(list, w)
	}
	return list
}
