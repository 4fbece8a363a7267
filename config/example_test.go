package config_test

import (
	"fmt"

	"tierway/config"
)

// A mistyped key and an invalid value are reported together, with their positions.
func ExampleParse() {
	const text = `
auth: { required: false }
tiers:
  - name: small
    model: qwen2.5-7b-instruct
    wokers:
      - { name: small-0, url: "http://127.0.0.1:8000" }
retry: { attempts: 9 }
`
	_, err := config.Parse("config.yaml", []byte(text), nil)
	fmt.Println(err)
	// Output:
	// config.yaml:6:5: tiers[0].wokers: unknown key (did you mean workers?)
	// config.yaml:8:20: retry.attempts: want an integer from 1 to 5, got "9"
}

// Tiers inherit the sections that they leave out.
func ExampleFile_ResolvedPools() {
	const text = `
auth: { required: false }
policy: { name: least_load }
tiers:
  - name: small
    model: qwen2.5-7b-instruct
    workers: [{ name: small-0, url: "http://127.0.0.1:8000" }]
`
	file, err := config.Parse("config.yaml", []byte(text), nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, pool := range file.ResolvedPools() {
		fmt.Println(pool.Name, pool.Policy.Name, pool.Queue.MaxDepth, pool.Workers[0].URL)
	}
	// Output:
	// small least_load 1000 http://127.0.0.1:8000
}
