package admin

import (
	"math"

	"tierway/server/control"
)

// fileWeights are the workers' weights without overrides.
func (a *Plane) fileWeights() map[string]int {
	weights := map[string]int{}
	for _, spec := range a.control.Snapshot().Base.Specs() {
		weights[spec.Name] = *spec.Weight
	}
	return weights
}

// expectedShares returns the share of its pool's requests that each worker gets by weight.
// Only the lowest group that has a worker in rotation gets any. Weights replace those in force.
func expectedShares(ws []control.LiveWorker, weights map[string]int) map[string]float64 {
	shares, sum, group := map[string]float64{}, 0, math.MaxInt
	weight := func(w *control.LiveWorker) int {
		v := w.WorkerView
		if replaced, ok := weights[v.ID]; ok {
			v.Weight = replaced
		}
		if !v.InRotation() {
			return 0
		}
		return v.Weight
	}
	for i := range ws {
		if weight(&ws[i]) > 0 {
			group = min(group, ws[i].Group)
		}
	}
	for i := range ws {
		v := &ws[i]
		shares[v.ID] = 0
		if v.Group == group {
			shares[v.ID] = float64(weight(v))
			sum += weight(v)
		}
	}
	for id := range shares {
		shares[id] /= float64(max(sum, 1))
	}
	return shares
}
