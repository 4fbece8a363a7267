package gateway

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// Samples are the series of one scrape with their labels, as they are written.
type Samples map[string]float64

// Sum adds up the series of a name whose labels have all the given pairs, such as
// `result="ok"`.
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

// Metrics scrapes the admin plane. It may be called on any goroutine.
func (p *Process) Metrics() (Samples, error) {
	status, page := p.Admin(http.MethodGet, "/metrics", "", "")
	if status != http.StatusOK {
		return nil, fmt.Errorf("GET /metrics: status %d", status)
	}
	return ReadSamples(strings.NewReader(page))
}

// ReadSamples reads a page in the text format of Prometheus.
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
