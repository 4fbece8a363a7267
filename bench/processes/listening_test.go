package processes

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"
)

func TestListeningProcessHasTheLowestID(t *testing.T) {
	link := func(to string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(to), Mode: fs.ModeSymlink} }
	proc := fstest.MapFS{
		"self/net/tcp": {Data: []byte("  sl local rem st tx tr retrnsmt uid timeout inode\n" +
			"   0: 0100007F:1F90 00000000:0000 01 0 0 0 0 0 77 1\n" +
			"   1: 0100007F:1F91 00000000:0000 0A 0 0 0 0 0 78 1\n")},
		"self/net/tcp6": {Data: []byte("   0: 00000000000000000000000001000000:1F92 00:0000 0A 0 0 0 0 0 79 1\n")},
		"12/fd/3":       link("socket:[78]"),
		"9/fd/4":        link("socket:[78]"),
		"9/fd/5":        link("socket:[77]"),
		"10/fd/5":       link("socket:[79]"),
	}
	for addr, want := range map[string]int{"127.0.0.1:8081": 9, "[::1]:8082": 10} {
		if pid, err := ListeningProcess(proc, addr); err != nil || pid != want {
			t.Errorf("%s: got %d, %v; want %d", addr, pid, err, want)
		}
	}
	for addr, want := range map[string]string{
		"127.0.0.1:8080":  "no process listens on port 8080", // its connection is open, state 01
		"127.0.0.1":       "missing port",
		"127.0.0.1:80800": "the port of 127.0.0.1:80800",
	} {
		if _, err := ListeningProcess(proc, addr); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", addr, err, want)
		}
	}
}
