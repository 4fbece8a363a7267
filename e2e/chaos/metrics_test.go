package chaos

import (
	"fmt"
	"net/http"

	"tierway/e2e/gateway"
)

// metrics asks the gateway.
func (r *rig) metrics() (gateway.Samples, error) {
	return scrape("http://" + r.metricsAt + "/metrics")
}

// scrape reads a page of metrics, without a key.
func scrape(url string) (gateway.Samples, error) {
	resp, err := http.Get(url)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: status %d", url, resp.StatusCode)
	}
	return gateway.ReadSamples(resp.Body)
}
