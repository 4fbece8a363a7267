package routing_test

import (
	"testing"

	"tierway/routing"
	"tierway/routing/routingtest"
)

func TestEveryPolicyKeepsTheLaws(t *testing.T) {
	for _, name := range routing.Names() {
		t.Run(name, func(t *testing.T) {
			routingtest.Laws(t, func() routing.Policy {
				p, err := routing.New(routing.Config{Name: name})
				if err != nil {
					t.Fatal(err)
				}
				return p
			})
		})
	}
}
