package store_test

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"testing"
	"time"

	"tierway/store"
	"tierway/tenants"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func write(t testing.TB, s *store.SQL, rows ...store.Row) int {
	t.Helper()
	return must(s.WriteRows(t.Context(), rows))(t)
}

// batch returns n rows of different requests.
func batch(prefix string, n int) []store.Row {
	rows := make([]store.Row, n)
	for i := range rows {
		rows[i] = store.Row{ID: idOf(noon, prefix, i), RequestID: "r", At: noon, Tenant: "acme", Key: fmt.Sprintf("k%d", i%3),
			Class: "batch",
			Route: "/v1/chat/completions", Tier: "small", Model: "m", Worker: "w1", Outcome: "ok", Status: 200, Attempts: 1,
			Prompt: 100, Cached: 10, Output: 20, Money: 3, FromCache: true, Saved: 4, DurationMs: 5}
	}
	return rows
}

// RL-11: a flush that is written again, in whole, in part or by two gateways at
// once, counts once.
func TestRepeatedBatchCountsOnce(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.SQL) {
		rows := batch("a", 250)
		if n := write(t, s, rows...); n != 250 {
			t.Errorf("%d rows were new", n)
		}
		if n := write(t, s, append(batch("b", 10), rows...)...); n != 10 {
			t.Errorf("of a replay with ten more rows %d were new", n)
		}
		if n := write(t, s, append(batch("c", 2), batch("c", 2)...)...); n != 2 {
			t.Errorf("of a batch with each row twice %d were new", n)
		}
		var both sync.WaitGroup
		for range 4 {
			both.Go(func() {
				if _, err := s.WriteRows(t.Context(), batch("d", 200)); err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		const n = 250 + 10 + 2 + 200
		same(t, "the usage", must(s.Usage(t.Context(), store.UsageQuery{Tenant: "acme"}))(t),
			[]store.UsageRow{{Day: "2026-11-21", Requests: n, Prompt: 100 * n, Cached: 10 * n, Output: 20 * n, Money: 3 * n,
				CachedRequests: n, Saved: 4 * n}})
	})
}

func TestUsageIsGroupedByDayAndGroup(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.SQL) {
		day := 24 * time.Hour
		rows := []store.Row{
			{At: noon, Tier: "small", Model: "a", Key: "k1", Outcome: "ok", Prompt: 1, Cached: 1, Output: 2, Money: 3,
				FromCache: true, Saved: 7},
			{At: noon, Tier: "small", Model: "b", Key: "k2", Outcome: "failed", Prompt: 10, Estimated: true},
			{At: noon, Tier: "large", Model: "c", Key: "k1", Outcome: "truncated", Output: 100, Estimated: true},
			{At: noon.Add(12*time.Hour - time.Microsecond), Outcome: "refused", Key: "k1"},
			{At: noon.Add(12 * time.Hour), Outcome: "client_gone", Key: "k1"},
			{At: noon.Add(-day), Outcome: "ok", Key: "k2"},
		}
		for i := range rows {
			rows[i].ID, rows[i].Tenant = fmt.Sprint(i), "acme"
		}
		write(t, s, append(rows, store.Row{ID: "x", At: noon, Tenant: "other", Outcome: "ok"})...)
		const d1, d2, d3 = "2026-11-20", "2026-11-21", "2026-11-22"
		whole := store.UsageRow{Day: d2, Requests: 4, Refused: 1, Failed: 2, Estimated: 2, Prompt: 11, Cached: 1, Output: 102,
			Money: 3, CachedRequests: 1, Saved: 7}
		for _, c := range []struct {
			q    store.UsageQuery
			want []store.UsageRow
		}{
			{store.UsageQuery{}, []store.UsageRow{{Day: d1, Requests: 1}, whole, {Day: d3, Requests: 1, Gone: 1}}},
			{store.UsageQuery{From: noon, To: noon.Add(day)}, []store.UsageRow{whole}},
			{store.UsageQuery{From: noon, To: noon.Add(day), GroupBy: "tier"},
				[]store.UsageRow{{Day: d2, Requests: 1, Refused: 1},
					{Day: d2, Group: "large", Requests: 1, Failed: 1, Estimated: 1, Output: 100},
					{Day: d2, Group: "small", Requests: 2, Failed: 1, Estimated: 1, Prompt: 11, Cached: 1, Output: 2, Money: 3,
						CachedRequests: 1, Saved: 7}}},
			{store.UsageQuery{To: noon, GroupBy: "key"}, []store.UsageRow{{Day: d1, Group: "k2", Requests: 1}}},
			{store.UsageQuery{From: noon.Add(day), GroupBy: "outcome"},
				[]store.UsageRow{{Day: d3, Group: "client_gone", Requests: 1, Gone: 1}}},
			{store.UsageQuery{Key: "k2", GroupBy: "model"},
				[]store.UsageRow{{Day: d1, Requests: 1}, {Day: d2, Group: "b", Requests: 1, Failed: 1, Estimated: 1, Prompt: 10}}},
		} {
			c.q.Tenant = "acme"
			same(t, fmt.Sprintf("%+v", c.q), must(s.Usage(t.Context(), c.q))(t), c.want)
		}
	})
}

func TestBudgetsAreRebuiltFromTheRollUp(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.SQL) {
		at := func(month time.Month, day, hour int) time.Time {
			return time.Date(2026, month, day, hour, 0, 0, 0, time.UTC)
		}
		for i, r := range []store.Row{
			{Tenant: "a", Key: "k1", At: at(11, 21, 0), Prompt: 1, Output: 2, Money: 10},
			{Tenant: "a", Key: "k2", At: at(11, 21, 23), Prompt: 10, Cached: 9, Money: 20},
			{Tenant: "a", Key: "k1", At: at(11, 1, 0), Output: 100, Money: 40},
			{Tenant: "a", Key: "k1", At: at(11, 30, 23), Output: 1000},
			{Tenant: "a", Key: "k1", At: at(10, 31, 23), Output: 7},
			{Tenant: "a", Key: "k1", At: at(12, 1, 0), Output: 7},
			{Tenant: "anonymous", At: at(11, 21, 1), Output: 5},
		} {
			r.ID, r.Outcome = idOf(r.At, "row", i), "ok"
			write(t, s, r)
		}
		spent := func(tokens int64, money tenants.Money) tenants.Spent {
			return tenants.Spent{Tokens: tokens, Money: money}
		}
		want := []store.SpentRow{
			{Tenant: "a", Day: spent(13, 30), Month: spent(1113, 70)},
			{Tenant: "a", Key: "k1", Day: spent(3, 10), Month: spent(1103, 50)},
			{Tenant: "a", Key: "k2", Day: spent(10, 20), Month: spent(10, 20)},
			{Tenant: "anonymous", Day: spent(5, 0), Month: spent(5, 0)},
		}
		same(t, "spent", must(s.Spent(t.Context(), noon.In(time.FixedZone("east", 11*3600))))(t), want)
		// A clock that is back by up to two days counts what is booked already.
		for _, c := range []struct {
			now        time.Time
			day, month int64
		}{{at(11, 20, 1), 13, 1113}, {at(11, 19, 1), 13, 1113}, {at(11, 18, 1), 0, 1113}, {at(10, 31, 1), 107, 107}} {
			if got := must(s.Spent(t.Context(), c.now))(t)[0]; got.Day.Tokens != c.day || got.Month.Tokens != c.month {
				t.Errorf("on %v it is %+v, want %d and %d tokens", c.now, got, c.day, c.month)
			}
		}
		if n := must(s.Prune(t.Context(), noon.AddDate(1, 0, 0)))(t); n != 7 {
			t.Errorf("%d rows went", n)
		}
		same(t, "spent, when the rows are gone", must(s.Spent(t.Context(), noon))(t), want)
	})
}

// idOf is an id that begins with its time, as a UUID of version 7 does.
func idOf(at time.Time, prefix string, i int) string {
	ms := fmt.Sprintf("%012x", at.UnixMilli())
	return fmt.Sprintf("%s-%s-%s-%d", ms[:8], ms[8:], prefix, i)
}

func TestPruneDeletesOnlyOldRows(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.SQL) {
		old := batch("old", 11_000) // more than go at once
		for i := range old {
			old[i].At = noon.Add(-time.Hour)
			old[i].ID = idOf(old[i].At, "old", i)
		}
		for part := range slices.Chunk(old, 500) {
			write(t, s, part...)
		}
		write(t, s, batch("new", 3)...)
		for _, want := range []int64{11_000, 0} {
			if n := must(s.Prune(t.Context(), noon))(t); n != want {
				t.Errorf("%d rows went, want %d", n, want)
			}
		}
		if n := write(t, s, batch("new", 3)...); n != 0 {
			t.Errorf("%d new rows are gone", n)
		}
	})
}

func TestReportedUsageIsBounded(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.SQL) {
		r := store.Row{At: noon, Tenant: "acme", Outcome: "ok", Model: "m\x00\xff", RequestID: string(make([]byte, 10_000)),
			Prompt: math.MaxInt64, Output: -5, Money: math.MaxInt64, Saved: math.MaxInt64}
		for i := range 20 {
			r.ID = fmt.Sprint(i)
			write(t, s, r)
		}
		got := must(s.Usage(t.Context(), store.UsageQuery{Tenant: "acme", GroupBy: "model"}))(t)
		if len(got) != 1 || got[0].Group != "m\uFFFD\uFFFD" || got[0].Prompt != 20e12 || got[0].Output != 0 ||
			got[0].Money != 20_000_000*tenants.Unit || got[0].Saved != 20_000_000*tenants.Unit {
			t.Errorf("the usage is %+v", got)
		}
	})
}

func BenchmarkWritingRows(b *testing.B) {
	for _, d := range databases() {
		b.Run(d.name, func(b *testing.B) {
			s := open(b, d.url(b))
			if _, err := s.Migrate(b.Context()); err != nil {
				b.Fatal(err)
			}
			i := 0
			for b.Loop() {
				if _, err := s.WriteRows(b.Context(), batch(fmt.Sprint(i), 500)); err != nil {
					b.Fatal(err)
				}
				i++
			}
			b.ReportMetric(float64(500*i)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

func BenchmarkReadingTheDirectory(b *testing.B) {
	for _, d := range databases() {
		b.Run(d.name, func(b *testing.B) {
			s := open(b, d.url(b))
			migrate(b, s)
			for i := range 1000 {
				name := fmt.Sprintf("t%d", i)
				createTenant(b, s, name)
				for range 3 {
					createKey(b, s, name)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				contents(b, s)
			}
		})
	}
}

func TestUsageByTierIsOfAllTenantsAndDays(t *testing.T) {
	onEach(t, func(t *testing.T, s *store.SQL) {
		day := 24 * time.Hour
		rows := []store.Row{
			{At: noon, Tenant: "a", Tier: "small", Outcome: "ok", Prompt: 1, Output: 2, Money: 3},
			{At: noon.Add(day), Tenant: "b", Key: "k", Tier: "small", Outcome: "refused", Prompt: 10, FromCache: true, Saved: 7},
			{At: noon, Tenant: "b", Tier: "large", Model: "m", Outcome: "ok", Output: 100},
			{At: noon, Tenant: "b", Outcome: "refused"},
			{At: noon.Add(-day), Tenant: "a", Tier: "small", Outcome: "ok", Prompt: 1000},
			{At: noon.Add(2 * day), Tenant: "a", Tier: "small", Outcome: "ok", Prompt: 1000},
		}
		for i := range rows {
			rows[i].ID = fmt.Sprint(i)
		}
		write(t, s, rows...)
		same(t, "usage", must(s.UsageByTier(t.Context(), noon, noon.Add(2*day), ""))(t), []store.UsageRow{
			{Requests: 1, Refused: 1}, {Group: "large", Requests: 1, Output: 100},
			{Group: "small", Requests: 2, Refused: 1, Prompt: 11, Output: 2, Money: 3, CachedRequests: 1, Saved: 7}})
		same(t, "usage without a tenant", must(s.UsageByTier(t.Context(), noon, noon.Add(2*day), "b"))(t), []store.UsageRow{
			{Group: "small", Requests: 1, Prompt: 1, Output: 2, Money: 3}})
	})
}
