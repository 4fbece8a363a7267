package routing

import "math/bits"

const (
	// loadLevels is the number of ranges of levels: 1, 2, up to 4, 8 and so on, and everything
	// above 1,024.
	loadLevels = 12
	// unloadedSamples is the minimum number of streams that the line is fitted to. A stream that is
	// off by a factor of two then changes it by a twentieth.
	unloadedSamples = 16
	// unloadedMemory is the number of streams that each range keeps, with fading weights.
	unloadedMemory = 64
	// unloadedPriorWeight is the prior's weight in samples. It matters only if all prompts have
	// the same length, so that the samples alone determine no line.
	unloadedPriorWeight = 0.1
)

// unloadedLatencyModel learns the time to first token of a worker with little load: a line over
// the tokens to prefill. It uses the streams at the lowest levels that have enough of them,
// because streams at high levels may have waited for others.
type unloadedLatencyModel struct {
	levels [loadLevels]fit
}

// line is a time in seconds: base, plus token for each token.
type line struct{ base, token float64 }

// fit holds the sums of a weighted least-squares line, which fade with each sample.
type fit struct{ n, w, t, tt, y, ty float64 }

// add adds one sample. The weights make errors relative to the prior's time.
func (f *fit) add(tokens, took, weight float64) {
	usual := firstStep.Seconds() + tokens/rateLimits.prior
	w := weight / (usual * usual)
	f.n, f.w, f.t, f.tt = f.n+1, f.w+w, f.t+w*tokens, f.tt+w*tokens*tokens
	f.y, f.ty = f.y+w*took, f.ty+w*tokens*took
}

func (f *fit) fade(by float64) {
	f.n, f.w, f.t, f.tt, f.y, f.ty = f.n*by, f.w*by, f.t*by, f.tt*by, f.y*by, f.ty*by
}

func (f *fit) join(o *fit) {
	f.n, f.w, f.t, f.tt, f.y, f.ty = f.n+o.n, f.w+o.w, f.t+o.t, f.tt+o.tt, f.y+o.y, f.ty+o.ty
}

// learn adds the time to first token of one stream. If usual is known well enough (sure), the
// sample is clamped to outlier times that line.
func (c *unloadedLatencyModel) learn(level int, tokens, took float64, usual line, sure bool) {
	if sure {
		took = min(took, outlier*(usual.base+usual.token*tokens))
	}
	f := &c.levels[min(bits.Len(uint(level-1)), loadLevels-1)]
	f.fade(1 - 1.0/unloadedMemory)
	f.add(tokens, took, 1)
}

// line returns the line, and the highest level behind it, or 0 if there are too few streams. A
// token costs at least half of the prior's time: prompts that are mostly cached have few tokens
// to prefill and show little.
func (c *unloadedLatencyModel) line() (l line, upTo int) {
	var f fit
	for i := range c.levels {
		if f.join(&c.levels[i]); f.n >= unloadedSamples {
			upTo = 1 << i
			break
		}
	}
	f.add(0, firstStep.Seconds(), unloadedPriorWeight)
	f.add(rateLimits.prior, firstStep.Seconds()+1, unloadedPriorWeight)
	l.token = max((f.w*f.ty-f.t*f.y)/(f.w*f.tt-f.t*f.t), 0.5/rateLimits.prior)
	l.base = max(0, (f.y-l.token*f.t)/f.w)
	return l, upTo
}
