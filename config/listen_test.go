package config

import (
	"fmt"
	"testing"
)

func TestAFlagOpensNothingThatTheFileDoesNotAllow(t *testing.T) {
	f, err := Parse("f", []byte(keys+small), nil)
	if err != nil {
		t.Fatal(err)
	}
	moved, err := f.WithListen("127.0.0.1:0", "[::1]:9")
	if err != nil || moved.Listen != "127.0.0.1:0" || moved.Admin.Listen != "[::1]:9" || f.Listen != "127.0.0.1:8080" {
		t.Errorf("%v: %v", moved, err)
	}
	if same, err := f.WithListen("", ""); err != nil || same.Listen != f.Listen || same.Admin.Listen != f.Admin.Listen {
		t.Errorf("%v: %v", same, err)
	}
	const want = `command line: --listen: ":80" is not loopback and has no TLS: keys and prompts would cross the network in plain text (set tls.cert and tls.key, or insecure: true where a proxy or the network protects it)`
	if open, err := f.WithListen(":80", ""); open != nil || fmt.Sprint(err) != want {
		t.Errorf("%v: %v", open, err)
	}
}

func TestPlanesAreSharedOnOneAddress(t *testing.T) {
	cases := map[[2]string]bool{
		{"127.0.0.1:80", "127.0.0.1:80"}: true, {"127.0.0.1:80", "127.0.0.1:81"}: false, {"127.0.0.1:0", "127.0.0.1:0"}: false,
	}
	for at, want := range cases {
		f := File{Listen: at[0], Admin: Admin{Listen: at[1]}}
		if got := f.SharedPlanes(); got != want {
			t.Errorf("%v: %t", at, got)
		}
	}
}
