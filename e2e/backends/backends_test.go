package backends_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"tierway/e2e/backends"
)

func TestMain(m *testing.M) { os.Exit(backends.Main(m)) }

// quick bounds a request to a server that may not respond.
const quick = 300 * time.Millisecond

// refused reports whether the address refuses connections.
func refused(addr string) bool {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return true
	}
	c.Close()
	return false
}

// pings reports whether a redis-server responds within quick.
func pings(addr string) bool {
	c, err := net.DialTimeout("tcp", addr, quick)
	if err != nil {
		return false
	}
	defer c.Close()
	if c.SetDeadline(time.Now().Add(quick)) != nil {
		return false
	}
	fmt.Fprint(c, "PING\r\n")
	line, err := bufio.NewReader(c).ReadString('\n')
	return err == nil && line == "+PONG\r\n"
}

func TestRedisDiesHangsAndComesBackEmpty(t *testing.T) {
	r := backends.Redis(t)
	if got := r.Do("SET a 1"); got != "+OK" {
		t.Fatalf("SET: %s", got)
	}
	r.Hang()
	if pings(r.Addr) {
		t.Error("redis-server responds although it hangs")
	}
	r.Resume()
	if got := r.Do("EXISTS a"); got != ":1" {
		t.Errorf("after Resume, EXISTS returned %s", got)
	}
	r.Kill()
	if !refused(r.Addr) {
		t.Error("the port accepts connections after Kill")
	}
	r.Restart()
	if got := r.Do("EXISTS a"); got != ":0" {
		t.Errorf("after Restart, EXISTS returned %s", got)
	}
	r.Stop()
	r.Stop() // a second Stop does nothing
	if !refused(r.Addr) {
		t.Error("the port accepts connections after Stop")
	}
	r.Restart()
	r.Hang() // the cleanup must also end a stopped process
}

// query runs one statement on a new connection. It returns the number in the last row, or 0
// without rows.
func query(ctx context.Context, url, statement string) (n int, err error) {
	c, err := pgx.Connect(ctx, url)
	if err != nil {
		return 0, err
	}
	defer c.Close(ctx)
	rows, err := c.Query(ctx, statement)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(&n); err != nil {
			return 0, err
		}
	}
	return n, rows.Err()
}

// run calls query and fails the test on an error.
func run(t *testing.T, url, statement string) int {
	t.Helper()
	n, err := query(t.Context(), url, statement)
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	return n
}

// selects reports whether a PostgreSQL server responds within quick.
func selects(url string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), quick)
	defer cancel()
	_, err := query(ctx, url, "SELECT 1")
	return err == nil
}

func TestPostgresDiesHangsAndComesBackWhole(t *testing.T) {
	p := backends.Postgres(t)
	run(t, p.URL, "CREATE TABLE kept (n int)")
	run(t, p.URL, "INSERT INTO kept VALUES (7)")
	p.Hang()
	if selects(p.URL) {
		t.Error("PostgreSQL responds although it hangs")
	}
	p.Resume()
	run(t, p.URL, "SELECT 1")
	p.Kill()
	if !refused(p.Addr) {
		t.Error("the port accepts connections after Kill")
	}
	p.Restart()
	if n := run(t, p.URL, "SELECT n FROM kept"); n != 7 {
		t.Errorf("after the restart the row is %d", n)
	}
	p.Stop()
	if !refused(p.Addr) {
		t.Error("the port accepts connections after Stop")
	}
	p.Restart()
	p.Hang()
}

func TestDatabasesAreIndependent(t *testing.T) {
	a, b := backends.Database(t), backends.Database(t)
	run(t, a, "CREATE TABLE mine (n int)")
	run(t, b, "CREATE TABLE mine (n int)")
}

// childVariable is set in the child process of TestNothingOutlivesTheTestProgram, which is
// killed.
const childVariable = "TIERWAY_BACKENDS_CHILD"

// TestNothingOutlivesTheTestProgram runs this program as a child that starts
// servers, lets them hang and is killed.
func TestNothingOutlivesTheTestProgram(t *testing.T) {
	if os.Getenv(childVariable) != "" {
		r, p := backends.Redis(t), backends.Postgres(t)
		r.Hang()
		p.Hang()
		fmt.Printf("\naddresses %s %s\n", r.Addr, p.Addr)
		select {}
	}
	c := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	c.Env = append(os.Environ(), childVariable+"=1", "TMPDIR="+openDir(t))
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var addrs []string
	for lines := bufio.NewScanner(out); addrs == nil && lines.Scan(); {
		if rest, ok := strings.CutPrefix(lines.Text(), "addresses "); ok {
			addrs = strings.Fields(rest)
		}
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, out)
	_ = c.Wait() // it was killed
	if len(addrs) != 2 {
		t.Fatal("the child has started no servers")
	}
	eventually(t, func() bool { return refused(addrs[0]) && refused(addrs[1]) })
}

// openDir returns a folder of the test that every user may enter. It holds the files that the
// killed program leaves behind.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "tierway-killed-")
	if err == nil {
		err = os.Chmod(dir, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(30 * time.Second)
	for !holds() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("timeout: the condition does not hold")
		}
	}
}

// fakeGateway is a target of the balancer. It reports on /readyz that it drains, if told to.
type fakeGateway struct {
	*httptest.Server
	draining atomic.Bool
}

func newFakeGateway(t *testing.T, name string) *fakeGateway {
	t.Helper()
	g := &fakeGateway{}
	g.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" && g.draining.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		fmt.Fprint(w, name)
	}))
	t.Cleanup(g.Close)
	return g
}

func (g *fakeGateway) addr() string { return strings.TrimPrefix(g.URL, "http://") }

func TestBalancerSendsNewConnectionsToReadyTargets(t *testing.T) {
	a, b := newFakeGateway(t, "a"), newFakeGateway(t, "b")
	front := backends.NewBalancer(t, a.addr(), b.addr())
	eventually(t, func() bool { return len(front.Ready()) == 2 })
	kept := &http.Client{Transport: &http.Transport{}}
	fresh := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	defer kept.CloseIdleConnections()
	get := func(c *http.Client) string {
		resp, err := c.Get("http://" + front.Addr + "/")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	if first, second := get(fresh), get(fresh); first == second {
		t.Errorf("two connections went to %s", first)
	}
	home := get(kept)
	drained, other := a, "b"
	if home == "b" {
		drained, other = b, "a"
	}
	drained.draining.Store(true)
	eventually(t, func() bool { return len(front.Ready()) == 1 })
	if got := get(fresh); got != other {
		t.Errorf("a new connection went to %s, which drains", got)
	}
	if got := get(kept); got != home {
		t.Errorf("an open connection moved from %s to %s", home, got)
	}
	drained.draining.Store(false)
	drained.Close() // dead, perhaps before the balancer's next check
	for range 4 {
		if got := get(fresh); got != other {
			t.Errorf("a new connection went to %s", got)
		}
	}
	var cut net.Error
	if resp, err := kept.Get("http://" + front.Addr + "/"); err == nil {
		resp.Body.Close() // the client opened a new connection
	} else if errors.As(err, &cut) && cut.Timeout() {
		t.Errorf("the client does not see that its target died: %v", err)
	}
}
