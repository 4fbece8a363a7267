package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// subjects returns exam questions of ten subjects. In each subject, long questions have the gain.
func subjects(n int) (s set) {
	s = set{name: examName, points: 100}
	for i := range n {
		p := promptRow{text: fmt.Sprintf("question %d of topic%d", i, i%10), category: fmt.Sprint("subject ", i%10),
			right: [2]bool{true, true}}
		if i/10%2 == 0 {
			p.text, p.gain, p.right[0] = p.text+strings.Repeat(" long", 20), 1, false
		}
		s.prompts = append(s.prompts, p)
	}
	return s
}

func TestHeldOutPromptsHaveNoLabels(t *testing.T) {
	all := samplesOf([]set{subjects(100)}, false)
	for _, unseen := range []bool{false, true} {
		labelled, others := trial{labels: 45, unseen: unseen}.divide(all, rand.New(rand.NewPCG(1, 1)))
		seen := map[string]bool{}
		for _, p := range labelled {
			seen[p.text] = true
			seen[p.category] = unseen
		}
		for _, p := range others {
			if seen[p.text] || seen[p.category] {
				t.Errorf("unseen %v: %q of %s has a label", unseen, p.text, p.category)
			}
		}
		if len(labelled)+len(others) != len(all) || len(labelled) < 45 || len(labelled) > 55 {
			t.Errorf("unseen %v: %d prompts with labels, %d without", unseen, len(labelled), len(others))
		}
	}
}

// TestUnseenSubjectsHaveTheOrderOfLength, because no label is of their route.
func TestUnseenSubjectsHaveTheOrderOfLength(t *testing.T) {
	parts, err := trial{labels: 100, subject: true, unseen: true}.measure(samplesOf([]set{subjects(200)}, false), 40)
	if err != nil {
		t.Fatal(err)
	}
	if len(parts) != 1 || parts[0].length != parts[0].learned || parts[0].prompts == 0 {
		t.Errorf("%+v", parts)
	}
}

func TestLearnedScoreFindsTheGain(t *testing.T) {
	parts, err := trial{labels: 300, wrong: 0.1, subject: true}.measure(samplesOf([]set{subjects(600)}, false), 40)
	if err != nil {
		t.Fatal(err)
	}
	if len(parts) != 1 || parts[0].learned[0]/splits < 0.7 {
		t.Errorf("%+v", parts)
	}
}
