package pairing

import (
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

	_ "tierway/fixedseed"
)

// zeros is the body of all samples, each of which has a part of it.
var zeros = make([]byte, MaxBytes+1)

// sampleOf returns a sample with a body of that many bytes.
func sampleOf(id string, bytes int) *Sample { return &Sample{ID: id, Body: zeros[:bytes]} }

func TestSamplesStayWithinTheirBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s Samples
		added, left := 0, 0
		for range rapid.IntRange(0, 300).Draw(t, "samples") {
			added++
			left += s.Add(sampleOf("", rapid.SampledFrom([]int{0, 1, 1 << 20, MaxBytes / 2, MaxBytes, MaxBytes + 1}).Draw(t,
				"bytes")))
			n, bytes := s.Len()
			sum := 0
			for _, one := range s.list {
				sum += len(one.Body)
			}
			if n > MaxSamples || bytes > MaxBytes || bytes != sum || n+left != added {
				t.Fatalf("%d samples with %d bytes (%d counted) of %d, %d dropped", n, sum, bytes, added, left)
			}
		}
	})
}

func TestOldestSampleIsReplaced(t *testing.T) {
	var s Samples
	for i := range MaxSamples {
		if dropped := s.Add(sampleOf(strconv.Itoa(i), 1)); dropped != 0 {
			t.Fatalf("%d dropped for sample %d", dropped, i)
		}
	}
	if dropped := s.Add(sampleOf("new", MaxBytes-10)); dropped != MaxSamples-10 {
		t.Errorf("%d samples were dropped", dropped)
	}
	if first := s.list[0].ID; first != "90" || s.list[10].ID != "new" {
		t.Errorf("the first is %s of %d", first, len(s.list))
	}
}

func TestOnlyAnsweredRequestsAreRepeated(t *testing.T) {
	var s Samples
	first, second, third := sampleOf("1", 1), sampleOf("2", 2), sampleOf("3", 4)
	for _, one := range []*Sample{first, second, third} {
		s.Add(one)
	}
	if s.Next() != nil {
		t.Error("a request without an answer is repeated")
	}
	s.Answered(third)
	s.Answered(second)
	s.Remove(first)
	s.Remove(first)
	if a, b, c := s.Next(), s.Next(), s.Next(); a != second || b != third || c != nil {
		t.Errorf("%v %v %v", a, b, c)
	}
	if n, bytes := s.Len(); n+bytes != 0 {
		t.Errorf("%d samples with %d bytes are left", n, bytes)
	}
}

func TestSamplesExpire(t *testing.T) {
	var s Samples
	start := time.Unix(1_700_000_000, 0)
	for i := range 3 {
		one := sampleOf(strconv.Itoa(i), 1)
		one.At = start.Add(time.Duration(i) * time.Minute)
		s.Add(one)
	}
	if got := s.Expire(start.Add(MaxAge)); got != 0 {
		t.Errorf("%d expired early", got)
	}
	if got := s.Expire(start.Add(MaxAge + 2*time.Minute)); got != 2 || s.list[0].ID != "2" {
		t.Errorf("%d expired", got)
	}
}

func TestSampleWithoutARequestIsDropped(t *testing.T) {
	var s Samples
	for i := range 6 {
		one := sampleOf("", 1)
		one.Tenant = []string{"a", "b"}[i%2]
		s.Add(one)
	}
	if n := s.Drop(func(one *Sample) bool { return one.Tenant == "a" }); n != 3 {
		t.Errorf("%d were dropped", n)
	}
	for _, one := range s.list {
		if one.Tenant != "b" {
			t.Error("a sample of the other tenant is left")
		}
	}
}

func TestTierHasRoomBelowHalfOfItsSlots(t *testing.T) {
	worker := func(inflight, slots int) WorkerLoad {
		return WorkerLoad{Usable: true, Inflight: inflight, Slots: slots}
	}
	for name, c := range map[string]struct {
		load Load
		want bool
	}{
		"idle":                        {Load{Workers: []WorkerLoad{worker(0, 8)}}, true},
		"below half":                  {Load{Workers: []WorkerLoad{worker(3, 8)}}, true},
		"half":                        {Load{Workers: []WorkerLoad{worker(4, 8)}}, false},
		"half of an odd number":       {Load{Workers: []WorkerLoad{worker(1, 3)}}, true},
		"one slot, idle":              {Load{Workers: []WorkerLoad{worker(0, 1)}}, true},
		"a full one beside an idle":   {Load{Workers: []WorkerLoad{worker(3, 3), worker(0, 8)}}, true},
		"limit unknown, idle":         {Load{Workers: []WorkerLoad{worker(0, 0)}}, true},
		"limit unknown, busy":         {Load{Workers: []WorkerLoad{worker(1, 0)}}, false},
		"a queue":                     {Load{Queued: 1, Workers: []WorkerLoad{worker(0, 8)}}, false},
		"a queue of an engine":        {Load{Workers: []WorkerLoad{worker(0, 8), {Usable: true, Slots: 8, Waiting: 1}}}, false},
		"a saturated engine":          {Load{Workers: []WorkerLoad{worker(0, 8), {Usable: true, Saturated: true}}}, false},
		"unusable slots":              {Load{Workers: []WorkerLoad{worker(2, 4), {Slots: 8}}}, false},
		"requests of an unusable one": {Load{Workers: []WorkerLoad{worker(1, 4), {Inflight: 8, Slots: 8}}}, true},
		"an unusable saturated one":   {Load{Workers: []WorkerLoad{worker(1, 4), {Saturated: true, Waiting: 1}}}, true},
		"no usable worker":            {Load{Workers: []WorkerLoad{{Slots: 8}}}, false},
		"no worker":                   {Load{}, false},
	} {
		if got := c.load.HasRoom(); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
