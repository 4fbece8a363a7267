package handover

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"tierway/e2e/conversations"
	"tierway/routing"
	"tierway/sim"
	"tierway/sim/comparison"
)

// simulate replays the conversations with the simulator, in the order of setups.
func simulate(t *testing.T, chats []*conversations.Chat, rate float64, chunk int64) []comparison.Row {
	t.Helper()
	var lines bytes.Buffer
	for _, c := range chats {
		if err := json.NewEncoder(&lines).Encode(c.Recorded); err != nil {
			t.Fatal(err)
		}
	}
	arrivals, err := sim.ReadMooncake(&lines, conversations.BlockTokens, 0)
	if err != nil {
		t.Fatal(err)
	}
	sim.Spread(arrivals, 3*time.Second)
	policies, err := comparison.ParsePolicies([]string{"kv_aware+queue", "kv_aware+queue+threshold=0",
		"kv_aware+queue+threshold=1", "kv_aware+queue+whole"})
	if err != nil {
		t.Fatal(err)
	}
	fleet := make([]sim.Engine, 8)
	for i := range fleet {
		fleet[i] = sim.Engine{Rate: engineRate, Step: engineToken, CacheTokens: cacheTokens, Chunk: chunk,
			Stages: routing.StagePrefill}
		if i >= len(fleet)/2 {
			fleet[i].Stages = routing.StageWhole | routing.StageDecode
		}
	}
	cells := comparison.TraceCells("conversations", arrivals, conversations.BlockTokens, []float64{rate})
	report, err := comparison.Run(t.Context(), comparison.Config{Engines: fleet, Cells: cells, Policies: policies,
		Seeds: []uint64{1}, Handover: &sim.Handover{Rate: 500_000}})
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	table := comparison.NewTable(&b, cells, policies, sim.RolePrefill, sim.RoleDecode)
	if err := table.Print(report.Rows); err != nil {
		t.Fatal(err)
	}
	t.Logf("simulated, with steps of %d tokens (0: whole prompts):\n%s", chunk, b.String())
	return report.Rows
}

// checkCost checks the decision by cost. Its mean time to first token may exceed that of the better fixed decision by
// the share within. Its p99 time for a token may exceed that of always remote by 10 %.
func checkCost(t *testing.T, name string, rows []comparison.Row, within float64) {
	t.Helper()
	cost, best := rows[0].TTFT.Mean, min(rows[1].TTFT.Mean, rows[2].TTFT.Mean)
	if cost > (1+within)*best {
		t.Errorf("%s: the mean time to first token by cost is %.3f s, want at most %.3f s and %g %%", name, cost, best,
			100*within)
	}
	if got, most := rows[0].Stages.Token.P99, rows[2].Stages.Token.P99*1.1; got > most {
		t.Errorf("%s: the p99 time for a token is %.4f s, want at most %.4f s", name, got, most)
	}
}

// TestSimulatedCostIsNearTheBestFixedDecision compares the mean time to first token with that of the better fixed
// decision. By cost it is at most 10 % above, and at four times the speed at most 2 %.
func TestSimulatedCostIsNearTheBestFixedDecision(t *testing.T) {
	chats := conversations.New(conversations.Generate(1, 250))
	for _, chunk := range []int64{0, 2048} {
		for rate, within := range map[float64]float64{1: 0.1, 4: 0.02} {
			checkCost(t, fmt.Sprintf("at %g × the speed with steps of %d tokens", rate, chunk),
				simulate(t, chats, rate, chunk), within)
		}
	}
}

// checkSimulation checks that the simulated time to first token by cost is close to the measured one.
func checkSimulation(t *testing.T, chats []*conversations.Chat, rate float64, measured []result) {
	t.Helper()
	rows := simulate(t, chats, rate, 0) // whole prompts, as the engines compute them
	checkCost(t, "simulated", rows, 0.1)
	for i, m := range measured {
		ratio := rows[i].TTFT.Mean / mean(m.ttfts).Seconds()
		t.Logf("%s: simulated %.3f s, %.2f times the measured mean time to first token", m.name, rows[i].TTFT.Mean, ratio)
		if i == 0 && (ratio < 0.8 || ratio > 1.25) {
			t.Errorf("the simulated time by cost is %.2f times the measured one", ratio)
		}
	}
}
