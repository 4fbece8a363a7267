package backends

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"tierway/e2e/gateway"
	"tierway/e2e/loopback"
)

// ProxyServer is nginx or HAProxy in front of two gateways, with its file of deploy/. It ends with
// its test.
type ProxyServer struct {
	Addr string // HOST:PORT
}

// Nginx starts nginx with deploy/nginx.conf in front of two gateways, which are addresses such as
// 127.0.0.1:8080. It returns when requests reach a ready gateway. Only addresses differ from the
// file, and paths, because nginx runs without privileges and with one process.
func Nginx(t testing.TB, first, second string) *ProxyServer {
	t.Helper()
	return startProxy(t, "nginx", "nginx.conf", func(dir, addr string) []string {
		return []string{
			"gateway-1:8080", first,
			"gateway-2:8080", second,
			"listen 8080;", "listen " + addr + ";",
			"http {", strings.ReplaceAll("http { client_body_temp_path DIR/b; proxy_temp_path DIR/p; "+
				"fastcgi_temp_path DIR/f; uwsgi_temp_path DIR/u; scgi_temp_path DIR/s;", "DIR", dir),
		}
	}, func(dir, conf string) []string {
		// A master that dies would leave its workers behind.
		return []string{"-e", "stderr", "-p", dir, "-c", conf, "-g",
			"daemon off; master_process off; pid " + filepath.Join(dir, "pid") + ";"}
	})
}

// HAProxy is Nginx for HAProxy and deploy/haproxy.cfg. Only addresses differ from the file.
func HAProxy(t testing.TB, first, second string) *ProxyServer {
	t.Helper()
	return startProxy(t, "haproxy", "haproxy.cfg", func(_, addr string) []string {
		return []string{
			"gateway-1:8080", first,
			"gateway-2:8080", second,
			"bind :8080\n", "bind " + addr + "\n",
		}
	}, func(_, conf string) []string { return []string{"-db", "-f", conf} })
}

// startProxy starts a proxy with a file of deploy/. edits returns pairs of old and new texts; the
// file must have each old text. args returns the command line for a configuration file.
func startProxy(t testing.TB, name, file string, edits func(dir, addr string) []string,
	args func(dir, conf string) []string) *ProxyServer {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	bin, err := findBinary(name)
	must(err)
	root, err := gateway.Root()
	must(err)
	text, err := os.ReadFile(filepath.Join(root, "deploy", file))
	must(err)
	addr, err := loopback.Address()
	must(err)
	owner, err := unprivileged("nobody")
	must(err)
	// The proxy may run as another user, which may not enter the test's own folder.
	dir, err := os.MkdirTemp("", "tierway-"+name+"-")
	must(err)
	t.Cleanup(func() { must(os.RemoveAll(dir)) })
	s := &ProxyServer{Addr: addr}
	pairs := edits(dir, s.Addr)
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(string(text), pairs[i]) {
			t.Fatalf("deploy/%s has no %q, which the test replaces", file, pairs[i])
		}
	}
	conf := filepath.Join(dir, file)
	must(os.WriteFile(conf, []byte(strings.NewReplacer(pairs...).Replace(string(text))), 0o644))
	if owner != nil {
		must(os.Chown(dir, int(owner.Uid), int(owner.Gid)))
	}
	p := serverProcess{name: name, addr: s.Addr, log: filepath.Join(dir, "log"), stop: syscall.SIGTERM, ready: s.isReady,
		make: func() *exec.Cmd {
			c := exec.Command(bin, args(dir, conf)...)
			c.Dir = dir
			c.SysProcAttr = gateway.EndWithParent()
			c.SysProcAttr.Credential = owner
			return c
		}}
	t.Cleanup(func() {
		must(p.shutDown())
		if out, err := os.ReadFile(p.log); t.Failed() && err == nil {
			t.Logf("the last lines of %s:\n%s", name, out[max(0, len(out)-4000):])
		}
	})
	must(p.start())
	return s
}

// isReady returns nil if a request through the proxy reaches a ready gateway.
func (s *ProxyServer) isReady() error {
	c := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Get("http://" + s.Addr + "/readyz")
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("/readyz returned %s", resp.Status)
	}
	return errors.Join(err, resp.Body.Close())
}
