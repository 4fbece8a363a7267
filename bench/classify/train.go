package main

import (
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"

	"tierway/tierscore"
	"tierway/tierscore/training"
)

// splits is the number of random divisions into labelled and held-out prompts. A figure is their mean.
const splits = 3

// sample is a prompt of a set.
type sample struct {
	*promptRow
	set      string
	features tierscore.Features
}

// trial is a score that learns from labelled prompts and is measured on the others.
type trial struct {
	title   string
	labels  int     // prompts with labels, at least
	wrong   float64 // share of wrong labels
	subject bool    // each subject, or set, has a route of its own; else all prompts have the same
	unseen  bool    // the held-out prompts have other subjects
	mixed   bool    // the prompts are of three sets; else only exam questions
}

func trials() (all []trial) {
	for _, wrong := range []float64{0, 0.2} {
		for _, route := range []bool{false, true} {
			for _, labels := range []int{500, 1500, 3000} {
				all = append(all, trial{"its subjects", labels, wrong, route, false, false})
			}
		}
		all = append(all, trial{"three sets", 3000, wrong, true, false, true})
	}
	return append(all, trial{"other subjects", 2500, 0, false, true, false},
		trial{"other subjects", 2500, 0, true, true, false})
}

// heldOut is what scores are worth on the held-out prompts of one set, summed over the splits.
type heldOut struct {
	set             string
	prompts, labels int
	length, learned [3]float64 // APGR and the bounds of its interval
}

// writeTraining writes what learned scores are worth beside the length of the prompt.
func writeTraining(sets []set, resamples int, markdown bool, out io.Writer) error {
	rows := [][]string{{"labels of", "labels", "wrong", "routes", "held-out prompts of", "prompts", "length", "95 %",
		"learned", "95 %"}}
	for _, t := range trials() {
		parts, err := t.measure(samplesOf(sets, t.mixed), resamples)
		if err != nil {
			return err
		}
		route := "one"
		if t.subject {
			route = "many"
		}
		for _, p := range parts {
			row := []string{t.title, fmt.Sprint((p.labels + splits/2) / splits), percent(t.wrong), route, p.set,
				fmt.Sprint(p.prompts / splits)}
			for _, v := range [][3]float64{p.length, p.learned} {
				row = append(row, fmt.Sprintf("%.3f", v[0]/splits), fmt.Sprintf("[%.3f, %.3f]", v[1]/splits, v[2]/splits))
			}
			rows = append(rows, row)
		}
	}
	var b strings.Builder
	writeTable(&b, rows, markdown)
	_, err := io.WriteString(out, b.String())
	return err
}

// samplesOf returns the exam questions, or the prompts of three sets.
func samplesOf(sets []set, mixed bool) (all []sample) {
	for _, s := range sets {
		if s.name != examName && (!mixed || s.name != gsm8kName && s.name != firstTurnsName) {
			continue
		}
		for i := range s.prompts {
			all = append(all, sample{promptRow: &s.prompts[i], set: s.name})
		}
	}
	return all
}

// measure measures each split, and returns the sums of its figures by set.
func (t trial) measure(all []sample, resamples int) (parts []heldOut, err error) {
	extractor := tierscore.NewExtractor("")
	for i := range all {
		extractor.Extract(&all[i].features, &tierscore.Input{Tenant: t.route(&all[i]), User: []byte(all[i].text), Turns: 1})
	}
	for split := range splits {
		source := rand.New(rand.NewPCG(seed, uint64(split)))
		labelled, others := t.divide(all, source)
		model, err := t.fit(labelled, source)
		if err != nil {
			return nil, err
		}
		bySet := map[string][]sample{}
		for _, p := range others {
			bySet[p.set] = append(bySet[p.set], p)
		}
		for set, prompts := range bySet {
			at := slices.IndexFunc(parts, func(p heldOut) bool { return p.set == set })
			if at < 0 {
				at, parts = len(parts), append(parts, heldOut{set: set})
			}
			parts[at].labels += len(labelled)
			parts[at].add(model, prompts, resamples)
		}
	}
	slices.SortFunc(parts, func(a, b heldOut) int { return strings.Compare(a.set, b.set) })
	return parts, nil
}

// route returns the name of a prompt's route.
func (t trial) route(p *sample) string {
	switch {
	case !t.subject:
		return ""
	case t.mixed:
		return p.set
	}
	return p.category
}

// divide returns the prompts with labels and the others, in random order.
func (t trial) divide(all []sample, source *rand.Rand) (labelled, others []sample) {
	all = slices.Clone(all)
	source.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	if !t.unseen {
		return all[:t.labels], all[t.labels:]
	}
	// The subjects in the order of their first prompts get labels, until there are enough.
	with := map[string]bool{}
	for i := range all {
		if subject := all[i].category; !with[subject] && len(labelled) < t.labels {
			with[subject] = true
			for _, p := range all {
				if p.category == subject {
					labelled = append(labelled, p)
				}
			}
		}
	}
	for _, p := range all {
		if !with[p.category] {
			others = append(others, p)
		}
	}
	return labelled, others
}

// fit returns a model of the labels, of which some are inverted.
func (t trial) fit(labelled []sample, source *rand.Rand) (*tierscore.Model, error) {
	var data training.Data
	for i := range labelled {
		p := &labelled[i]
		right := p.right
		for tier := range right {
			right[tier] = right[tier] != (source.Float64() < t.wrong)
		}
		if err := data.Add(training.Example{Features: &p.features, Baseline: float64(len(p.text)), Small: &right[0],
			Large: &right[1]}); err != nil {
			return nil, fmt.Errorf("labelling a prompt: %w", err)
		}
	}
	model, err := data.Fit()
	if err != nil {
		return nil, fmt.Errorf("fitting a model: %w", err)
	}
	return model, nil
}

// add measures the prompts of one split. Prompts of a route without labels have the default score, their length.
func (h *heldOut) add(model *tierscore.Model, prompts []sample, resamples int) {
	h.prompts += len(prompts)
	length, learned := make([]outcome, len(prompts)), make([]outcome, len(prompts))
	for i := range prompts {
		p := &prompts[i]
		length[i] = outcome{float64(len(p.text)), p.gain}
		learned[i] = outcome{model.Default(length[i].score), p.gain}
		if score, ok := model.Score(&p.features); ok {
			learned[i].score = score
		}
	}
	for to, of := range map[*[3]float64][]outcome{&h.length: length, &h.learned: learned} {
		apgr := worthOf(of, resamples, seed).apgr
		to[0], to[1], to[2] = to[0]+apgr.Value, to[1]+apgr.Low, to[2]+apgr.High
	}
}
