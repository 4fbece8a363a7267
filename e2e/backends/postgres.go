package backends

import (
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"tierway/e2e/gateway"
	"tierway/e2e/loopback"
)

// PostgresServer is a PostgreSQL server with an empty database. Committed data survives Kill
// and Restart, but not a crash of the machine. Its methods must be called on the test's
// goroutine; they fail the test on an error.
type PostgresServer struct {
	URL  string // postgres://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=disable
	Addr string // HOST:PORT

	t       testing.TB
	cluster *cluster
}

// Postgres starts a PostgreSQL server for one test, which may kill it or let it hang. It ends
// with the test. A test that only needs a database calls [Database].
func Postgres(t testing.TB) *PostgresServer {
	t.Helper()
	s := &PostgresServer{t: t}
	c, err := newCluster()
	s.must(err)
	t.Cleanup(func() { s.must(c.close()) })
	s.must(c.process.start())
	s.cluster, s.URL, s.Addr = c, c.url, c.process.addr
	return s
}

func (s *PostgresServer) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// Kill ends the server as a crash would, by SIGKILL of the postmaster, and
// returns when all its children have ended and its port is free.
func (s *PostgresServer) Kill() { s.t.Helper(); s.must(s.cluster.process.kill()) }

// Stop shuts the server down, which closes its connections, and returns when its port is free.
func (s *PostgresServer) Stop() { s.t.Helper(); s.must(s.cluster.process.shutDown()) }

// Restart stops the server if it runs and starts it on the same port with the same data. It
// returns when the server is ready.
func (s *PostgresServer) Restart() { s.t.Helper(); s.must(s.cluster.process.restart()) }

// Hang suspends all processes of the server: the kernel accepts connections, but no request is
// answered.
func (s *PostgresServer) Hang() { s.t.Helper(); s.must(s.cluster.process.hang()) }

// Resume resumes the server after Hang.
func (s *PostgresServer) Resume() { s.t.Helper(); s.must(s.cluster.process.resume()) }

// cluster is PostgreSQL's term for a data folder and its server.
type cluster struct {
	process serverProcess
	url     string
	dir     string
	owner   *syscall.Credential // the user that PostgreSQL runs as; nil: the user of this process
}

// role is the superuser of every cluster; its database is postgres.
const role = "tierway"

// newCluster makes a data folder without starting its server. The caller must call close, which
// removes the folder.
func newCluster() (_ *cluster, err error) {
	server, err := findBinary("postgres")
	if err != nil {
		return nil, err
	}
	c := &cluster{}
	// PostgreSQL refuses to run as root. Debian's package creates this user.
	if c.owner, err = unprivileged("postgres"); err != nil {
		return nil, err
	}
	// PostgreSQL may run as another user, which may not enter the test's own folder.
	if c.dir, err = os.MkdirTemp("", "tierway-postgres-"); err != nil {
		return nil, fmt.Errorf("making a folder for PostgreSQL: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	password := rand.Text()
	if err = c.initialise(password); err != nil {
		return nil, err
	}
	address := &url.URL{Scheme: "postgres", User: url.UserPassword(role, password), Path: "/postgres",
		RawQuery: "sslmode=disable",
		Host:     net.JoinHostPort(loopback.Host(), port)}
	c.url = address.String()
	c.process = serverProcess{name: "postgres", addr: address.Host, log: filepath.Join(c.dir, "log"),
		stop:  syscall.SIGINT, // fast shutdown: closes connections instead of waiting for them
		make:  func() *exec.Cmd { return c.command(server, c.settings(port)...) },
		ready: func() error { return runClient(address, "psql", "--no-psqlrc", "--quiet", "--command", "SELECT 1") }}
	return c, nil
}

// settings returns the server's command line. The server does not sync to disk and uses little
// memory, so that tests can run several of them.
func (c *cluster) settings(port string) (args []string) {
	args = []string{"-D", filepath.Join(c.dir, "data"), "-p", port, "-h", loopback.Host(), "-k", c.dir}
	for _, s := range []string{"fsync=off", "full_page_writes=off", "shared_buffers=16MB", "max_connections=200",
		"max_wal_size=256MB", "logging_collector=off", "log_min_messages=fatal", "restart_after_crash=on"} {
		args = append(args, "-c", s)
	}
	return args
}

// initialise fills the data folder with the role and its password.
func (c *cluster) initialise(password string) error {
	tool, err := findBinary("initdb")
	if err != nil {
		return err
	}
	secret := filepath.Join(c.dir, "password")
	if err := os.WriteFile(secret, []byte(password), 0o600); err != nil {
		return fmt.Errorf("initialising PostgreSQL: %w", err)
	}
	if c.owner != nil {
		for _, path := range []string{c.dir, secret} {
			if err := os.Chown(path, int(c.owner.Uid), int(c.owner.Gid)); err != nil {
				return fmt.Errorf("initialising PostgreSQL: %w", err)
			}
		}
	}
	out, err := c.command(tool, "-D", filepath.Join(c.dir, "data"), "-U", role, "--pwfile", secret,
		"--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C", "--no-sync").CombinedOutput()
	if err != nil {
		return fmt.Errorf("initialising PostgreSQL: %w\n%s", err, out)
	}
	return nil
}

// command returns the command of a PostgreSQL program that runs as the owner of the data.
func (c *cluster) command(path string, args ...string) *exec.Cmd {
	cmd := exec.Command(path, args...)
	cmd.Dir = c.dir
	cmd.SysProcAttr = gateway.EndWithParent()
	cmd.SysProcAttr.Credential = c.owner
	return cmd
}

// close ends the server and removes its data.
func (c *cluster) close() error {
	return errors.Join(c.process.shutDown(), os.RemoveAll(c.dir))
}

// unprivileged returns the user that a server runs as; nil is the current user. Root runs the server
// as the user of the given name.
func unprivileged(name string) (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return nil, fmt.Errorf("the server does not run as root, and there is no user %s: run `make deps`: %w", name, err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("reading the id of the user %s: %w", name, err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("reading the group of the user %s: %w", name, err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}
