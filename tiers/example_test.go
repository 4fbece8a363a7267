package tiers_test

import (
	"fmt"

	"tierway/tiers"
)

// Requests go to a tier by the name of their model, by the header X-Model-Tier or by their content.
func Example() {
	catalog, err := tiers.New(tiers.Config{
		Targets: []tiers.Target{
			{Name: "small", Tier: true, Model: "llama-8b"},
			{Name: "large", Tier: true, Model: "llama-70b"},
		},
		Aliases: map[string]tiers.Targets{"gpt-4o*": {"large"}},
	})
	if err != nil {
		panic(err)
	}
	resolve := func(model, header, user string) {
		r, err := catalog.Resolve(tiers.Query{Model: model, Header: header, Input: &tiers.ClassifierInput{
			PromptTokens: int64(len(user) / 4),
			User:         func() []byte { return []byte(user) },
		}})
		fmt.Printf("%s (%s) as %q %v\n", r.Target, r.Rule, r.Model, err)
	}
	resolve("gpt-4o-mini", "", "Hello")
	resolve("llama-8b", "", "Hello")
	resolve("auto", "", "Hello")
	resolve("auto", "", "Write a Python function that reverses a list")
	resolve("auto", "large", "Hello")
	// Output:
	// large (alias) as "llama-70b" <nil>
	// small (model) as "llama-8b" <nil>
	// small (default) as "llama-8b" <nil>
	// large (keyword:code) as "llama-70b" <nil>
	// large (header) as "llama-70b" <nil>
}
