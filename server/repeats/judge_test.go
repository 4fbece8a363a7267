package repeats

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"tierway/config"
	"tierway/openai"
	"tierway/pairing"
)

// script writes a script of the shell, and returns the command that runs it with arguments.
func script(t *testing.T, text string, arguments ...string) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "judge")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return append([]string{"/bin/sh", path}, arguments...)
}

// TestCommandGetsTheRequestAndBothAnswers, and of the gateway's environment only PATH.
func TestCommandGetsTheRequestAndBothAnswers(t *testing.T) {
	t.Setenv("TIERWAY_SECRET", "secret")
	record := filepath.Join(t.TempDir(), "record")
	p := pair{sample: &pairing.Sample{Body: []byte(`{"model":"auto"}`), Dialect: openai.Chat,
		Tiers: [2]string{"small", "large"}}, answers: [2]string{"4", "2"}}
	c := &config.Replay{Timeout: defaultTimeout,
		Judge: config.Judge{Command: script(t, `{ cat; echo; echo "$1"; env; } > "$2"; echo '{"large": true, "small": false}'`,
			"one; two", record)}}
	v, err := p.judge(t.Context(), c)
	if err != nil || v != (pairing.Verdict{false, true}) {
		t.Fatalf("%v %v", v, err)
	}
	text, err := os.ReadFile(record)
	want := `{"request":{"model":"auto"},"answers":{"large":"2","small":"4"}}` + "\none; two\n"
	if err != nil || !strings.HasPrefix(string(text), want) || !strings.Contains(string(text), "PATH=") ||
		strings.Contains(string(text), "TIERWAY") {
		t.Errorf("%s %v", text, err)
	}
}

// defaultTimeout is longer than any test.
const defaultTimeout = 1 << 40

// TestCommandWithoutAVerdictFails: the error has the cause and no output.
func TestCommandWithoutAVerdictFails(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"a status":          {`echo '{"small": true, "large": true}'; exit 3`, "the command does not judge the request"},
		"another status":    {`exit 4`, "the command ends with exit status 4"},
		"a signal":          {`kill -9 $$`, "the command ends with signal: killed"},
		"other names":       {`echo '{"secret": true, "large": true}'`, "the output is not a JSON object"},
		"no output":         {`cat > /dev/null`, "the output is not a JSON object"},
		"an endless output": {`while :; do echo secret-secret-secret-secret-secret-secret; done`, "the command writes more than 4096 bytes"},
		"errors only":       {`echo secret >&2; exit 1`, "the command ends with exit status 1"},
	} {
		t.Run(name, func(t *testing.T) {
			p := pair{sample: &pairing.Sample{Body: []byte(`{}`), Tiers: [2]string{"small", "large"}}}
			_, err := p.judge(t.Context(), &config.Replay{Timeout: defaultTimeout,
				Judge: config.Judge{Command: script(t, c.text)}})
			if err == nil || !strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), "secret") {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
	p := pair{sample: &pairing.Sample{Body: []byte(`{}`), Tiers: [2]string{"small", "large"}}}
	if _, err := p.judge(t.Context(), &config.Replay{Timeout: 1,
		Judge: config.Judge{Command: script(t, "exec tail -f /dev/null")}}); !errors.Is(err, errTimeout) {
		t.Error(err)
	}
	if _, err := runCommand(t.Context(), []string{"/no/judge"}, nil); err == nil ||
		!strings.HasPrefix(err.Error(), "the command cannot be run: ") {
		t.Error(err)
	}
}

// TestChildrenOfACommandEndWithItsContext: a pipe that only a child holds open is closed.
func TestChildrenOfACommandEndWithItsContext(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	held := filepath.Join(t.TempDir(), "held")
	if err := syscall.Mkfifo(held, 0o600); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		pipe, err := os.Open(held) // returns when the child has opened it
		stop()
		if err == nil {
			_, err = io.Copy(io.Discard, pipe)
			pipe.Close()
		}
		ended <- err
	}()
	if _, err := runCommand(ctx, script(t, `tail -f /dev/null > `+held+` & wait`), nil); err == nil {
		t.Error("the command has an output")
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// TestCommandEndsWithItsContext: also one that does not read its input.
func TestCommandEndsWithItsContext(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	began := filepath.Join(t.TempDir(), "began")
	if err := syscall.Mkfifo(began, 0o600); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = os.ReadFile(began) // ends when the command has opened and closed it
		stop()
	}()
	if _, err := runCommand(ctx, script(t, `: > `+began+`; exec tail -f /dev/null`),
		make([]byte, 1<<20)); err == nil || !strings.HasPrefix(err.Error(), "the command ends with signal: killed") {
		t.Error(err)
	}
}
