package admin

import "tierway/server/control"

// fileWeights are the workers' weights without overrides.
func (a *Plane) fileWeights() map[string]int {
	weights := map[string]int{}
	for _, spec := range a.Control.InForce().File.Specs() {
		weights[spec.Name] = *spec.Weight
	}
	return weights
}

// expectedShares returns the share of its pool's requests that each worker gets
// by weight. Only the lowest group that has a worker which is up takes any.
// Weights replace those in force.
func expectedShares(ws []control.LiveWorker, weights map[string]int) map[string]float64 {
	shares, sum, group, found := map[string]float64{}, 0, 0, false
	weight := func(v *control.LiveWorker) int {
		if w, replaced := weights[v.ID]; replaced {
			return w
		}
		return v.Weight
	}
	for i := range ws {
		v := &ws[i]
		if v.Up && weight(v) > 0 && (!found || v.Group < group) {
			group, found = v.Group, true
		}
	}
	takes := func(v *control.LiveWorker) bool { return found && v.Up && v.Group == group && weight(v) > 0 }
	for i := range ws {
		if v := &ws[i]; takes(v) {
			sum += weight(v)
		}
	}
	for i := range ws {
		v := &ws[i]
		shares[v.ID] = 0
		if takes(v) {
			shares[v.ID] = float64(weight(v)) / float64(sum)
		}
	}
	return shares
}
