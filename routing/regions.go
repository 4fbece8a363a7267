package routing

import "slices"

// distance returns the place of the worker's region in the order of the request. Regions that the order
// lacks, and workers without a region, are the farthest.
func (r *Request) distance(w *Worker) int {
	if i := slices.Index(r.Regions, w.region); i >= 0 {
		return i
	}
	return len(r.Regions)
}

// nearestLocked keeps the free workers of the nearest region that has any, and full workers that are not
// farther: load moves to the next region once all workers of the nearer ones are full, saturated or not
// usable. If none is free, it keeps all.
func (p *Pool) nearestLocked(r *Request, ws []View) []View {
	if len(r.Regions) == 0 {
		return ws
	}
	nearest := len(r.Regions) + 1
	for i := range ws {
		if !ws[i].Full {
			nearest = min(nearest, r.distance(p.workers[ws[i].Index]))
		}
	}
	return slices.DeleteFunc(ws, func(v View) bool { return r.distance(p.workers[v.Index]) > nearest })
}
