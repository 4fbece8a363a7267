package queue

import (
	"time"
)

// View is the state of a queue for metrics and the admin API.
type View struct {
	Bytes     int64   // bodies of all waiting requests
	PerSecond float64 // learned throughput: requests that the pool ends per second
	Classes   [Classes]ClassView
}

// ClassView is the state of one class of a queue.
type ClassView struct {
	Depth  int
	Tokens int64         // prompts and expected answers of the waiting requests
	Oldest time.Duration // wait of the oldest request
	Drain  time.Duration // estimated time until the present requests are dispatched; 0: unknown

	// Totals since the program started. Entered = Dispatched + Abandoned + Expired + Moved + Depth.
	Entered    int64                   // had to wait
	Dispatched int64                   // dispatched after a wait
	Promoted   int64                   // dispatched as the class above because they were aged; part of Dispatched
	Abandoned  int64                   // clients left during the wait
	Expired    int64                   // shed after a wait
	Moved      int64                   // left for the queue of another pool, because no worker was up
	Shed       [len(shedReasons)]int64 // by reason in the order of ShedReasons; at Enter or after a wait
}

// View returns the state at now.
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
	Position int // 1 is dispatched next
	ID       string
	Tenant   string
	Class    int
	Tokens   int64
	Waited   time.Duration
	Expected time.Duration // estimated time until dispatch; 0: unknown
}

// List returns at most limit waiting requests in the order of dispatch if each could be
// dispatched. It holds the queue's lock for about a microsecond per request.
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
		q.walk.recordDispatch(t, path)
		w := Waiter{Position: len(list) + 1, ID: t.ID, Tenant: t.Tenant, Class: t.Class, Tokens: t.Tokens,
			Waited: now.Sub(t.entered)}
		if rate > 0 {
			w.Expected = seconds(float64(w.Position) / rate)
		}
		list = append(list, w)
	}
	return list
}
