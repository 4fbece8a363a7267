package intake

import (
	"cmp"
	"time"
)

// WhyNoWorker is the reason for passing over a target without a worker that is up.
const WhyNoWorker = "has no healthy worker"

// FallBack moves a request that its pool did not serve to the next target of its list that can take it.
// why completes a sentence about the pool, such as "has a full queue". Without a further target, ok is
// false, and only the note and the moves of the resolution have changed. The charge stays as it is.
func (it *Intake) FallBack(in *Inbound, c *Caller, p *Parsed, res Resolution, why string) (_ Resolution, ok bool) {
	r := it.resolver(in, c, p)
	r.now, r.res = time.Now(), res
	v, ok := in.Snap.Catalog.FallBack(res.Resolution, r.query(), why)
	if r.res.Note = v.Note; !ok {
		return r.res, false
	}
	r.res.Resolution, r.res.Pool, r.res.ModelName = v, in.Snap.ByName[v.Target], cmp.Or(v.Model, p.Req.Model)
	return r.res, true
}
