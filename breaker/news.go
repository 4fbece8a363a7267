package breaker

// tell hands the news to OnChange, unless somebody does already: then that one
// goes on with what is new. Each is told outside the lock, so that OnChange may
// call everything, and even cause the next.
func (b *Breaker) tell() {
	for {
		b.mu.Lock()
		if b.telling || len(b.news) == 0 {
			b.mu.Unlock()
			return
		}
		c := b.news[0]
		b.news = b.news[1:]
		b.telling = true
		b.mu.Unlock()
		b.tellOne(c)
	}
}

// tellOne lets the next be told even if OnChange panics.
func (b *Breaker) tellOne(c Change) {
	defer func() {
		b.mu.Lock()
		b.telling = false
		b.mu.Unlock()
	}()
	b.group.options.OnChange(c)
}
