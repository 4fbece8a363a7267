package intake

import (
	"cmp"
	"time"

	"tierway/tiers"
)

// WhyNoWorker is the reason for passing over a target without a worker that is up.
const WhyNoWorker = "has no healthy worker"

// FallBack moves a request that its pool did not serve to the next target of its list that can take it.
// why completes a sentence about the pool, such as "has a full queue". Without a further target, ok is
// false, and only the note and the moves of the resolution have changed. The charge stays as it is.
func (it *Intake) FallBack(in *Inbound, c *Caller, p *Parsed, res Resolution, why string) (_ Resolution, ok bool) {
	r := it.resolver(in, c, p)
	r.now, r.res = time.Now(), res
	v, ok := in.Snap.Catalog.FallBack(res.Resolution, r.newQuery(), why)
	if r.res.Note = v.Note; !ok {
		return r.res, false
	}
	r.res.Resolution, r.res.Pool, r.res.ModelName = v, in.Snap.ByName[v.Target], cmp.Or(v.Model, p.Req.Model)
	return r.res, true
}

// MovesIfUnavailable reports whether a request leaves its tier while that has no worker up, if another tier
// can take it: see MoveUnavailable. A follow-up of a stored response does not, because only the engine of
// the response has it.
func (it *Intake) MovesIfUnavailable(in *Inbound, p *Parsed, res *Resolution) bool {
	return in.Snap.Catalog.MovesIfUnavailable(&res.Resolution) && !p.FollowsUp()
}

// MoveUnavailable moves a request whose tier has no worker up any more to the tier that a request gets
// which arrives now. failed reports whether attempts of the request failed in a tier; such a tier does not
// get it again. Without another tier, ok is false and the resolution is res. The charge stays as it is.
func (it *Intake) MoveUnavailable(in *Inbound, c *Caller, p *Parsed, res Resolution,
	failed func(tier string) bool) (_ Resolution, ok bool) {
	if !it.MovesIfUnavailable(in, p, &res) || res.Pool.HasWorkers(time.Now()) {
		return res, false
	}
	r := it.resolver(in, c, p)
	r.now, r.res = time.Now(), res
	r.res.Moves = append([]tiers.Move(nil), res.Moves...) // res stays as it is if its ticket is dispatched meanwhile
	q := r.newQuery()
	q.Available = func(tier string) bool {
		return in.Snap.ByName[tier].Served[in.Dialect] && r.available(tier) && !failed(tier)
	}
	v, ok := in.Snap.Catalog.MoveUnavailable(res.Resolution, q)
	if !ok {
		return res, false
	}
	r.res.Resolution, r.res.Pool, r.res.ModelName = v, in.Snap.ByName[v.Target], cmp.Or(v.Model, p.Req.Model)
	return r.res, true
}
