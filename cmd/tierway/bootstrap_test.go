package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"tierway/config"
	"tierway/server/control"
	"tierway/tenants"
)

// announcing returns an announcer without a terminal; said reads its log.
func announcing() (a *announcer, said *bytes.Buffer) {
	said = &bytes.Buffer{}
	return &announcer{out: io.Discard, log: slog.New(logHandler(said, "info")), address: "https://127.0.0.1:8443"}, said
}

// bootstraps returns the bootstrap files of the working directory.
func bootstraps(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("tierway-bootstrap*.txt")
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// AD-05: the secret is in a file that only its user may read, with the command that uses it, and not in
// the log.
func TestBootstrapSecretIsInAPrivateFileAndNotInTheLog(t *testing.T) {
	t.Chdir(t.TempDir())
	a, said := announcing()
	secret := newKey(t, tenants.BootstrapPrefix)
	a.announce(secret, time.Now().Add(time.Hour))
	files := bootstraps(t)
	if len(files) != 1 {
		t.Fatalf("the files are %q", files)
	}
	info, err := os.Lstat(files[0])
	if err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	text, err := os.ReadFile(files[0])
	if err != nil || !strings.Contains(string(text), "curl -X POST https://127.0.0.1:8443/admin/bootstrap ") ||
		!strings.Contains(string(text), secret) {
		t.Errorf("%v, it says\n%s", err, text)
	}
	if whole, err := filepath.Abs(files[0]); err != nil || !strings.Contains(said.String(), whole) ||
		strings.Contains(said.String(), secret) {
		t.Errorf("%v, the log says\n%s", err, said)
	}
	a.clear()
	a.clear()
	if files := bootstraps(t); len(files) != 0 {
		t.Errorf("cleared, there is %q", files)
	}
}

// AD-05: files of other gateways and existing links are not followed, overwritten or removed.
func TestBootstrapFilesOfOthersAreNotTouched(t *testing.T) {
	t.Chdir(t.TempDir())
	write(t, "precious", "mine")
	for _, err := range []error{os.Symlink("precious", "tierway-bootstrap.txt"),
		os.WriteFile("tierway-bootstrap-1.txt", []byte("open"), 0o644)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	one, _ := announcing()
	other, _ := announcing()
	one.announce("secret one", time.Now().Add(time.Hour))
	other.announce("secret two", time.Now().Add(time.Hour))
	if files := bootstraps(t); len(files) != 4 {
		t.Errorf("the files are %q", files)
	}
	one.clear()
	if text, err := os.ReadFile(other.path); err != nil || !strings.Contains(string(text), "secret two") {
		t.Errorf("the other's: %v, %s", err, text)
	}
	other.clear()
	for name, want := range map[string]string{"precious": "mine", "tierway-bootstrap.txt": "mine",
		"tierway-bootstrap-1.txt": "open"} {
		if text, err := os.ReadFile(name); err != nil || string(text) != want {
			t.Errorf("%s: %v, %q", name, err, text)
		}
	}
}

// AD-05: the file is removed when its secret expires and when another secret replaces it.
func TestBootstrapFileIsRemovedWithItsSecret(t *testing.T) {
	t.Chdir(t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		a, _ := announcing()
		a.announce("first", time.Now().Add(15*time.Minute))
		time.Sleep(5 * time.Minute)
		a.announce("second", time.Now().Add(15*time.Minute))
		time.Sleep(15*time.Minute - time.Second)
		synctest.Wait()
		files := bootstraps(t)
		if len(files) != 1 {
			t.Fatalf("before its end: %q", files)
		}
		if text, err := os.ReadFile(files[0]); err != nil || !strings.Contains(string(text), "second") {
			t.Errorf("%v, %s", err, text)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if files := bootstraps(t); len(files) != 0 {
			t.Errorf("after its end: %q", files)
		}
	})
}

// If the folder is not writable, the gateway starts without the file.
func TestUnwritableFolderLogsTheOtherWayToCreateAnAdmin(t *testing.T) {
	gone := t.TempDir() + "/gone"
	if err := os.Mkdir(gone, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Chdir(gone)
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	a, said := announcing()
	a.announce("tw-boot-x", time.Now().Add(time.Hour))
	a.clear()
	if !strings.Contains(said.String(), "tierway keys create --admin") || strings.Contains(said.String(), "tw-boot-x") {
		t.Errorf("the log says\n%s", said)
	}
}

// The address is the listening address in a form that this machine can reach.
func TestAdminAddressIsReachable(t *testing.T) {
	cases := map[string]struct {
		file config.File
		want string
	}{
		"plain": {config.File{Listen: "127.0.0.1:8080", Admin: config.Admin{Listen: "127.0.0.1:8081"}},
			"http://127.0.0.1:8081"},
		"all addresses": {config.File{Listen: "127.0.0.1:8080", Admin: config.Admin{Listen: "0.0.0.0:8081"}},
			"http://127.0.0.1:8081"},
		"all of IPv6": {config.File{Listen: "127.0.0.1:8080", Admin: config.Admin{Listen: "[::]:8081"}},
			"http://127.0.0.1:8081"},
		"with TLS": {config.File{Listen: "127.0.0.1:8080",
			Admin: config.Admin{Listen: ":8081", TLS: config.TLS{Cert: "c", Key: "k"}}}, "https://127.0.0.1:8081"},
		"the data plane's": {config.File{Listen: "h:8080", TLS: config.TLS{Cert: "c", Key: "k"},
			Admin: config.Admin{Listen: "h:8080"}}, "https://h:8080"},
	}
	for name, c := range cases {
		if got := adminAddress(&c.file, ""); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// AD-05: a whole gateway announces its real address, and removes the file when it stops.
func TestGatewayWithoutAdminAnnouncesTheBootstrap(t *testing.T) {
	h := newHouse(t, "")
	t.Chdir(h.dir)
	text, err := os.ReadFile(h.config)
	if err != nil {
		t.Fatal(err)
	}
	write(t, h.config, string(text)+"drain: { accept_grace: 0s, timeout: 1s }\n")
	ctx, cancel := context.WithCancel(t.Context())
	var log lines
	c := root(io.Discard, &log)
	c.SetArgs([]string{"serve", "-c", h.config, "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"})
	ended := make(chan error, 1)
	go func() { ended <- c.ExecuteContext(ctx) }()
	until(t, "it serves", func() bool { return log.has(`"serving"`) && len(bootstraps(t)) == 1 })
	told, err := os.ReadFile(bootstraps(t)[0])
	if err != nil {
		t.Fatal(err)
	}
	_, address, _ := strings.Cut(string(told), "POST http://")
	address, _, _ = strings.Cut(address, "/")
	if conn, err := net.Dial("tcp", address); err != nil {
		t.Errorf("no listener at %q: %v", address, err)
	} else {
		conn.Close()
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if files := bootstraps(t); len(files) != 0 {
		t.Errorf("the gateway left %q", files)
	}
}

// TestAVoidSecretIsNotShown if it is void before the addresses are open. If it becomes void later, its file is removed.
func TestAVoidSecretIsNotShown(t *testing.T) {
	t.Chdir(t.TempDir())
	synctest.Test(t, func(t *testing.T) {
		a, said := announcing()
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		all := make(chan control.Announcement, 2)
		all <- control.Announcement{Secret: "tw-boot-x", Until: time.Now().Add(time.Hour)}
		all <- control.Announcement{}
		go a.showSecrets(ctx, all)
		synctest.Wait()
		if files := bootstraps(t); len(files) != 0 || said.Len() != 0 {
			t.Errorf("the files are %q, the log says\n%s", files, said)
		}
		all <- control.Announcement{Secret: "tw-boot-y", Until: time.Now().Add(time.Hour)}
		synctest.Wait()
		if files := bootstraps(t); len(files) != 1 {
			t.Errorf("announced, the files are %q", files)
		}
		all <- control.Announcement{}
		synctest.Wait()
		if files := bootstraps(t); len(files) != 0 {
			t.Errorf("void, the files are %q", files)
		}
		stop()
		synctest.Wait()
	})
}
