package tierscore

import (
	"bytes"
	"math"
	"strings"
	"testing"
)

// testModel returns an enabled model with small weights for the route of example.
func testModel(t testing.TB) *Model {
	t.Helper()
	weights := func(factor int) (h Head) {
		h.Bias = float64(factor) / 10
		for c := range Columns + 1 {
			h.Weights = append(h.Weights, float64(c*factor%100-50)/100)
		}
		return h
	}
	f := featuresOf(example())
	m, err := NewModel(f.Key(), []uint32{f.Route()}, weights(7), weights(31))
	if err != nil {
		t.Fatal(err)
	}
	m.Standardize([]float64{-1, 1, 3}, []float64{5, 10, 15})
	m.Enabled = true
	return m
}

// checkScore verifies that a score is finite, by both functions.
func checkScore(t *testing.T, m *Model, f *Features) {
	t.Helper()
	a, known := m.Difference(f)
	b, has := m.DifferenceOf(f.AppendColumns(nil), f.WordCount(), f.Route())
	if !(math.Abs(a) <= 1) || a != b || known && !has {
		t.Errorf("the differences are %v, %v", a, b)
	}
	if score, _ := m.Score(f); math.IsNaN(score) || math.IsInf(score, 0) {
		t.Errorf("the score is %v", score)
	}
}

func TestScoreIsThatOfTheHeads(t *testing.T) {
	m, f := testModel(t), featuresOf(example())
	var z [2]float64
	for tier, h := range []head{m.small, m.large} {
		var words, counts float64
		for _, c := range f.AppendColumns(nil) {
			if c < WordColumns {
				words += h.scale * float64(h.weights[c])
			} else {
				counts += h.scale * float64(h.weights[c])
			}
		}
		z[tier] = h.bias + words/math.Sqrt(float64(f.WordCount()+1)) + counts + h.scale*float64(h.weights[Columns])
	}
	difference := 1/(1+math.Exp(-z[1])) - 1/(1+math.Exp(-z[0]))
	want := (difference - 1) / math.Sqrt(8.0/3)
	if got, ok := m.Score(f); !ok || math.Abs(got-want) > 1e-9 {
		t.Errorf("%v, %v, want %v", got, ok, want)
	}
	if got := m.Default(10 + math.Sqrt(50.0/3)); math.Abs(got-1) > 1e-9 {
		t.Errorf("a default score one deviation above the mean is %v", got)
	}
}

func TestOnlyKnownRoutesOfAnEnabledModelHaveAScore(t *testing.T) {
	m := testModel(t)
	var other Features
	NewExtractor("other").Extract(&other, example())
	other.route = featuresOf(example()).route
	in := example()
	in.Tenant = "globex"
	for name, f := range map[string]*Features{"another key": &other, "a route without labels": featuresOf(in)} {
		if _, ok := m.Score(f); ok {
			t.Errorf("%s has a score", name)
		}
	}
	m.Enabled = false
	if _, ok := m.Score(featuresOf(example())); ok {
		t.Error("a disabled model has a score")
	}
}

func TestScoreDoesNotAllocate(t *testing.T) {
	m, f := testModel(t), featuresOf(example())
	if n := testing.AllocsPerRun(100, func() { m.Score(f) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestModelsWithUnusableParametersAreErrors(t *testing.T) {
	good := Head{Weights: make([]float64, Columns)}
	nan := Head{Weights: make([]float64, Columns)}
	nan.Weights[3] = math.NaN()
	for name, c := range map[string]struct {
		routes []uint32
		large  Head
	}{
		"NaN":            {nil, nan},
		"infinite bias":  {nil, Head{math.Inf(1), good.Weights}},
		"missing weight": {[]uint32{1}, good},
		"equal routes":   {[]uint32{1, 1}, good},
		"many routes":    {make([]uint32, MaxRoutes+1), good},
	} {
		if _, err := NewModel(0, c.routes, good, c.large); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// fileOf returns the file of a model.
func fileOf(t testing.TB, m *Model) []byte {
	t.Helper()
	file, err := m.Append(nil)
	if err != nil {
		t.Fatal(err)
	}
	return file
}

func TestFileReturnsTheModel(t *testing.T) {
	m := testModel(t)
	m.Report = []byte(`{"lambda":30}`)
	file := fileOf(t, m)
	read, err := Read(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	if again := fileOf(t, read); !bytes.Equal(again, file) || string(read.Report) != `{"lambda":30}` {
		t.Error("the file of the read model is another one")
	}
	want, _ := m.Score(featuresOf(example()))
	if got, ok := read.Score(featuresOf(example())); !ok || got != want {
		t.Errorf("it scores %v, %v, want %v", got, ok, want)
	}
}

// TestLargestFileIsBelow64KiB: a model with all routes and the longest header.
func TestLargestFileIsBelow64KiB(t *testing.T) {
	routes := make([]uint32, MaxRoutes)
	for i := range routes {
		routes[i] = uint32(i)
	}
	h := Head{Weights: make([]float64, Columns+MaxRoutes)}
	m, err := NewModel(0, routes, h, h)
	if err != nil {
		t.Fatal(err)
	}
	m.Report = []byte(`{"x":"` + strings.Repeat("<", maxReport-8) + `"}`)
	file := fileOf(t, m)
	if most := len(file) + maxHeader - maxReport; most > MaxFile {
		t.Errorf("a file may have %d bytes", most)
	}
	if read, err := Read(bytes.NewReader(file)); err != nil || !bytes.Equal(fileOf(t, read), file) {
		t.Errorf("the file is not written as it was read: %v", err)
	}
	m.Report = []byte(`{"x":"` + strings.Repeat("x", maxReport) + `"}`)
	if _, err := m.Append(nil); err == nil || !strings.Contains(err.Error(), "shorten it") {
		t.Errorf("a longer header is written: %v", err)
	}
}

func TestDamagedFilesAreErrors(t *testing.T) {
	file := fileOf(t, testModel(t))
	replaced := func(old, with string) []byte {
		changed := bytes.Replace(file, []byte(old), []byte(with), 1)
		if bytes.Equal(changed, file) {
			t.Fatalf("the file has no %s", old)
		}
		return changed
	}
	for want, damaged := range map[string][]byte{
		"does not begin":       []byte("something else"),
		"ends earlier":         file[:40],
		"weights of the model": file[:len(file)-1],
		"more than":            bytes.Repeat([]byte("x"), MaxFile+1),
		"version 2":            replaced(`"features":1`, `"features":2`),
		"columns":              replaced(`"columns":1`, `"columns":2`),
		"unknown field":        replaced(`"enabled"`, `"Xnabled"`),
		"no JSON object":       replaced(`"report":{}`, `"report":[]`),
		"out of range":         replaced(`"scale":0.0`, `"scale":-0.`),
		"have 33":              replaced(`"routes":1`, `"routes":2`),
	} {
		if _, err := Read(bytes.NewReader(damaged)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
}

// FuzzModel verifies that a model that Read returns can score any request.
func FuzzModel(f *testing.F) {
	file := fileOf(f, testModel(f))
	f.Add(file, []byte("What is it?"))
	f.Add(file[:100], []byte{})
	f.Fuzz(func(t *testing.T, file, text []byte) {
		m, err := Read(bytes.NewReader(file))
		if err != nil {
			return
		}
		m.Enabled = true
		in := example()
		in.User = text
		checkScore(t, m, featuresOf(in))
		checkScore(t, m, &Features{})
		again, err := Read(bytes.NewReader(fileOf(t, m)))
		if err != nil {
			t.Fatal(err)
		}
		a, _ := m.Difference(featuresOf(in))
		if b, _ := again.Difference(featuresOf(in)); a != b {
			t.Errorf("the differences are %v and %v", a, b)
		}
	})
}
