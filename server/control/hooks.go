package control

import "tierway/hooks"

// addHooks gives a new snapshot its hooks, which opens no connections. Hooks that are the same in live are kept, with
// their connections and breakers.
func (ctl *Control) addHooks(next, live *Snapshot) {
	next.Hooks = hooks.NewChain(next.File.HookSpecs(), next.File.HooksTimeout, live.Hooks, ctl.hookOptions)
}

// retireHooks closes the connections of the hooks that a new snapshot does not have, and removes their metrics.
func (ctl *Control) retireHooks(was, now *hooks.Chain) {
	for _, name := range was.Retire(now) {
		ctl.metrics.RemoveHook(name)
	}
}
