package report

import (
	"encoding/xml"
	"fmt"
	"math"
	"strings"

	"tierway/tierscore/training"
)

// Size of the picture and of its plot, in pixels.
const (
	width, height           = 760, 440
	left, top, right, below = 70, 56, 520, 370
)

// style has the colours for light and dark backgrounds. The curves also differ by their dashes, for readers who do not
// distinguish the colours (the palette of Okabe and Ito).
const style = `svg{background:#fff;color:#1b1f24;font:13px system-ui,sans-serif}text{fill:currentColor}` +
	`.title{font-size:16px;font-weight:600}.grid{stroke:currentColor;stroke-opacity:.18}.curve{fill:none;stroke-width:2}` +
	`.default{stroke:#0072b2}.length{stroke:#b35900;stroke-dasharray:7 4}.random{stroke:#6a737d;stroke-dasharray:2 4}` +
	`.model{stroke:#00805d;stroke-dasharray:12 4 2 4}.band{fill:#0072b2;fill-opacity:.14}` +
	`@media(prefers-color-scheme:dark){svg{background:#14171c;color:#e6e8eb}.default{stroke:#56b4e9}.length{stroke:#e69f00}` +
	`.random{stroke:#9aa4ae}.model{stroke:#3fc79a}.band{fill:#56b4e9}}`

// SVG returns a picture of the curves: right answers by the share of requests at the large tier. It needs no other
// file, and has a title and a description for screen readers.
func (r *Report) SVG() []byte {
	var b strings.Builder
	p := plot{b: &b}
	p.low, p.high = r.bounds()
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-labelledby="title desc">`+"\n",
		width, height)
	fmt.Fprintf(&b, `<title id="title">Right answers by the share of requests at %s</title>`+"\n", escape(r.LargeTier))
	fmt.Fprintf(&b, `<desc id="desc">%s</desc>`+"\n<style>%s</style>\n", escape(r.describe()), style)
	fmt.Fprintf(&b, `<text class="title" x="%d" y="24">Right answers by the share of requests at %s</text>`+"\n", left,
		escape(r.LargeTier))
	fmt.Fprintf(&b, `<text x="%d" y="44">%d requests with labels, %s to %s</text>`+"\n", left, r.Evaluated,
		r.From.UTC().Format("2006-01-02"), r.To.UTC().Format("2006-01-02"))
	p.axes(r.LargeTier)
	for i, c := range r.Curves {
		if c.Name == training.CurveDefault {
			p.band(c)
		}
		p.curve(c, i, r.legend(&c))
	}
	b.WriteString("</svg>\n")
	return []byte(b.String())
}

// bounds returns the lowest and the highest quality of the plot, in whole steps of 5 %.
func (r *Report) bounds() (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, c := range r.Curves {
		for _, p := range c.Points {
			low, high = min(low, p.Quality.Value), max(high, p.Quality.Value)
			if c.Name == training.CurveDefault {
				low, high = min(low, p.Quality.Low), max(high, p.Quality.High)
			}
		}
	}
	low = math.Floor(low*20) / 20
	return low, max(math.Ceil(high*20)/20, low+0.05)
}

// describe returns the description: the curves with their areas and ends.
func (r *Report) describe() string {
	var all []string
	for _, c := range r.Curves {
		first, half, last := c.Points[0].Quality.Value, c.Points[steps/2].Quality.Value, c.Points[steps].Quality.Value
		all = append(all, fmt.Sprintf("%s: %.1f %% at 0 %%, %.1f %% at 50 %% and %.1f %% at 100 %%", r.legend(&c), 100*first,
			100*half, 100*last))
	}
	return strings.Join(all, "; ") + "."
}

func (r *Report) legend(c *training.QualityCurve) string {
	name := map[string]string{training.CurveDefault: "default score", training.CurveLength: "length alone",
		training.CurveRandom: "random", training.CurveModel: "model"}[c.Name]
	if c.Name == training.CurveModel && r.InSample {
		name += ", in-sample"
	}
	if c.APGR != nil {
		name += fmt.Sprintf(", APGR %.3f", c.APGR.Value)
	}
	return name
}

// plot draws curves of the quality from low to high.
type plot struct {
	b         *strings.Builder
	low, high float64
}

func (p plot) at(share, quality float64) string {
	return fmt.Sprintf("%.1f,%.1f", left+share*(right-left), below-(quality-p.low)/(p.high-p.low)*(below-top))
}

// axes draws both axes with their grid and labels.
func (p plot) axes(large string) {
	for step := 0; step <= steps; step += 2 {
		x := left + step*(right-left)/steps
		fmt.Fprintf(p.b, `<line class="grid" x1="%d" x2="%d" y1="%d" y2="%d"/><text x="%d" y="%d" text-anchor="middle">%d %%</text>`+"\n",
			x, x, top, below, x, below+20, 10*step)
	}
	for i := int(math.Round(20 * p.low)); i <= int(math.Round(20*p.high)); i++ {
		if p.high-p.low > 0.5 && i%2 != 0 {
			continue // a line every 10 %
		}
		y := below - (float64(i)/20-p.low)/(p.high-p.low)*(below-top)
		fmt.Fprintf(p.b, `<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/><text x="%d" y="%.1f" text-anchor="end">%d %%</text>`+"\n",
			left, right, y, y, left-8, y+4, 5*i)
	}
	fmt.Fprintf(p.b, `<text x="%d" y="%d" text-anchor="middle">requests at %s</text>`+"\n", (left+right)/2, below+44,
		escape(large))
	fmt.Fprintf(p.b, `<text transform="translate(18 %d) rotate(-90)" text-anchor="middle">right answers</text>`+"\n",
		(top+below)/2)
}

func (p plot) band(c training.QualityCurve) {
	var upper, lower []string
	for _, point := range c.Points {
		upper = append(upper, p.at(point.Share, point.Quality.High))
		lower = append([]string{p.at(point.Share, point.Quality.Low)}, lower...)
	}
	fmt.Fprintf(p.b, `<polygon class="band" points="%s %s"/>`+"\n", strings.Join(upper, " "), strings.Join(lower, " "))
	fmt.Fprintf(p.b, `<rect class="band" x="%d" y="%d" width="36" height="14"/><text x="%d" y="%d">95 %% interval of</text>`+
		`<text x="%d" y="%d">the default score</text>`+"\n", right+16, below-33, right+60, below-22, right+60, below-6)
}

func (p plot) curve(c training.QualityCurve, entry int, name string) {
	var points []string
	for _, point := range c.Points {
		points = append(points, p.at(point.Share, point.Quality.Value))
	}
	y := top + 14 + 46*entry
	fmt.Fprintf(p.b, `<polyline class="curve %s" points="%s"/>`+"\n", c.Name, strings.Join(points, " "))
	head, rest, _ := strings.Cut(name, ", ")
	fmt.Fprintf(p.b, `<line class="curve %s" x1="%d" x2="%d" y1="%d" y2="%d"/><text x="%d" y="%d">%s</text><text x="%d" y="%d">%s</text>`+"\n",
		c.Name, right+16, right+52, y, y, right+60, y+4, escape(head), right+60, y+20, escape(rest))
}

func escape(text string) string {
	var b strings.Builder
	xml.EscapeText(&b, []byte(text)) // a Builder returns no error
	return b.String()
}
