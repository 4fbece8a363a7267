package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// Samples are the values of one scrape by series, such as `tierway_inflight` or
// `tierway_config_reloads_total{result="ok"}`.
type Samples map[string]float64

// Sum returns the sum of the series with the given name and all given label pairs, such as
// `result="ok"`; 0 if there is none.
func (s Samples) Sum(name string, pairs ...string) (total float64) {
next:
	for series, v := range s {
		if series != name && !strings.HasPrefix(series, name+"{") {
			continue
		}
		for _, pair := range pairs {
			if !strings.Contains(series, pair) {
				continue next
			}
		}
		total += v
	}
	return total
}

// Metrics scrapes /metrics of the admin plane. It may be called on any goroutine.
func (p *Process) Metrics() (Samples, error) {
	status, page := p.Admin(http.MethodGet, "/metrics", "", "")
	if status != http.StatusOK {
		return nil, fmt.Errorf("GET /metrics: status %d", status)
	}
	return ReadSamples(strings.NewReader(page))
}

// ReadSamples reads a page in the Prometheus text format.
func ReadSamples(page io.Reader) (Samples, error) {
	s := Samples{}
	lines := bufio.NewScanner(page)
	for lines.Scan() {
		line := lines.Text()
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || strings.HasPrefix(line, "#") {
			continue
		}
		v, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("reading a metric: %w", err)
		}
		s[line[:at]] = v
	}
	return s, lines.Err()
}
