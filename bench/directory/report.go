package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits of the figures.
const (
	changeFactor       = 2 // of a change, relative to the smallest size
	revokeWithRedis    = time.Second
	revokeWithoutRedis = 2 * time.Second
	startLimit         = 20 * time.Second
	memoryLimitKiB     = 1 << 20
	reloadLimit        = 20 * time.Millisecond
)

// startResult is the starts of three gateways in turn, and the largest memory of them.
type startResult struct {
	cell
	walls, cpus     []time.Duration
	peakKiB, nowKiB int
}

// changeResult is the medians of one kind of change.
type changeResult struct {
	cell
	redis  bool
	change string
	cost   cost
}

// revokeResult is the times until a revoked key is refused.
type revokeResult struct {
	cell
	redis bool
	times []time.Duration
}

// idleResult is the processor time of each gateway per minute without a change.
type idleResult struct {
	cell
	perMinute []time.Duration
}

// reloadResult is the median of the reloads.
type reloadResult struct {
	cell
	cost cost
}

// table is one part of the report.
type table struct {
	title string
	rows  [][]string // the first one has the names of the columns
}

// report returns all tables that have figures.
func (m *measurement) report(markdown bool) string {
	var b strings.Builder
	b.WriteString(m.setup() + "\n")
	for _, t := range []table{m.startTable(), m.changeTable(), m.revokeTable(), m.idleTable(), m.reloadTable()} {
		if len(t.rows) > 1 {
			b.WriteString(t.text(markdown))
		}
	}
	return b.String()
}

func (m *measurement) startTable() table {
	t := table{title: fmt.Sprintf("Start to ready, the slowest of %d gateways in turn; limits: %s and %d MiB", gateways,
		startLimit, memoryLimitKiB/1024)}
	t.add("database", "keys", "wall", "CPU", "peak RSS", "RSS after "+m.settle.String(), "RSS per key", "result")
	for _, r := range m.starts {
		perKey := ""
		if first, ok := find(m.starts, func(f startResult) bool { return r.under(f.cell) }); ok {
			perKey = fmt.Sprintf("%.0f B", float64(r.nowKiB-first.nowKiB)*1024/float64(r.seeds.keys))
		}
		wall := slices.Max(r.walls)
		t.add(r.database, r.seeds.String(), seconds(wall), seconds(slices.Max(r.cpus)), mib(r.peakKiB), mib(r.nowKiB), perKey,
			verdict(wall <= startLimit && r.peakKiB <= memoryLimitKiB))
	}
	return t
}

func (m *measurement) changeTable() table {
	t := table{title: fmt.Sprintf("Changes, medians of the time until the answer and of the processor time until "+
		"all gateways are quiet; limit: %d × that with the fewest keys", changeFactor)}
	t.add("database", "Redis", "change", "keys", "answer", "× fewest", "CPU of the gateways", "CPU sum", "× fewest",
		"result")
	for _, r := range m.changes {
		wallRatio, cpuRatio, result := "", "", ""
		first, ok := find(m.changes, func(f changeResult) bool {
			return r.under(f.cell) && f.redis == r.redis && f.change == r.change
		})
		if ok {
			wallTimes, cpuTimes := ratio(r.cost.wall, first.cost.wall), ratio(r.cost.total(), first.cost.total())
			wallRatio, cpuRatio = fmt.Sprintf("%.2f", wallTimes), fmt.Sprintf("%.2f", cpuTimes)
			result = changeVerdict(wallTimes, cpuTimes)
		}
		each := make([]string, len(r.cost.cpu))
		for i, cpu := range r.cost.cpu {
			each[i] = fmt.Sprintf("%.1f", float64(cpu)/float64(time.Millisecond))
		}
		t.add(r.database, yesNo(r.redis), r.change, r.seeds.String(), millis(r.cost.wall), wallRatio,
			strings.Join(each, ", ")+" ms", millis(r.cost.total()), cpuRatio, result)
	}
	return t
}

func (m *measurement) revokeTable() table {
	t := table{title: fmt.Sprintf("Revocations, from the answer until the other gateways refuse the key; limits of the "+
		"maximum: %s with Redis, %s without", revokeWithRedis, revokeWithoutRedis)}
	t.add("database", "Redis", "keys", "median", "maximum", "result")
	for _, r := range m.revokes {
		limit := revokeWithoutRedis
		if r.redis {
			limit = revokeWithRedis
		}
		longest := slices.Max(r.times)
		t.add(r.database, yesNo(r.redis), r.seeds.String(), millis(median(r.times)), millis(longest),
			verdict(longest <= limit))
	}
	return t
}

func (m *measurement) idleTable() table {
	t := table{title: "Idle gateways without Redis, processor time per minute without a change"}
	t.add("database", "keys", "mean of the gateways")
	for _, r := range m.idles {
		mean := cost{cpu: r.perMinute}.total() / time.Duration(len(r.perMinute))
		t.add(r.database, r.seeds.String(), millis(mean))
	}
	return t
}

func (m *measurement) reloadTable() table {
	t := table{title: fmt.Sprintf("Reloads with %s workers and another weight of one; limit: %s of processor time",
		thousands(m.workers), reloadLimit)}
	t.add("database", "keys", "answer", "CPU", "result")
	for _, r := range m.reloads {
		t.add(r.database, r.seeds.String(), millis(r.cost.wall), millis(r.cost.total()),
			verdict(r.cost.total() <= reloadLimit))
	}
	return t
}

// under reports whether the cell is compared with f, the cell of the same database with the fewest keys.
func (c cell) under(f cell) bool {
	return c.database == f.database && c != f && !f.seeds.skewed && f.seeds.keys < c.seeds.keys
}

// find returns the first result that is wanted.
func find[R any](all []R, wanted func(R) bool) (r R, ok bool) {
	if i := slices.IndexFunc(all, wanted); i >= 0 {
		return all[i], true
	}
	return r, false
}

// ratio returns a divided by b. This harness cannot measure differences below 0.1 ms.
func ratio(a, b time.Duration) float64 {
	const least = 100 * time.Microsecond
	return float64(max(a, least)) / float64(max(b, least))
}

func verdict(met bool) string {
	if met {
		return "pass"
	}
	return "FAIL"
}

// changeVerdict names the ratios that exceed the limit of a change.
func changeVerdict(wall, cpu float64) string {
	var exceeded []string
	if wall > changeFactor {
		exceeded = append(exceeded, "answer")
	}
	if cpu > changeFactor {
		exceeded = append(exceeded, "CPU")
	}
	if len(exceeded) == 0 {
		return verdict(true)
	}
	return verdict(false) + ": " + strings.Join(exceeded, ", ")
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

func millis(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}

func mib(kib int) string { return fmt.Sprintf("%.0f MiB", float64(kib)/1024) }

// thousands returns a number with separators.
func thousands(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

// text returns the table with aligned columns, or as Markdown.
func (t *table) text(markdown bool) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s\n\n", t.title)
	widths := make([]int, len(t.rows[0]))
	for _, row := range t.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for n, row := range t.rows {
		if markdown {
			b.WriteString("| " + strings.Join(row, " | ") + " |\n")
			if n == 0 {
				b.WriteString(strings.Repeat("|---", len(row)) + "|\n")
			}
			continue
		}
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+2))
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}
