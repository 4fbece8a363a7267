package tenants_test

import (
	"crypto/rand"
	"fmt"
	"time"

	"tierway/tenants"
)

// A key is minted, authenticates its caller, and is limited to two requests at a time.
func Example() {
	secret, key, err := tenants.Mint(rand.Reader, "acme")
	if err != nil {
		panic(err)
	}
	key.Rights.Models = []string{"llama-*"}
	acme := tenants.Tenant{Name: "acme", Limits: tenants.Limits{Concurrent: 2}}
	directory := tenants.NewDirectory([]tenants.Tenant{acme}, []tenants.Key{key})

	now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	caller, err := directory.Authenticate(secret, now)
	fmt.Println(caller.Tenant, err, caller.MayUseModel("llama-8b"), caller.MayUseModel("gpt-4o"))

	limiter := tenants.NewLimiter()
	first := &tenants.Charge{Caller: caller, At: now, Tokens: 100}
	second := &tenants.Charge{Caller: caller, At: now, Tokens: 100}
	third := &tenants.Charge{Caller: caller, At: now, Tokens: 100}
	for _, c := range []*tenants.Charge{first, second, third} {
		a := limiter.TakeCharge(c, 1)
		fmt.Printf("refused by %q of the %q, in flight %d\n", a.Refused, a.Scope, limiter.Inflight("acme", ""))
	}
	limiter.SettleCharge(first, tenants.Used{Tokens: 80}, now.Add(time.Second))
	fmt.Printf("refused by %q\n", limiter.TakeCharge(third, 1).Refused)
	// Output:
	// acme <nil> true false
	// refused by "" of the "", in flight 1
	// refused by "" of the "", in flight 2
	// refused by "concurrent" of the "tenant", in flight 2
	// refused by ""
}
