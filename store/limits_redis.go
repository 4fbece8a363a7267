package store

import (
	"context"
	_ "embed"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"tierway/tenants"
)

//go:embed limits.lua
var limitsLua string

//go:embed take.lua
var takeLua string

//go:embed settle.lua
var settleLua string

// counterUpdate is one run of a script for a list of subjects.
type counterUpdate struct {
	keys   []string
	argv   []any
	states []tenants.SubjectState
}

// newUpdate returns a run for the given states with two arguments of the script's own. All keys of
// a tenant share a hash tag, so a cluster keeps them on one node.
func (l *Limits) newUpdate(own int64, flag bool, states []tenants.SubjectState) counterUpdate {
	w := counterUpdate{keys: make([]string, 0, 4*len(states)), argv: make([]any, 0, 4+30*len(states)), states: states}
	w.argv = append(w.argv, l.redis.gateway, lease.Microseconds(), own, number(flag))
	for i := range states {
		s, limits := &states[i], &states[i].Limits
		base := "tierway:{" + s.Tenant + "}:"
		if s.Key != "" {
			base += "key:" + s.Key + ":"
		}
		w.keys = append(w.keys, base+"rates", base+"under",
			base+"d"+strconv.Itoa(s.Day.Index), base+"m"+strconv.Itoa(s.Month.Index))
		w.argv = append(w.argv, limits.RPM, limits.RequestBurst(), limits.RPS, limits.SecondBurst(),
			limits.TPM, limits.TokensAtOnce(), limits.Concurrent, s.InFlight, s.Pending, s.Ended, s.Sequence,
			limits.DayTokens, limits.MonthTokens, int64(limits.DayMoney), int64(limits.MonthMoney))
		for _, a := range [...]*tenants.WindowUsage{&s.Day, &s.Month} {
			w.argv = append(w.argv, a.Shared.Tokens, int64(a.Shared.Money), a.Own.Tokens, int64(a.Own.Money),
				a.Confirmed.Tokens, int64(a.Confirmed.Money))
		}
		for _, used := range s.Used {
			w.argv = append(w.argv, strconv.FormatFloat(used, 'f', 6, 64))
		}
	}
	return w
}

// runTakeScript lets Redis decide about one request.
func (l *Limits) runTakeScript(ctx context.Context, c *tenants.Charge,
	states []tenants.SubjectState) (tenants.Admission, error) {
	w := l.newUpdate(max(0, c.Tokens), c.IgnoreBudget, states)
	reply, err := l.takeScript.Run(ctx, l.redis.client, w.keys, w.argv...).Slice()
	if err != nil {
		return tenants.Admission{}, err
	}
	r := reader{values: reply}
	refused, place, wait := limitOf(r.int()), r.int(), r.int()
	used := make([][3]float64, len(states))
	for i := range states {
		used[i] = [3]float64{r.float(), r.float(), r.float()}
		l.local.UpdateShared(&states[i], r.sharedCounters())
	}
	if r.wrong {
		return tenants.Admission{}, errAnswer
	}
	return tenants.RemoteAdmission(c, refused, int(place), time.Duration(wait)*time.Microsecond, used), nil
}

// errAnswer means that a script's reply has an unexpected form.
var errAnswer = errors.New("Redis returned an unexpected reply to a script")

// limitOf returns the limit with the given number in the scripts, or "" for 0.
func limitOf(n int64) tenants.Limit {
	if names := tenants.LimitNames(); 0 < n && n <= int64(len(names)) {
		return names[n-1]
	}
	return ""
}

// reader reads a script's reply from left to right.
type reader struct {
	values []any
	wrong  bool
}

func (r *reader) next() (v any) {
	if len(r.values) == 0 {
		r.wrong = true
		return nil
	}
	v, r.values = r.values[0], r.values[1:]
	return v
}

func (r *reader) int() int64 {
	switch v := r.next().(type) {
	case int64:
		return v
	case string:
		n, err := strconv.ParseInt(v, 10, 64)
		r.wrong = r.wrong || err != nil
		return n
	}
	r.wrong = true
	return 0
}

func (r *reader) float() float64 {
	s, ok := r.next().(string)
	f, err := strconv.ParseFloat(s, 64)
	r.wrong = r.wrong || !ok || err != nil
	return f
}

func (r *reader) sharedCounters() (h tenants.SharedCounters) {
	for _, w := range [...]*tenants.SharedCounter{&h.Day, &h.Month} {
		w.Sum = tenants.Spent{Tokens: r.int(), Money: tenants.Money(r.int())}
		w.Own = tenants.Spent{Tokens: r.int(), Money: tenants.Money(r.int())}
	}
	return h
}

// sendSettlements sends settlements to Redis.
func (l *Limits) sendSettlements(ctx context.Context, all []*Grant) {
	updates := make([]counterUpdate, 0, len(all))
	for _, g := range all {
		if w := l.settlementUpdate(g); len(w.states) > 0 {
			updates = append(updates, w)
		}
	}
	l.sendUpdates(ctx, updates)
}

// settlementUpdate returns the update for one settled request. Rates are corrected only if Redis
// booked them.
func (l *Limits) settlementUpdate(g *Grant) counterUpdate {
	states := l.local.SubjectStates(g.charge, nil)
	for i := range states {
		now := &states[i].Limits
		for _, sub := range g.charge.Caller.Subjects {
			if then := sub.Limits; sub.Key == states[i].Key { // a limit that was added since then has no booking
				now.RPM, now.RPS, now.TPM = ifLimited(then.RPM, now.RPM), ifLimited(then.RPS, now.RPS), ifLimited(then.TPM, now.TPM)
			}
		}
	}
	by := max(0, g.used.Tokens) - max(0, g.charge.Tokens)
	if !g.shared {
		by = 0
	}
	return l.newUpdate(by, g.used.Refund && g.shared, states)
}

// changesRedis reports whether Redis stores anything that the settlement changes.
func (g *Grant) changesRedis() bool {
	for i := range g.charge.Caller.Subjects {
		l := &g.charge.Caller.Subjects[i].Limits
		rates := g.used.Refund && l.RPM+l.RPS > 0 || l.TPM > 0 && g.used.Tokens != g.charge.Tokens
		if l.Concurrent > 0 || l.Budgeted() || g.shared && rates {
			return true
		}
	}
	return false
}

// ifLimited returns the current limit if there was a limit at admission, and 0 otherwise.
func ifLimited(then, now int64) int64 {
	if then == 0 {
		return 0
	}
	return now
}

// renewAll sends the state that Redis must not lose, and the changes that it missed during an
// outage.
func (l *Limits) renewAll(ctx context.Context) {
	for states := range slices.Chunk(l.local.DirtySubjects(l.now(), nil), batch) {
		updates := make([]counterUpdate, 0, batch)
		for one := range slices.Chunk(states, 1) {
			updates = append(updates, l.newUpdate(0, false, one))
		}
		l.sendUpdates(ctx, updates)
	}
}

// sendUpdates runs the settling script for each update in one pipeline and applies the replies.
func (l *Limits) sendUpdates(ctx context.Context, updates []counterUpdate) {
	if len(updates) == 0 {
		return
	}
	err := l.redis.do(ctx, "settling with limits", func(ctx context.Context) error {
		cmds := make([]*redis.Cmd, len(updates))
		_, err := l.redis.client.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, w := range updates {
				cmds[i] = p.EvalSha(ctx, l.settleScript.Hash(), w.keys, w.argv...)
			}
			return nil
		})
		if err != nil && !redis.HasErrorPrefix(err, "NOSCRIPT") {
			return err
		}
		for i, w := range updates {
			if redis.HasErrorPrefix(cmds[i].Err(), "NOSCRIPT") {
				cmds[i] = l.settleScript.Eval(ctx, l.redis.client, w.keys, w.argv...)
			}
			reply, err := cmds[i].Slice()
			if err != nil {
				return err
			}
			r := reader{values: reply}
			for j := range w.states {
				if h := r.sharedCounters(); !r.wrong {
					l.local.UpdateShared(&w.states[j], h)
				}
			}
			if r.wrong {
				return errAnswer
			}
		}
		return nil
	})
	if err != nil {
		l.log.Debug("settlements were not sent to Redis", "cause", err)
	}
}
