package admin

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tierway/routing"
	"tierway/server/control"
)

// TestExpectedSharesFollowWeights within the lowest group that has a worker in rotation.
func TestExpectedSharesFollowWeights(t *testing.T) {
	view := func(id string, weight, group int, up bool) control.LiveWorker {
		return control.LiveWorker{WorkerView: routing.WorkerView{ID: id, Weight: weight, Group: group, Up: up}}
	}
	all := []control.LiveWorker{view("a", 1, 0, true), view("b", 3, 0, true), view("c", 5, 0, false),
		view("d", 7, 1, true)}
	for _, tt := range []struct {
		weights map[string]int
		want    map[string]float64
	}{
		{nil, map[string]float64{"a": 0.25, "b": 0.75, "c": 0, "d": 0}},
		{map[string]int{"b": 1}, map[string]float64{"a": 0.5, "b": 0.5, "c": 0, "d": 0}},
		{map[string]int{"a": 0, "b": 0}, map[string]float64{"a": 0, "b": 0, "c": 0, "d": 1}},
		{map[string]int{"a": 0, "b": 0, "d": 0}, map[string]float64{"a": 0, "b": 0, "c": 0, "d": 0}},
	} {
		if diff := cmp.Diff(tt.want, expectedShares(all, tt.weights)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", tt.weights, diff)
		}
	}
}

// TestExpectedSharesAreOfOneStage: a prefill worker takes nothing of a decode worker's share.
func TestExpectedSharesAreOfOneStage(t *testing.T) {
	view := func(id string, stages routing.Stages, group int) control.LiveWorker {
		return control.LiveWorker{WorkerView: routing.WorkerView{ID: id, Weight: 1, Group: group, Up: true, Stages: stages}}
	}
	all := []control.LiveWorker{view("p", routing.StagePrefill, 1), view("d1", routing.StageDecode, 0),
		view("d2", routing.StageDecode, 0), view("d3", routing.StageDecode, 1)}
	want := map[string]float64{"p": 1, "d1": 0.5, "d2": 0.5, "d3": 0}
	if diff := cmp.Diff(want, expectedShares(all, nil)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestEjectedWorkerHasNoExpectedShare: the next group has it. A worker in backoff keeps its share.
func TestEjectedWorkerHasNoExpectedShare(t *testing.T) {
	all := []control.LiveWorker{
		{WorkerView: routing.WorkerView{ID: "open", Weight: 1, Up: true, Open: time.Second}},
		{WorkerView: routing.WorkerView{ID: "backoff", Weight: 1, Group: 1, Up: true, Backoff: time.Second}},
	}
	want := map[string]float64{"open": 0, "backoff": 1}
	if diff := cmp.Diff(want, expectedShares(all, map[string]int{"open": 2})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestModelsAreListedOnce: the configured ones first, then the ones that the engine lists.
func TestModelsAreListedOnce(t *testing.T) {
	if diff := cmp.Diff([]string{"b", "a", "c"}, modelsOf([]string{"b", "a"}, []string{"a", "c", "b"})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
