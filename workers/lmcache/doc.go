// Package lmcache reads from LMCache's controller which instances of LMCache have what in their caches.
//
// A [Controller] serves one pool:
//
//	c := lmcache.New(lmcache.Config{URL: "http://controller:9000", Lookups: true})
//	go c.Run(ctx)
//	…
//	matches, ok = c.Lookup(ctx, tokens, matches[:0])
//
// # What an answer means
//
// The controller credits each chunk of a prompt to the first instance that has it, and stops at the first
// unknown one. So a match is a lower bound of what an instance has, and an instance without a match is unknown:
// it may have the whole prompt.
//
// # A controller that does not answer
//
// [Controller.Lookup] waits [LookupLimit] at most. After one failure it returns at once, until a probe that Run
// sends has succeeded. No request pays twice for one outage.
//
// # Versions
//
// Old controllers answer a look-up with one instance and no length. From LMCache 0.3.12 on, the list of workers has
// their numbers of keys, as has a further endpoint. That of 0.3.10 has none, and 0.3.9 has no list: then the number of
// keys is unknown. The tests have recorded answers of these versions.
package lmcache
