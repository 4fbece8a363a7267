package comparison

import (
	"bytes"
	"fmt"
	"html"
	"io"
	"math"
	"slices"
)

// Sizes of the chart in pixels.
const (
	panelWidth, panelHeight        = 440, 260
	marginLeft, marginTop          = 56, 40
	marginBottom, legendWidth, gap = 44, 170, 16
)

// colors are the colors of the policies, also distinct with red-green color blindness. Further policies get
// dashed lines.
func colors() []string {
	return []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8b6d3f"}
}

// SVG writes a chart: for each load two panels, with the mean and the 99th percentile of the time to
// first token by rate, and one line for each policy. The times have a logarithmic scale.
func (r *Report) SVG(w io.Writer) error {
	var loads, policies []string
	for i := range r.Rows {
		if !slices.Contains(loads, r.Rows[i].Load) {
			loads = append(loads, r.Rows[i].Load)
		}
		if !slices.Contains(policies, r.Rows[i].Policy) {
			policies = append(policies, r.Rows[i].Policy)
		}
	}
	width := 2*(marginLeft+panelWidth+gap) + legendWidth
	height := len(loads) * (marginTop + panelHeight + marginBottom)
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" `+
		`font-family="sans-serif" font-size="12">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", width, height)
	for k, load := range loads {
		rows := slices.DeleteFunc(slices.Clone(r.Rows), func(row Row) bool { return row.Load != load })
		top := k*(marginTop+panelHeight+marginBottom) + marginTop
		for n, figure := range []struct {
			name string
			of   func(*Row) float64
		}{
			{"mean", func(row *Row) float64 { return row.TTFT.Mean }},
			{"99th percentile", func(row *Row) float64 { return row.TTFT.P99 }},
		} {
			left := marginLeft + n*(marginLeft+panelWidth+gap)
			title := load + ": time to first token, " + figure.name + ", seconds"
			newPanel(left, top, rows, figure.of).draw(&b, title, rows, policies)
		}
		if k == 0 {
			drawLegend(&b, 2*(marginLeft+panelWidth+gap), top, policies)
		}
	}
	b.WriteString("</svg>\n")
	_, err := w.Write(b.Bytes())
	return err
}

// panel is one diagram of the chart.
type panel struct {
	left, top      int
	fromX, toX     float64
	fromLog, toLog float64 // of the seconds
	of             func(*Row) float64
}

// leastShown is the least time of the chart in seconds, because zero has no logarithm.
const leastShown = 0.001

func newPanel(left, top int, rows []Row, of func(*Row) float64) *panel {
	p := &panel{left: left, top: top, of: of, fromX: math.Inf(1), toX: math.Inf(-1), fromLog: math.Inf(1),
		toLog: math.Inf(-1)}
	for i := range rows {
		p.fromX, p.toX = min(p.fromX, rows[i].Rate), max(p.toX, rows[i].Rate)
		y := math.Log10(max(leastShown, of(&rows[i])))
		p.fromLog, p.toLog = min(p.fromLog, y), max(p.toLog, y)
	}
	const border = 0.05 // of the range, on each side
	if p.fromX == p.toX {
		p.fromX, p.toX = p.fromX-1, p.toX+1
	}
	x := border * (p.toX - p.fromX)
	p.fromX, p.toX = p.fromX-x, p.toX+x
	y := max(border, border*(p.toLog-p.fromLog))
	p.fromLog, p.toLog = p.fromLog-y, p.toLog+y
	return p
}

func (p *panel) x(rate float64) float64 {
	return float64(p.left) + panelWidth*(rate-p.fromX)/(p.toX-p.fromX)
}

func (p *panel) y(seconds float64) float64 {
	return float64(p.top) + panelHeight*(p.toLog-math.Log10(max(leastShown, seconds)))/(p.toLog-p.fromLog)
}

func (p *panel) draw(b *bytes.Buffer, title string, rows []Row, policies []string) {
	fmt.Fprintf(b, `<text x="%d" y="%d" font-weight="bold">%s</text>`+"\n", p.left, p.top-12, html.EscapeString(title))
	for decade := math.Floor(p.fromLog); decade <= p.toLog; decade++ {
		for _, step := range []float64{1, 2, 5} {
			seconds := step * math.Pow(10, decade)
			if at := math.Log10(seconds); at < p.fromLog || at > p.toLog {
				continue
			}
			fmt.Fprintf(b, `<path d="M%d %.1fh%d" stroke="#ddd"/><text x="%d" y="%.1f" text-anchor="end">%g</text>`+"\n",
				p.left, p.y(seconds), panelWidth, p.left-6, p.y(seconds)+4, seconds)
		}
	}
	var rates []float64
	for i := range rows {
		if !slices.Contains(rates, rows[i].Rate) {
			rates = append(rates, rows[i].Rate)
		}
	}
	for _, rate := range rates {
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle">%g</text>`+"\n", p.x(rate), p.top+panelHeight+16, rate)
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" text-anchor="middle">%s</text>`+"\n", p.left+panelWidth/2, p.top+panelHeight+34,
		html.EscapeString(rows[0].Unit))
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%d" height="%d" fill="none" stroke="#888"/>`+"\n", p.left, p.top, panelWidth,
		panelHeight)
	for k, policy := range policies {
		p.drawLine(b, k, policy, rows)
	}
}

// drawLine draws one policy.
func (p *panel) drawLine(b *bytes.Buffer, k int, policy string, rows []Row) {
	path, command := "", "M"
	for i := range rows {
		if rows[i].Policy != policy {
			continue
		}
		x, y := p.x(rows[i].Rate), p.y(p.of(&rows[i]))
		path += fmt.Sprintf("%s%.1f %.1f", command, x, y)
		command = "L"
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="2.5" fill="%s"><title>%s at %g: %.3g s</title></circle>`+"\n", x, y,
			colors()[k%len(colors())], html.EscapeString(policy), rows[i].Rate, p.of(&rows[i]))
	}
	fmt.Fprintf(b, `<path d="%s" fill="none" %s/>`+"\n", path, stroke(k))
}

// stroke returns the line style of the k-th policy.
func stroke(k int) string {
	style := fmt.Sprintf(`stroke="%s" stroke-width="1.8"`, colors()[k%len(colors())])
	if k >= len(colors()) {
		style += ` stroke-dasharray="6 3"`
	}
	return style
}

func drawLegend(b *bytes.Buffer, left, top int, policies []string) {
	for k, policy := range policies {
		y := top + 10 + 20*k
		fmt.Fprintf(b, `<path d="M%d %dh24" fill="none" %s/><text x="%d" y="%d">%s</text>`+"\n", left, y, stroke(k), left+32,
			y+4, html.EscapeString(policy))
	}
}
