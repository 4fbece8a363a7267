package replay

import (
	"slices"
	"time"
)

// events are functions to be called at moments of recorded time, the next one first.
type events []event

// event is called before the events of the same moment that were planned after it.
type event struct {
	at time.Duration
	do func()
}

// plan adds an event. Most belong near the end, which moves few others.
func (e *events) plan(at time.Duration, do func()) {
	i, _ := slices.BinarySearchFunc(*e, at, func(v event, at time.Duration) int {
		if v.at <= at {
			return -1
		}
		return 1
	})
	*e = slices.Insert(*e, i, event{at, do})
}

// next calls the first event; there must be one.
func (e *events) next() {
	first := (*e)[0]
	*e = slices.Delete(*e, 0, 1)
	first.do()
}

// until calls all events up to a moment.
func (e *events) until(at time.Duration) {
	for len(*e) > 0 && (*e)[0].at <= at {
		e.next()
	}
}
