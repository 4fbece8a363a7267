package routing

import "math/bits"

const (
	// loadLevels are the levels that are told apart: 1, 2, up to 4, 8 and so on, and
	// all above 1,024.
	loadLevels = 12
	// unloadedSamples is how many streams the line is drawn through at least: one that
	// is off by a factor of two moves it by a twentieth.
	unloadedSamples = 16
	// unloadedMemory is how many streams one level looks back over.
	unloadedMemory = 64
	// unloadedPriorWeight is the prior's weight in samples. It decides only if all prompts have one
	// length, so that no line could be drawn without it.
	unloadedPriorWeight = 0.1
)

// calm learns the time to first token of a worker with little load: a line over the
// tokens to be prefilled, drawn through the streams at the lowest levels that have
// enough of them. Those at high levels may have waited for others.
type unloadedLatencyModel struct {
	levels [loadLevels]fit
}

// line is a time in seconds: base, and token for each token.
type line struct{ base, token float64 }

// fit is the sums of a weighted least-squares line, fading with each sample.
type fit struct{ n, w, t, tt, y, ty float64 }

// add enters one sample. The weights make errors relative to the prior's time.
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

// learn enters the time of one stream's first token, at most outlier times the line up
// to now if that is sure.
func (c *unloadedLatencyModel) learn(level int, tokens, took float64, usual line, sure bool) {
	if sure {
		took = min(took, outlier*(usual.base+usual.token*tokens))
	}
	f := &c.levels[min(bits.Len(uint(level-1)), loadLevels-1)]
	f.fade(1 - 1.0/unloadedMemory)
	f.add(tokens, took, 1)
}

// line returns the line, and the highest level that it is drawn through, 0 while there
// are too few streams. A token costs at least half of the prior's: prompts that are mostly
// remembered have few tokens and show little.
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
