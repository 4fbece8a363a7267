package store

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
)

// sentinel is a Redis Sentinel of one master at lineAddress. With a password, it requires authentication.
type sentinel struct {
	user, password string
	old            bool // refuses credentials that it does not require, as before Redis 6

	mu   sync.Mutex
	seen []string // names of the commands
}

const sentinelAddress = "127.0.0.1:26379"

// serve accepts connections at sentinelAddress until the test ends.
func (s *sentinel) serve(t *testing.T, l *line) {
	listener, err := l.network.Listen("tcp", sentinelAddress)
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { s.serveConn(c) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		serving.Wait()
	})
}

func (s *sentinel) serveConn(c net.Conn) {
	defer c.Close()
	for r, authenticated := bufio.NewReader(c), s.password == ""; ; {
		command, err := readCommand(r)
		if err != nil {
			return
		}
		name := strings.ToUpper(command[0])
		s.mu.Lock()
		s.seen = append(s.seen, name)
		s.mu.Unlock()
		reply := "-ERR unknown command\r\n"
		switch {
		case name == "HELLO" && s.old:
		case name == "AUTH" && s.password == "":
			reply = "-ERR Client sent AUTH, but no password is set\r\n"
		case name == "AUTH":
			authenticated = command[len(command)-1] == s.password && (len(command) == 2) == (s.user == "")
			if reply = "+OK\r\n"; !authenticated {
				reply = "-WRONGPASS invalid username-password pair\r\n"
			}
		case !authenticated:
			reply = "-NOAUTH Authentication required.\r\n"
		case name == "PING":
			reply = "+PONG\r\n"
		case name == "SENTINEL" && strings.EqualFold(command[1], "get-master-addr-by-name"):
			host, port, _ := net.SplitHostPort(lineAddress)
			reply = fmt.Sprintf("*2\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(host), host, len(port), port)
		case name == "SENTINEL":
			reply = "*0\r\n"
		}
		if _, err := io.WriteString(c, reply); err != nil {
			return
		}
	}
}

// readCommand reads an array of bulk strings.
func readCommand(r *bufio.Reader) ([]string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return nil, err
	}
	n, err := strconv.Atoi(strings.TrimSpace(line[1:]))
	command := make([]string, n)
	for i := 0; i < n && err == nil; i++ {
		if _, err = r.ReadString('\n'); err == nil { // its length; no argument has a line's end
			command[i], err = r.ReadString('\n')
			command[i] = strings.TrimSpace(command[i])
		}
	}
	return command, err
}

// TestSentinelsGetTheCredentialsThatTheyRequire, and none if they require none.
func TestSentinelsGetTheCredentialsThatTheyRequire(t *testing.T) {
	for name, c := range map[string]struct {
		credentials string
		file        bool
		s           *sentinel
		auth        bool
	}{
		"a password":                 {":s3cret@", false, &sentinel{password: "s3cret"}, true},
		"a user":                     {"app:s3cret@", false, &sentinel{user: "app", password: "s3cret"}, true},
		"a password of a file":       {"", true, &sentinel{password: "s3cret"}, true},
		"a user, the password filed": {"app@", true, &sentinel{user: "app", password: "s3cret"}, true},
		"none":                       {":s3cret@", false, &sentinel{}, false},
		"none, before Redis 6":       {":s3cret@", false, &sentinel{old: true}, false},
		"a password, before Redis 6": {":s3cret@", false, &sentinel{password: "s3cret", old: true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLine(t)
				if strings.HasPrefix(c.credentials, "app") {
					l.RequireUserAuth("app", "s3cret")
				} else {
					l.RequireAuth("s3cret")
				}
				c.s.serve(t, l)
				config := RedisConfig{URL: "redis+sentinel://" + c.credentials + sentinelAddress + "/main", Gateway: "gw",
					Dial: l.dial, Timeout: patient}
				if c.file {
					config.PasswordFile = filepath.Join(t.TempDir(), "password")
					if err := os.WriteFile(config.PasswordFile, []byte("s3cret\n"), 0o600); err != nil {
						t.Fatal(err)
					}
				}
				t.Cleanup(func() { time.Sleep(time.Second) }) // the client's subscription ends a little after its client
				w := openRedis(t, config)
				if err := w.beat(t.Context()); err != nil {
					t.Error(err)
				}
				c.s.mu.Lock()
				defer c.s.mu.Unlock()
				if sent := strings.Contains(strings.Join(c.s.seen, " "), "AUTH"); sent != c.auth {
					t.Errorf("it was sent %q", c.s.seen)
				}
			})
		})
	}
}

// TestPasswordFileIsReadForEachConnection: after a rotation, connections that are lost are opened with the new one.
func TestPasswordFileIsReadForEachConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, file := newLine(t), filepath.Join(t.TempDir(), "password")
		rotate := func(password string) {
			l.RequireAuth(password)
			if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		rotate("first")
		w := l.open(t, RedisConfig{Timeout: patient, PasswordFile: file})
		for _, password := range []string{"first", "second/?#%"} {
			rotate(password)
			l.kill()
			l.restart()
			if err := w.beat(t.Context()); err != nil {
				t.Errorf("with %s: %v", password, err)
			}
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		l.kill()
		l.restart()
		if err := w.beat(t.Context()); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("without a password: %v", err)
		}
	})
}

// TestMissingRightToTheChannelIsLoggedOnce and is no outage. Once it is granted, changes are received.
func TestMissingRightToTheChannelIsLoggedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t)
		var granted, heard atomic.Bool
		l.Server().SetPreHook(func(c *server.Peer, command string, _ ...string) bool {
			refused := !granted.Load() && strings.HasSuffix(strings.ToUpper(command), "SUBSCRIBE") ||
				!granted.Load() && strings.EqualFold(command, "PUBLISH")
			if refused {
				c.WriteError("NOPERM No permissions to access a channel")
			}
			return refused
		})
		w := l.open(t, RedisConfig{Timeout: patient})
		w.OnChange(func() { heard.Store(true) })
		defer start(w.Run)()
		for range 2 * tripAfter {
			if err := w.PublishChange(t.Context()); !isDenied(errors.Unwrap(err)) {
				t.Fatal(err)
			}
		}
		time.Sleep(3 * deniedPause)
		if text := w.log.String(); strings.Count(text, "&tierway:*") != 1 || w.log.lines() != 1 || !w.Up() ||
			w.suspected.Load() {
			t.Errorf("up: %v; the log is\n%s", w.Up(), text)
		}
		granted.Store(true)
		time.Sleep(2 * deniedPause)
		if err := w.PublishChange(t.Context()); err != nil {
			t.Fatal(err)
		}
		if synctest.Wait(); !heard.Load() {
			t.Error("the change is not received")
		}
	})
}
