package telemetry

import (
	"testing"
	"time"
)

// oneRequest returns every count of one request by name.
func oneRequest() map[string]func() {
	m := New("bench")
	dialects, outcomes := []string{"chat"}, []string{"ok", "refused", "failed"}
	m.SetRequestLabels(dialects, outcomes)
	m.SetLimitNames([]string{"rpm", "tpm"})
	m.KeepTenants(50)
	tier := m.Tier("small", "chwbl", dialects, outcomes)
	waits := m.Waits("small", []string{"interactive", "batch"})
	w := m.Worker("small", "a", "chwbl", []string{"prefix_home", "prefix_overflow"})
	for i := range 200 { // more tenants than have series
		m.TenantEnded(string(rune('a'+i)), 0, 1, 1, 1)
	}
	return map[string]func(){
		"Started":      func() { m.Started.Inc() },
		"Resolved":     func() { tier.Resolved("default") },
		"Overhead":     func() { m.Overhead.Observe(.00004) },
		"Selection":    func() { tier.Selection.Observe(.0000012) },
		"Selected":     func() { w.Selected("prefix_overflow") },
		"Attempt":      func() { w.OK.Inc() },
		"TTFT":         func() { w.TTFT.Observe(.2) },
		"TPOT":         func() { tier.TPOT.Observe(.03) },
		"Tokens":       func() { w.Prompt.Add(900); w.Cached.Add(500); w.Output.Add(80) },
		"Prefix":       func() { tier.CountPrefix(PrefixHit, 512, 500) },
		"StreamEnded":  func() { m.StreamEnded(EndComplete) },
		"Duration":     func() { tier.Duration.Observe(2.5) },
		"Ended":        func() { tier.Ended(0, 0) },
		"Dispatched":   func() { waits.Dispatched(1, time.Millisecond) },
		"TenantOwn":    func() { m.TenantEnded("b", 0, 900, 500, 80) },
		"TenantOther":  func() { m.TenantEnded("ĕ", 0, 900, 500, 80) },
		"TenantLimits": func() { m.TenantRefused("b", "tpm") },
	}
}

// BenchmarkCount measures each count, and all counts of one request together (All).
func BenchmarkCount(b *testing.B) {
	steps := oneRequest()
	for name, step := range steps {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				step()
			}
		})
	}
	b.Run("All", func(b *testing.B) {
		var all []func()
		for name, step := range steps {
			if name != "TenantOther" && name != "TenantLimits" { // a request has one tenant
				all = append(all, step)
			}
		}
		b.ReportAllocs()
		for b.Loop() {
			for _, step := range all {
				step()
			}
		}
	})
}

// BenchmarkRankTenants measures the comparison of 10,000 tenants.
func BenchmarkRankTenants(b *testing.B) {
	m := newBusy(50)
	for i := range 10_000 {
		ask(m, string(rune(0x4e00+i)), 1+i%7)
	}
	now := start
	for b.Loop() {
		now = now.Add(time.Second)
		m.RankTenants(now, func(string) bool { return true })
	}
}

func TestCountingDoesNotAllocate(t *testing.T) {
	for name, step := range oneRequest() {
		if n := testing.AllocsPerRun(100, step); n != 0 {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}
