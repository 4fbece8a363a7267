package kvindex

import "maps"

// shards is the number of maps that the entries are divided into, so that one can be replaced
// while look-ups wait for a moment only.
const shards = 64

// mediums is the number of media, by [kvevents.Medium].
const mediums = 3

// entry is one block: the workers that have it, by medium and by sliding-window group, as sets of
// bits. sliding is nil if no such group has it.
type entry struct {
	holders [mediums]uint64
	sliding *[maxSliding]uint64
}

func (e *entry) any() uint64 { return e.holders[0] | e.holders[1] | e.holders[2] }

// entries are the entries by key.
type entries [shards]struct {
	m    map[uint64]entry
	peak int // most entries since m was made
}

func (s *entries) get(key uint64) entry { return s[key%shards].m[key] }

// put stores an entry, or deletes it if no worker has its block.
func (s *entries) put(key uint64, e entry) {
	if e.sliding != nil && *e.sliding == [maxSliding]uint64{} {
		e.sliding = nil
	}
	shard := &s[key%shards]
	if e.any() == 0 && e.sliding == nil {
		delete(shard.m, key)
		return
	}
	if shard.m == nil {
		shard.m = map[uint64]entry{}
	}
	shard.m[key] = e
	shard.peak = max(shard.peak, len(shard.m))
}

func (s *entries) forget(key uint64, worker int) {
	e := s.get(key)
	for m := range e.holders {
		e.holders[m] &^= 1 << worker
	}
	if e.sliding != nil {
		for g := range e.sliding {
			e.sliding[g] &^= 1 << worker
		}
	}
	s.put(key, e)
}

// shrink gives the memory of one shard back if most of its entries were removed. A map of Go keeps
// its memory until it is replaced.
func (s *entries) shrink(i int) {
	if shard := &s[i]; shard.peak > 0 && len(shard.m) <= shard.peak/2 {
		smaller := make(map[uint64]entry, len(shard.m))
		maps.Copy(smaller, shard.m)
		shard.m, shard.peak = smaller, len(smaller)
	}
}
