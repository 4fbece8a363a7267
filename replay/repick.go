package replay

import (
	"tierway/decisions"
	"tierway/routing"
)

// Repick decides one recorded pick of a pool again, as a Replay does with that record
// alone: among the members of to, with what to changes against was changed, which is
// the pool as it is configured now; nil if it is not. d and a are not changed.
//
// It returns the new choice, which says why, with the worker and the reason. A pick
// of another policy than was has stays where it was if to leaves the policy and the
// worker in place: the choice is then the recorded one. The error is
// routing.ErrIncomplete, ErrNobody, or says what cannot be a record of a pick.
func Repick(was, to *Pool, d *decisions.Decision, a *decisions.Attempt) (decided *routing.Choice, worker string, reason routing.Reason, err error) {
	if err := a.Choice.Check(); err != nil {
		return nil, "", "", err
	}
	pool, err := openPool(to, was, usualCache)
	if err != nil {
		return nil, "", "", err
	}
	pool.rates(a.Choice)
	p := newPick(d, a, d.Tier, 0)
	c := (&Replay{}).edited(p, pool)
	if len(c.Candidates) == 0 {
		return nil, "", "", ErrNobody
	}
	asked := c
	switch pool.says(p, c) {
	case sayRecord:
		if c.Of(c.RunnerUp) == nil {
			c.RunnerUp = ""
		}
		return c, p.worker, routing.Reason(a.Reason), nil
	case sayLearned:
		asked = new(*c)
		asked.Policy = "" // what another policy remembered, or one that was configured otherwise, is nothing to it
	}
	i, reason, decided, err := p.again(pool.policy, asked)
	if err != nil {
		return nil, "", "", err
	}
	return decided, c.Candidates[i].Worker, reason, nil
}
