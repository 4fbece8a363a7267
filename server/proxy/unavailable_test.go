package proxy

import (
	"net/http"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"tierway/engines"
	"tierway/routing"
	"tierway/server/intake"
)

// twoTiers configures two tiers without keys, and a queue. The tier small has the first worker.
const twoTiers = `
auth: { required: false }
queue: { engine_wait: WAIT }
tiers:
  - { name: small, model: fake-7b, workers: [ { name: s0, url: "http://127.0.0.1:1" } ] }
  - { name: large, model: fake-7b-l, workers: [ %s ] }
`

// TestRequestMovesIfItsTierIsLostBeforeTheQueue: between the resolution and the queue the tier loses its last
// worker.
func TestRequestMovesIfItsTierIsLostBeforeTheQueue(t *testing.T) {
	for _, wait := range []string{"0s", "60s"} {
		engine := engines.New(engines.Config{Name: "fake", AnyModel: true})
		r := newProxyRig(t, strings.Replace(twoTiers, "WAIT", wait, 1), engine)
		e := newEngine()
		e.POST("/v1/chat/completions", func(c *gin.Context) {
			in, _ := intake.FindRoute(c.Request)
			x := r.begin(c.Writer, in)
			x.run(func() (err error) {
				if x.parsed, err = r.intake.Read(&x.in, &x.caller); err != nil {
					return err
				}
				if x.resolution, err = r.intake.Resolve(&x.in, &x.caller, &x.parsed, intake.ResolveOptions{}); err != nil {
					return err
				}
				small := x.resolution.Pool
				small.Routing.Observe("s0", small.Members["s0"], routing.Status{})
				if err = x.charge(r.control.Stores.Limits); err != nil {
					return err
				}
				x.gather()
				return x.forward()
			})
		})
		front := r.network.NewServer(e)
		resp, text, err := r.post(front.URL+"/v1/chat/completions",
			`{"model":"small","messages":[{"role":"user","content":"Hi"}]}`)
		if err != nil || resp.StatusCode != http.StatusOK || resp.Header.Get("X-Model-Tier") != "large" ||
			resp.Header.Get("X-Tier-Reason") != "unavailable; model selected small" {
			t.Errorf("engine_wait %s: %v %+v %s", wait, err, resp, text)
		}
		front.Close()
	}
}
