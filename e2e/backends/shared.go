package backends

import (
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// sharedVariable is the environment variable with the URL of the server on which Database
// creates its databases.
const sharedVariable = "TIERWAY_POSTGRES"

// Runner runs the tests of a package, like *testing.M.
type Runner interface{ Run() int }

// RunnerFunc is a function that runs a package's tests.
type RunnerFunc func() int

// Run calls the function.
func (f RunnerFunc) Run() int { return f() }

// Main runs the tests of a package with a PostgreSQL server for [Database], which ends after
// them. Call it from TestMain and exit with its result. If TIERWAY_POSTGRES has the URL of a
// server, Main uses that server; its user must be allowed to create databases.
func Main(m Runner) (code int) {
	if os.Getenv(sharedVariable) != "" {
		return m.Run()
	}
	c, err := newCluster()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := c.close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}()
	if err := c.process.start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := os.Setenv(sharedVariable, c.url); err != nil {
		fmt.Fprintln(os.Stderr, "naming the PostgreSQL server:", err)
		return 1
	}
	return m.Run()
}

// Database returns the URL of a new, empty PostgreSQL database on the server of [Main]. The
// database is dropped when the test ends, and open connections to it are closed.
func Database(t testing.TB) string {
	t.Helper()
	server := os.Getenv(sharedVariable)
	if server == "" {
		t.Fatalf("%s is not set: run the tests through backends.Main", sharedVariable)
	}
	u, err := url.Parse(server)
	if err != nil {
		t.Fatalf("%s is not a URL", sharedVariable) // its value has a password and is not printed
	}
	name := "t" + strings.ToLower(rand.Text())
	if err := runClient(u, "createdb", name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := runClient(u, "dropdb", "--force", name); err != nil {
			t.Error(err)
		}
	})
	u.Path = "/" + name
	return u.String()
}

// runClient runs a PostgreSQL client program, such as createdb.
func runClient(server *url.URL, name string, args ...string) error {
	path, err := findBinary(name)
	if err != nil {
		return err
	}
	password, _ := server.User.Password()
	c := exec.Command(path, args...)
	c.Env = append(os.Environ(), "PGHOST="+server.Hostname(), "PGPORT="+server.Port(),
		"PGUSER="+server.User.Username(), "PGPASSWORD="+password, "PGDATABASE="+strings.TrimPrefix(server.Path, "/"))
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("running %s: %w\n%s", name, err, out)
	}
	return nil
}

// RequireSoak skips a test that needs servers of its own unless TIERWAY_SOAK is set.
func RequireSoak(t testing.TB) {
	t.Helper()
	if os.Getenv("TIERWAY_SOAK") == "" {
		t.Skip("needs real servers: run make soak")
	}
}
