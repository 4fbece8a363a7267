package control

import (
	"testing"
	"time"

	"tierway/routing"
	"tierway/workers"
)

// TestStoppedWorkersHangOrAreSilent: a worker that is down or suspended may still finish its requests; one that
// hangs does not.
func TestStoppedWorkersHangOrAreSilent(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	heard := func(ago time.Duration) routing.WorkerView { return routing.WorkerView{HeardAt: now.Add(-ago)} }
	for name, c := range map[string]struct {
		view   routing.WorkerView
		status workers.Status
		want   string
	}{
		"up and silent":           {heard(time.Hour), workers.Status{Up: true}, ""},
		"hung":                    {routing.WorkerView{HungAt: now, HeardAt: now}, workers.Status{Up: true}, "hangs"},
		"one request is overdue":  {routing.WorkerView{Unanswered: true}, workers.Status{Up: true}, Silent},
		"down and silent":         {heard(5 * time.Second), workers.Status{}, "is down"},
		"down and never heard":    {routing.WorkerView{}, workers.Status{}, "is down"},
		"down, but it sends":      {heard(4 * time.Second), workers.Status{}, ""},
		"asleep and silent":       {heard(time.Minute), workers.Status{Up: true, Suspended: workers.Asleep}, "is asleep"},
		"paused and silent":       {heard(time.Minute), workers.Status{Up: true, Suspended: workers.Paused}, "is paused"},
		"pausing, and it sends":   {heard(time.Second), workers.Status{Up: true, Suspended: workers.Paused}, ""},
		"down, and known to hang": {routing.WorkerView{HungAt: now}, workers.Status{}, "hangs"},
	} {
		m, stopped := &Member{}, Stopped{}
		c.view.Ref = m
		stopped.add(&c.view, &c.status, now)
		if stopped[m] != c.want {
			t.Errorf("%s: %q, want %q", name, stopped[m], c.want)
		}
	}
}
