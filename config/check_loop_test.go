package config

import "testing"

func TestAddressesOfThisMachineAreRecognised(t *testing.T) {
	for _, c := range []struct {
		worker, listen string
		want           bool
	}{
		{"127.0.0.1:8080", "127.0.0.1:8080", true},
		{"localhost:8080", "127.0.0.1:8080", true},
		{"127.0.0.1:8080", "localhost:8080", true},
		{"127.0.0.1:8080", ":8080", true},
		{"[::1]:8080", "[::]:8080", true},
		{"127.0.0.2:8080", "0.0.0.0:8080", true},
		{"0.0.0.0:8080", "127.0.0.1:8080", true},
		{"gateway.internal:8080", "gateway.internal:8080", true},
		{"Gateway.internal:8080", "gateway.internal:8080", true},
		{"10.0.0.1:8080", "10.0.0.1:8080", true},
		{"127.0.0.1:8081", "127.0.0.1:8080", false},
		{"127.0.0.2:8080", "127.0.0.1:8080", false},
		{"10.0.0.1:8080", ":8080", false}, // it may be another machine
		{"engine:8080", ":8080", false},
		{"engine:8080", "127.0.0.1:8080", false},
		{"127.0.0.1:0", "127.0.0.1:0", false},
		{"127.0.0.1:8080", "", false},
	} {
		if got := leadsTo(c.worker, c.listen); got != c.want {
			t.Errorf("%s to %q: %v, want %v", c.worker, c.listen, got, c.want)
		}
	}
}

func TestWorkerAtTheGatewaysOwnAddressCausesAWarning(t *testing.T) {
	f, err := Parse("f", []byte("listen: 127.0.0.1:9999\nadmin: {listen: \"127.0.0.1:9998\"}\nauth: {required: "+
		"false}\ntiers:\n- name: small\n  model: m\n  workers:\n"+
		"  - {name: a, url: \"http://localhost:9999/v1\"}\n  - {name: b, url: \"http://127.0.0.1:9998\"}\n  - {name: c, "+
		"url: \"http://127.0.0.1:9997\"}\n"), func(string) (string, bool) {
		return "", false
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range f.Warnings() {
		got = append(got, w.String())
	}
	want := []string{
		`f:8:20: warning: tiers[0].workers[0].url: "http://localhost:9999/v1" is the gateway's own address (listen), so requests would loop (write the URL of the inference engine)`,
		`f:9:20: warning: tiers[0].workers[1].url: "http://127.0.0.1:9998" is the gateway's own address (admin.listen), so requests would loop (write the URL of the inference engine)`,
	}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("the warnings are %q", got)
	}
}
