package tierscore

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// MaxRoutes limits the routes of a model, which need 6 bytes each in its file.
const MaxRoutes = 2048

// Head holds the parameters of one logistic head: weights of [Columns] and then of the routes.
type Head struct {
	Bias    float64
	Weights []float64
}

// Model scores requests. Its methods may be called concurrently.
type Model struct {
	// Enabled reports whether the model was better than the default score on held-out requests.
	Enabled bool
	// Report describes the training as a JSON object.
	Report []byte

	key          uint32
	routes       []uint32 // sorted
	small, large head
	learned      standard // of the difference of the heads
	baseline     standard // of the default score
}

// head is a head with weights of one byte.
type head struct {
	bias, scale float64
	weights     []int8
}

// standard are mean and standard deviation of a score over the requests of the training.
type standard struct {
	Mean      float64 `json:"mean"`
	Deviation float64 `json:"deviation"`
}

func (s standard) of(score float64) float64 { return (score - s.Mean) / s.Deviation }

// NewModel returns a model with rounded weights, which is disabled. Routes are sorted. It is an error if a number is
// out of range or the counts do not match.
func NewModel(key uint32, routes []uint32, small, large Head) (*Model, error) {
	if len(routes) > MaxRoutes || !ascending(routes) {
		return nil, fmt.Errorf("%d routes: a model has at most %d, in rising order", len(routes), MaxRoutes)
	}
	m := &Model{Report: []byte("{}"), key: key, routes: routes, learned: standard{0, 1}, baseline: standard{0, 1}}
	var err error
	if m.small, err = round(small, Columns+len(routes)); err != nil {
		return nil, fmt.Errorf("rounding the head of the small tier: %w", err)
	}
	if m.large, err = round(large, Columns+len(routes)); err != nil {
		return nil, fmt.Errorf("rounding the head of the large tier: %w", err)
	}
	return m, nil
}

func ascending(routes []uint32) bool {
	for i := 1; i < len(routes); i++ {
		if routes[i] <= routes[i-1] {
			return false
		}
	}
	return true
}

// round returns a head with weights of one byte: the largest weight is 127 or −127.
func round(h Head, columns int) (head, error) {
	if len(h.Weights) != columns {
		return head{}, fmt.Errorf("%d weights, want %d", len(h.Weights), columns)
	}
	largest := 0.0
	for _, w := range h.Weights {
		largest = math.Max(largest, math.Abs(w)) // NaN stays
	}
	if !(math.Abs(h.Bias) <= maxParameter && largest <= maxParameter) { // NaN is out of range
		return head{}, errors.New("a parameter is out of range")
	}
	r := head{bias: h.Bias, scale: largest / math.MaxInt8, weights: make([]int8, columns)}
	if !inRange(r.scale) { // all weights are 0, or as good as 0
		r.scale = 1
	}
	for i, w := range h.Weights {
		r.weights[i] = int8(math.RoundToEven(w / r.scale))
	}
	return r, nil
}

// Standardize makes learned and default scores comparable: both get mean 0 and standard deviation 1 over the given
// requests, one learned and one default score each.
func (m *Model) Standardize(differences, baselines []float64) {
	m.learned, m.baseline = standardOf(differences), standardOf(baselines)
}

func standardOf(scores []float64) standard {
	var s standard
	for _, x := range scores {
		s.Mean += x / float64(len(scores))
	}
	for _, x := range scores {
		s.Deviation += (x - s.Mean) * (x - s.Mean) / float64(len(scores))
	}
	if s.Deviation = math.Sqrt(s.Deviation); !inRange(s.Deviation) { // all are equal
		s.Deviation = 1
	}
	return s
}

// Score returns the score of a request; ok is false if the model is disabled, the features were taken with another
// key, or the labels do not suffice for the request's route. The caller then uses Default. Score does not allocate.
func (m *Model) Score(f *Features) (score float64, ok bool) {
	difference, ok := m.Difference(f)
	return m.learned.of(difference), ok && m.Enabled
}

// Matches reports whether an extractor has the key of the features that the model was trained with. Without it, no
// request has a score.
func (m *Model) Matches(e *Extractor) bool { return m.key == e.id }

// Default returns the default score of a request on the scale of Score.
func (m *Model) Default(baseline float64) float64 { return m.baseline.of(baseline) }

// Standard returns a difference on the scale of Score.
func (m *Model) Standard(difference float64) float64 { return m.learned.of(difference) }

// Difference returns P(large right) − P(small right), also of a disabled model; ok is false if Score has no score for
// the key or the route.
func (m *Model) Difference(f *Features) (difference float64, ok bool) {
	// All columns at most, each below 128 in absolute value: the sums need 22 bits.
	var small, large sums
	f.visit(func(column, part int) {
		small[part] += int32(m.small.weights[column])
		large[part] += int32(m.large.weights[column])
	})
	difference, ok = m.difference(small, large, f.buckets, f.route)
	return difference, ok && f.key == m.key
}

// DifferenceOf is Difference for the columns and the number of words of features with the model's key.
func (m *Model) DifferenceOf(columns []uint32, words int, route uint32) (difference float64, ok bool) {
	var small, large sums
	for i, column := range columns {
		part := 0
		if i >= words {
			part = 1
		}
		small[part] += int32(m.small.weights[column])
		large[part] += int32(m.large.weights[column])
	}
	return m.difference(small, large, words, route)
}

// sums are the weights of the words, and of all other columns.
type sums [2]int32

// difference returns the difference of the heads, with the weights of the route if it has any.
func (m *Model) difference(small, large sums, words int, route uint32) (float64, bool) {
	at, ok := slices.BinarySearch(m.routes, route)
	if ok {
		small[1] += int32(m.small.weights[Columns+at])
		large[1] += int32(m.large.weights[Columns+at])
	}
	value := WordValue(words)
	return m.large.probability(large, value) - m.small.probability(small, value), ok
}

// probability returns the output of a head for its sums of weights.
func (h *head) probability(s sums, value float64) float64 {
	return Logistic(h.bias + h.scale*(value*float64(s[0])+float64(s[1])))
}

// Logistic returns 1 / (1 + e^−x).
func Logistic(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// LengthLevel returns the length of the user text as a number of steps, of which each is a factor of √2, from the
// columns of [Features.AppendColumns]: 1 + 2·log2(bytes), rounded down, at most 32.
func LengthLevel(columns []uint32) (level int) {
	for _, c := range columns {
		if c >= WordColumns && c < uint32(WordColumns+runs[0].levels) {
			level++
		}
	}
	return level
}

// Key returns the identity of the extractor's key with which the features of the training were taken.
func (m *Model) Key() uint32 { return m.key }
