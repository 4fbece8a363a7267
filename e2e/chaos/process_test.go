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
)

// patience is how long anything may take that is expected to happen: long
// enough for a busy machine, since nothing that works waits for it.
const patience = 15 * time.Second

func TestMain(m *testing.M) {
	if addr := os.Getenv(engineVariable); addr != "" {
		beEngine(addr)
	}
	os.Exit(gateway.Main(m))
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
	eventually(p.t, func() error {
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
	case <-time.After(patience):
		p.t.Fatal("tierway has not ended")
	}
	return p.cmd.ProcessState.ExitCode()
}

// eventually asks again until there is no error, and fails with the last one.
func eventually(t testing.TB, ok func() error) {
	t.Helper()
	late := time.After(patience)
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		err := ok()
		if err == nil {
			return
		}
		select {
		case <-again.C:
		case <-late:
			t.Fatal(err)
		}
	}
}
