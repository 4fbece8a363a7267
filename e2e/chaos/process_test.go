package chaos

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"tierway/e2e/gateway"
	"tierway/e2e/rig"
)

func TestMain(m *testing.M) {
	if addr := os.Getenv(engineVariable); addr != "" {
		beEngine(addr)
	}
	os.Exit(rig.Main(m))
}

// program is a run of the binary with arguments of its own, which may end with
// any status.
type program struct {
	t        *testing.T
	cmd      *exec.Cmd
	out, err gateway.Output
	ended    chan struct{} // closed once it has been waited for
}

// begin starts the binary with env added to its environment.
func begin(t *testing.T, env []string, args ...string) *program {
	t.Helper()
	p := &program{t: t, cmd: exec.Command(gateway.Binary(t), args...), ended: make(chan struct{})}
	p.cmd.Dir = t.TempDir() // the default database is a file there
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.err
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		_ = p.cmd.Wait() // how it ended stands in ProcessState
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended by itself
		<-p.ended
	})
	return p
}

// serving waits until the program serves and returns its two addresses.
func (p *program) serving() (data, admin string) {
	p.t.Helper()
	rig.Eventually(p.t, func() error {
		for line := range strings.Lines(p.err.String()) {
			var o struct{ Msg, Data, Admin string }
			if json.Unmarshal([]byte(line), &o) == nil && o.Msg == "serving" {
				data, admin = o.Data, o.Admin
				return nil
			}
		}
		return errors.New("tierway does not serve; it said: " + p.err.String())
	})
	return data, admin
}

// signal sends a signal.
func (p *program) signal(s os.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// status waits for the program's end and returns its status.
func (p *program) status() int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(rig.Patience):
		p.t.Fatal("tierway has not ended")
	}
	return p.cmd.ProcessState.ExitCode()
}
