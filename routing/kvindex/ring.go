package kvindex

// ring is a queue of hashes.
type ring struct {
	items []uint64
	head  int
}

func (r *ring) len() int { return len(r.items) - r.head }

func (r *ring) push(hash uint64) {
	if r.head > len(r.items)/2 {
		r.items = r.items[:copy(r.items, r.items[r.head:])]
		r.head = 0
	}
	r.items = append(r.items, hash)
}

func (r *ring) pop() (uint64, bool) {
	if r.head == len(r.items) {
		return 0, false
	}
	r.head++
	return r.items[r.head-1], true
}

// keep drops the hashes that are not to be kept.
func (r *ring) keep(wanted func(uint64) bool) {
	kept := r.items[:0]
	for _, hash := range r.items[r.head:] {
		if wanted(hash) {
			kept = append(kept, hash)
		}
	}
	r.items, r.head = kept, 0
}
