package routing

// Watch sets what is called, without the pool's lock, after a change that may let a waiting
// request go: a lease was given back or refused by its gate, a worker was observed, its
// breaker opened or closed, or the pool was configured. changed must be safe for concurrent
// use and may call the pool. nil is none.
func (p *Pool) Watch(changed func()) {
	p.mu.Lock()
	p.onChange = changed
	p.mu.Unlock()
}

// unlockChanged unlocks the pool and calls its watcher.
func (p *Pool) unlockChanged() {
	changed := p.onChange
	p.changes++
	p.mu.Unlock()
	if changed != nil {
		changed()
	}
}
