package control

import (
	"errors"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"tierway/queue"
	"tierway/routing"
	"tierway/telemetry"
)

// refusingGate is a breaker that refuses a number of requests.
type refusingGate struct{ refusals int }

func (g *refusingGate) Allow(time.Duration) (uint64, error) {
	if g.refusals == 0 {
		return 0, nil
	}
	g.refusals--
	return 0, errors.New("half open")
}

func (g *refusingGate) Report(uint64, error)       {}
func (g *refusingGate) ReportCut(time.Time, error) {}

// wakeSignal receives a value when the wait of a request is over.
type wakeSignal chan struct{}

func (w wakeSignal) OnWake() {
	select {
	case w <- struct{}{}:
	default:
	}
}

// TestTimePassesForARequestThatWaitsAgain: a breaker refuses the request after its dispatch, and for 1 s the queue does
// not dispatch it to that worker. Nothing else happens meanwhile.
func TestTimePassesForARequestThatWaitsAgain(t *testing.T) {
	for name, change := range map[string]func(*routing.Pool, *routing.Lease){
		"dispatched by a change": func(_ *routing.Pool, first *routing.Lease) {
			time.Sleep(950 * time.Millisecond)
			first.Release(routing.Result{At: time.Now()})
			time.Sleep(100 * time.Millisecond) // before the claim
		},
		"dispatched by a tick": func(pool *routing.Pool, first *routing.Lease) {
			pool.SetBackoff(first.Worker(), time.Now().Add(3*time.Second))
			first.Release(routing.Result{At: time.Now()})
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				policy, err := routing.New(routing.Config{Name: "least_load"})
				if err != nil {
					t.Fatal(err)
				}
				gate := &refusingGate{}
				pool := routing.NewPool(policy, []routing.Member{{ID: "w0", Weight: 1, MaxInflight: 1, Ref: 0, Gate: gate}})
				pool.Observe("w0", 0, routing.Status{Up: true})
				ps := &Pools{recover: NewRecoverer(slog.New(slog.DiscardHandler), telemetry.New("test")),
					queued: make(chan struct{}, 1)}
				q := queue.New(pool, queue.Config{MaxDepth: 10,
					MaxWait: [queue.Classes]time.Duration{time.Minute, time.Minute, time.Minute}},
					func(t *queue.Ticket) { t.Ref.(Waiter).OnWake() })
				q.OnWaiting(ps.startTicks)
				pool.Watch(func() { ps.dispatchQueue(q, time.Now()) })
				ps.current.Store(&Snapshot{Pools: []*Pool{{livePool: &livePool{Routing: pool, WaitQueue: q}}}})
				done := make(chan struct{})
				defer close(done)
				go ps.tickQueues(done)

				first, err := q.Enter(&queue.Ticket{Request: &routing.Request{Now: time.Now()}, Tenant: "a"}, time.Now())
				if err != nil {
					t.Fatal(err)
				}
				woken := make(wakeSignal, 1)
				waiting := &queue.Ticket{Request: &routing.Request{Now: time.Now()}, Tenant: "a", Ref: woken}
				if _, err := q.Enter(waiting, time.Now()); !errors.Is(err, queue.ErrWaiting) {
					t.Fatal(err)
				}
				gate.refusals = 1
				change(pool, &first)
				<-woken
				refused := time.Now()
				if _, err := q.Claim(waiting, refused); !errors.Is(err, queue.ErrWaiting) {
					t.Fatal(err)
				}
				<-woken
				lease, err := q.Claim(waiting, time.Now())
				if took := time.Since(refused); err != nil || took > 1200*time.Millisecond {
					t.Fatalf("the request was dispatched %v after the refusal: %v", took, err)
				}
				lease.Release(routing.Result{At: time.Now()})
			})
		})
	}
}
