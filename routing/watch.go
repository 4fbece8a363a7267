package routing

// Watch sets the function that is called after each change that may let a waiting request proceed:
// a lease was given back or refused by its gate, a worker was observed, its breaker changed, or
// the pool was configured. The pool calls it without its lock, so it may call the pool. It must
// be safe for concurrent use. nil removes it.
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
