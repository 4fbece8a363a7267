package sim

import "time"

// engineCounts are a gateway's own counts of one engine, and the engine's metrics. The pool has its own counts;
// these are for policies that need other numbers.
type engineCounts struct {
	unanswered int   // requests that wait for their first token
	pending    int64 // their uncached tokens, as estimated when they were routed

	// active counts the requests in flight by the number of each block of their prompts;
	// activeBlocks is the number of blocks with a request. Only if the policy needs them.
	active       []uint16
	activeBlocks int

	// The time and the result of the last scrape of the engine's metrics, and their present values.
	scrapedAt time.Duration
	scraped   load
	current   load
}

// load is an engine's load as its metrics show it.
type load struct {
	queue  int   // requests that wait for their prefill
	tokens int64 // prompt tokens of the requests that run
}

// scrapeEach is the interval at which peers read the engines' metrics.
const scrapeEach = 100 * time.Millisecond

// scrape returns the load at the last multiple of scrapeEach.
func (b *engineCounts) scrape(now time.Duration) load {
	if at := now / scrapeEach * scrapeEach; at > b.scrapedAt {
		b.scraped, b.scrapedAt = b.current, at
	}
	return b.scraped
}

// change returns the present load for a change.
func (b *engineCounts) change(now time.Duration) *load {
	b.scrape(now)
	return &b.current
}

// addActive counts one more request for each block of a prompt, and removeActive one less.
func (b *engineCounts) addActive(numbers []int32, blocks int) {
	if missing := blocks - len(b.active); missing > 0 {
		b.active = append(b.active, make([]uint16, missing+blocks/2)...)
	}
	for _, number := range numbers {
		if b.active[number]++; b.active[number] == 1 {
			b.activeBlocks++
		}
	}
}

func (b *engineCounts) removeActive(numbers []int32) {
	for _, number := range numbers {
		if b.active[number]--; b.active[number] == 0 {
			b.activeBlocks--
		}
	}
}

// newActive returns how many blocks of a prompt no request in flight has.
func (b *engineCounts) newActive(numbers []int32) (n int) {
	for _, number := range numbers {
		if int(number) >= len(b.active) || b.active[number] == 0 {
			n++
		}
	}
	return n
}
