// Package curve measures what an order of requests is worth if the first ones go to a large tier and the others to a
// small one. The gain of a request is the quality of the large tier's answer minus that of the small tier's.
//
// APGR and CPT are the measures of RouteLLM (Ong et al., 2024): the area under the recovered part of the gap between
// the tiers, and the smallest share of requests at the large tier that recovers a part of it.
package curve

import (
	"cmp"
	"math"
	"slices"
)

// Order is requests by falling score. Requests of equal scores are one block, without an order inside it.
type Order struct {
	index []int // of the requests
	ends  []int // of the blocks in index
}

// NewOrder returns the order of requests by their scores.
func NewOrder(scores []float64) Order {
	o := Order{index: make([]int, len(scores))}
	for i := range o.index {
		o.index[i] = i
	}
	slices.SortStableFunc(o.index, func(a, b int) int { return cmp.Compare(scores[b], scores[a]) })
	for k, i := range o.index {
		if k+1 == len(o.index) || scores[o.index[k+1]] != scores[i] {
			o.ends = append(o.ends, k+1)
		}
	}
	return o
}

// Point is the gain if a share of all requests goes to the large tier.
type Point struct {
	Share float64 // 0 to 1
	Gain  float64 // sum of the gains of these requests, divided by the number of all requests
}

// Curve is the points of an order at the ends of its blocks, by rising share, from (0, 0) to (1, gap). Between two
// points it is a straight line, as if the requests of a block came in random order.
type Curve []Point

// Append appends the curve of the order to dst. times has how often each request counts; nil means once each.
func (o Order) Append(dst Curve, gains []float64, times []int) Curve {
	count := func(i int) float64 {
		if times == nil {
			return 1
		}
		return float64(times[i])
	}
	all := 0.0
	for i := range gains {
		all += count(i)
	}
	var n, gain float64
	dst, from := append(dst, Point{}), 0
	for _, end := range o.ends {
		before := n
		for _, i := range o.index[from:end] {
			n, gain = n+count(i), gain+count(i)*gains[i]
		}
		if from = end; n > before {
			dst = append(dst, Point{n / all, gain / all})
		}
	}
	return dst
}

// gap returns the gain of the large tier over all requests; ok is false unless it is above 0.
func (c Curve) gap() (gap float64, ok bool) {
	gap = c[len(c)-1].Gain
	return gap, gap > 0
}

// APGR returns the area under the recovered part of the gap, as the share of requests at the large tier rises from 0 to
// 1. A random order has 0.5. It is NaN without a gap.
func (c Curve) APGR() float64 {
	gap, ok := c.gap()
	if !ok {
		return math.NaN()
	}
	area := 0.0
	for i := 1; i < len(c); i++ {
		area += (c[i].Share - c[i-1].Share) * (c[i-1].Gain + c[i].Gain) / 2 / gap
	}
	return area
}

// CPT returns the smallest share of requests at the large tier that recovers a part of the gap, which is above 0 and at
// most 1. It is NaN without a gap.
func (c Curve) CPT(part float64) float64 {
	gap, ok := c.gap()
	if !ok {
		return math.NaN()
	}
	return c.Reach(part * gap)
}

// Reach returns the smallest share of requests at the large tier that reaches a gain: 0 if the gain is not above 0, and
// NaN if no share reaches it.
func (c Curve) Reach(gain float64) float64 {
	if gain <= 0 {
		return 0
	}
	for i := 1; i < len(c); i++ {
		if a, b := c[i-1], c[i]; b.Gain >= gain {
			return a.Share + (b.Share-a.Share)*(gain-a.Gain)/(b.Gain-a.Gain)
		}
	}
	return math.NaN()
}

// GainAt returns the gain if a share of the requests, from 0 to 1, goes to the large tier.
func (c Curve) GainAt(share float64) float64 {
	for i := 1; i < len(c); i++ {
		if a, b := c[i-1], c[i]; share <= b.Share {
			return a.Gain + (b.Gain-a.Gain)*(share-a.Share)/(b.Share-a.Share)
		}
	}
	return c[len(c)-1].Gain
}
