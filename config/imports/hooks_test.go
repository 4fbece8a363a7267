package imports

import "testing"

func TestHooksOfTheForkAreTranslated(t *testing.T) {
	check(t, VLLMRouter, []testCase{{name: "hooks", src: `mode:
  type: regular
  worker_urls: ["http://worker1:8000"]
pre_routing_hooks:
  - name: "PII Filter"
    url: http://pii:9090/check
    timeout_ms: 300
    on_error: block
    on_reject: block400
    transform: true
  - name: guard
    url: http://guard:9091/
    cache: true
  - name: nowhere
`, want: `listen: 127.0.0.1:3001 # the router's default
auth:
  required: false # no keys, as in the other router; allowed on loopback addresses only
policy:
  name: random # the router's default; without this section, it is kv_aware
tiers:
  - name: default
    model: your-model # write the name that the workers serve: curl WORKER/v1/models
    workers:
      - name: worker-0
        url: http://worker1:8000
hooks:
  - name: pii-filter
    url: http://pii:9090/check
    timeout: 300ms
    on_reject: block400
    transform: true
    on_error: block
  - name: guard
    url: http://guard:9091/
    on_error: pass # the fork's default; with block, no request passes unchecked while the hook fails
`, left: `model: the file names no model: write the name that the workers serve in place of your-model, or import with --model NAME
line 13: pre_routing_hooks[1].cache: this key is not known; docs/config.md lists the keys of config.yaml
line 14: pre_routing_hooks[2]: the hook has no url
`}})
}
