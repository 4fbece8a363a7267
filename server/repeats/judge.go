package repeats

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"time"

	"tierway/config"
	"tierway/openai"
	"tierway/pairing"
)

// judge returns the verdict of the configured judge. Its errors have no part of an output.
func (p *pair) judge(ctx context.Context, c *config.Replay) (pairing.Verdict, error) {
	if len(c.Judge.Command) > 0 {
		return p.judgeByCommand(ctx, c)
	}
	return p.judgeByModel(ctx, c)
}

func (p *pair) judgeByModel(ctx context.Context, c *config.Replay) (v pairing.Verdict, err error) {
	swapped := p.Rand()&1 == 1
	body, err := pairing.JudgeRequest(c.Judge.Model, p.sample.Body, p.answers, swapped)
	if err != nil {
		return v, errors.New("the request cannot be written as JSON")
	}
	a := p.send(ctx, c, "/v1/chat/completions", http.Header{}, body)
	if a.Result != pairing.Answered {
		return v, fmt.Errorf("judge.model does not answer: status %d, code %s", a.Status, a.Code)
	}
	text, ok := pairing.Text(openai.Chat, a.Body)
	if !ok {
		return v, errors.New("the answer of judge.model has no text")
	}
	return pairing.ReadJudgement(text, swapped)
}

func (p *pair) judgeByCommand(ctx context.Context, c *config.Replay) (v pairing.Verdict, err error) {
	input, err := pairing.CommandInput(p.sample.Body, p.sample.Tiers, p.answers)
	if err != nil {
		return v, errors.New("the request cannot be written as JSON")
	}
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	output, err := runCommand(ctx, c.Judge.Command, input)
	if errors.Is(err, errTimeout) {
		return v, fmt.Errorf("%w (%v)", err, c.Timeout)
	}
	if err != nil {
		return v, err
	}
	return pairing.ReadVerdict(output, p.sample.Tiers)
}

// maxOutput is the longest output of a command in bytes. A verdict has less than 200.
const maxOutput = 4 << 10

// notJudged is the exit status of a command that cannot judge the request.
const notJudged = 3

// lingering is how long the output of a command that has ended may stay open, such as in its child.
const lingering = time.Second

// Errors of a command.
var (
	errOutput  = fmt.Errorf("the command writes more than %d bytes", maxOutput)
	errTimeout = errors.New("the command does not end within learning.replay.timeout")
	// errNotJudged is that of exit status notJudged.
	errNotJudged = errors.New("the command does not judge the request")
)

// runCommand starts a program with its arguments and returns what it writes to standard output. The program ends with
// ctx, and so do its children on Unix. Of the environment it gets PATH only, because others may have the gateway's
// secrets.
func runCommand(ctx context.Context, command []string, input []byte) ([]byte, error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	var output bounded
	cmd.Stdin, cmd.Stdout = bytes.NewReader(input), &output
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	cmd.WaitDelay = lingering
	startInGroup(cmd)
	err := cmd.Run()
	switch exit := new(exec.ExitError); {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return nil, errTimeout
	case output.exceeded:
		return nil, errOutput
	case errors.As(err, &exit) && exit.ExitCode() == notJudged:
		return nil, errNotJudged
	case errors.As(err, &exit):
		return nil, fmt.Errorf("the command ends with %w", exit)
	case err != nil:
		return nil, fmt.Errorf("the command cannot be run: %w", err)
	}
	return output.text, nil
}

// bounded keeps at most maxOutput bytes.
type bounded struct {
	text     []byte
	exceeded bool
}

// Write implements io.Writer. It fails beyond the bound.
func (b *bounded) Write(p []byte) (int, error) {
	if len(b.text)+len(p) > maxOutput {
		b.exceeded = true
		return 0, errOutput
	}
	b.text = append(b.text, p...)
	return len(p), nil
}
