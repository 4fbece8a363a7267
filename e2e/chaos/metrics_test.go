package chaos

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// samples are the series of one scrape with their labels, as they are written.
type samples map[string]float64

// sum adds up the series of a name whose labels have all the given pairs.
func (s samples) sum(name string, pairs ...string) (total float64) {
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

// metrics asks the gateway.
func (r *rig) metrics() (samples, error) {
	return scrape("http://" + r.metricsAt + "/metrics")
}

// scrape reads a page of metrics, without a key.
func scrape(url string) (samples, error) {
	resp, err := http.Get(url)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: status %d", url, resp.StatusCode)
	}
	return parse(resp.Body)
}

func parse(page io.Reader) (samples, error) {
	s := samples{}
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
