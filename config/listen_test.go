package config

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestListenFlagsObeyTheFile(t *testing.T) {
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
	const want = `command line: --listen: ":80" is not loopback and has no TLS: keys and prompts would cross the network in plain text (set tls.cert and tls.key, or insecure: true if a proxy or the network protects it)`
	if open, err := f.WithListen(":80", ""); open != nil || fmt.Sprint(err) != want {
		t.Errorf("%v: %v", open, err)
	}
}

func TestOpenAddressCausesAWarningFromFileOrFlag(t *testing.T) {
	warning := func(at, path, address string) string {
		return fmt.Sprintf("%s: warning: %s: keys and prompts cross the network to %q in plain text", at, path, address)
	}
	const both = "listen: \"%s\"\ninsecure: true\nadmin: {listen: \"%s\", insecure: true}\n"
	cases := map[string]struct {
		listen, admin       string // of the file
		newListen, newAdmin string
		want                []string
	}{
		"nothing given": {":80", ":81", "", "",
			[]string{warning("f:4:11", "insecure", ":80"), warning("f:5:34", "admin.insecure", ":81")}},
		"opened by a flag": {"127.0.0.1:80", "127.0.0.1:81", ":82", "",
			[]string{warning("command line", "insecure", ":82")}},
		"both opened by flags": {"127.0.0.1:80", "127.0.0.1:81", ":82", ":83",
			[]string{warning("command line", "insecure", ":82"), warning("command line", "admin.insecure", ":83")}},
		"one moved, one as it was": {":80", ":81", "", ":83",
			[]string{warning("f:4:11", "insecure", ":80"), warning("command line", "admin.insecure", ":83")}},
		"closed by a flag": {":80", ":81", "127.0.0.1:0", "[::1]:0", nil},
		"one closed":       {":80", ":81", "127.0.0.1:0", "", []string{warning("f:5:34", "admin.insecure", ":81")}},
		"given as it was":  {":80", "127.0.0.1:81", ":80", "", []string{warning("f:4:11", "insecure", ":80")}},
		"from the environment": {"${ADDRESS}", "127.0.0.1:81", "", ":83",
			[]string{warning("f:4:11", "insecure", "${ADDRESS}"), warning("command line", "admin.insecure", ":83")}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			src := keys + small + fmt.Sprintf(both, c.listen, c.admin)
			f, err := Parse("f", []byte(src), environment(map[string]string{"ADDRESS": "0.0.0.0:80"}))
			if err != nil {
				t.Fatal(err)
			}
			before := f.Warnings().Error()
			moved, err := f.WithListen(c.newListen, c.newAdmin)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.Join(c.want, "\n"), moved.Warnings().Error()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if f.Warnings().Error() != before {
				t.Error("the file's own warnings changed")
			}
			closed, err := moved.WithListen("127.0.0.1:1", "127.0.0.1:2")
			if err != nil || len(closed.Warnings()) > 0 {
				t.Errorf("closed again: %v, %v", closed.Warnings(), err)
			}
		})
	}
}

func TestDataPlaneCertificateAppliesToTheAdminPlaneOnlyOnASharedAddress(t *testing.T) {
	cert, key := writePair(t, t.TempDir(), "a")
	src := keys + small +
		fmt.Sprintf("listen: \":443\"\ntls: {cert: %q, key: %q}\nadmin: {listen: \":443\", insecure: true}\n", cert, key)
	f, err := Parse("f", []byte(src), nil)
	if err != nil || len(f.Warnings()) > 0 {
		t.Fatalf("%v: %v", f.Warnings(), err)
	}
	moved, err := f.WithListen(":444", "")
	if err != nil {
		t.Fatal(err)
	}
	const want = `command line: warning: admin.insecure: keys and prompts cross the network to ":443" in plain text`
	if got := moved.Warnings().Error(); got != want {
		t.Errorf("want %s, got %s", want, got)
	}
}

func TestBothPlanesMayUseAnyFreePort(t *testing.T) {
	for _, address := range []string{"127.0.0.1:0", "[::1]:0", "localhost:0"} {
		f, err := Parse("f",
			[]byte(keys+small+fmt.Sprintf("listen: %q\nadmin: {listen: %q}\nmetrics: {listen: %q}\n", address, address,
				address)), nil)
		if err != nil {
			t.Errorf("%s: %v", address, err)
		} else if f.SharedPlanes() || len(f.Warnings()) > 0 {
			t.Errorf("%s: shared %t, %v", address, f.SharedPlanes(), f.Warnings())
		}
	}
	if f, err := FromFlags([]string{"m"}, []string{"http://127.0.0.1:1"}, nil, "127.0.0.1:0", "127.0.0.1:0"); err != nil ||
		f.SharedPlanes() {
		t.Errorf("by flags: %v", err)
	}
}

func TestPlanesAreSharedOnOneAddress(t *testing.T) {
	cases := map[[2]string]bool{
		{"127.0.0.1:80", "127.0.0.1:80"}: true, {"127.0.0.1:8000", "127.0.0.1:8000"}: true, {"[::1]:0", "[::1]:0"}: false,
		{"127.0.0.1:80", "127.0.0.1:81"}: false, {"127.0.0.1:0", "127.0.0.1:0"}: false,
	}
	for at, want := range cases {
		f := File{Listen: at[0], Admin: Admin{Listen: at[1]}}
		if got := f.SharedPlanes(); got != want {
			t.Errorf("%v: %t", at, got)
		}
	}
}
