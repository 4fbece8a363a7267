package comparison

import (
	"fmt"
	"slices"
	"strings"

	"tierway/sim"
)

// Cell is one load at one rate.
type Cell struct {
	Load string // name of the load; cells with the same load differ in their rate
	Rate float64
	Unit string // of the rate
	run  func(c sim.Config) (sim.Figures, error)
}

// Name returns the load and the rate.
func (c *Cell) Name() string { return fmt.Sprint(c.Load, " ", c.Rate) }

// ModeCells returns the cells of a mode at those rates; without rates, at the mode's own.
func ModeCells(name string, rates []float64) ([]Cell, error) {
	modes := sim.Modes()
	at := slices.IndexFunc(modes, func(m sim.Mode) bool { return m.Name == name })
	if at < 0 {
		return nil, fmt.Errorf("mode %q is unknown: write one of %s", name, strings.Join(ModeNames(), ", "))
	}
	m := modes[at]
	if len(rates) == 0 {
		rates = m.Rates
	}
	var cells []Cell
	for _, rate := range rates {
		cells = append(cells, Cell{Load: m.Name, Rate: rate, Unit: m.Unit, run: func(c sim.Config) (sim.Figures, error) {
			return m.Run(c, rate)
		}})
	}
	return cells, nil
}

// ModeNames returns the names of all modes.
func ModeNames() (names []string) {
	for _, m := range sim.Modes() {
		names = append(names, m.Name)
	}
	return names
}

// TraceCells returns the cells of recorded requests at multiples of their rate. All requests count,
// and each cell ends with the last answer.
func TraceCells(name string, arrivals []sim.Arrival, blockTokens int64, rates []float64) []Cell {
	var cells []Cell
	for _, rate := range rates {
		cells = append(cells, Cell{Load: name, Rate: rate, Unit: "times the recorded rate",
			run: func(c sim.Config) (sim.Figures, error) {
				c.BlockTokens, c.Loads = blockTokens, []sim.Load{sim.Trace{Arrivals: arrivals, Rate: rate}}
				r, err := sim.Run(c)
				if err != nil {
					return sim.Figures{}, err
				}
				return r.Figures(0), nil
			}})
	}
	return cells
}
