//go:build vllm

package vllm

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
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
	"tierway/e2e/rig"
)

const (
	blockTokens = 32  // of the engines; vLLM's CPU backend takes multiples of 32
	cacheBlocks = 160 // of each engine: 5,120 tokens
	// starting bounds the start of an engine, which compiles for about a minute.
	starting = 5 * time.Minute
)

// engine is a vLLM engine.
type engine struct {
	name string
	url  string

	t       *testing.T
	model   string
	own     options
	process *exec.Cmd
	log     *os.File
}

// options are the arguments and variables of an engine that not all engines have.
type options struct{ arguments, environment []string }

// python is the interpreter that has vLLM.
func python(t *testing.T) string {
	t.Helper()
	path := os.Getenv("TIERWAY_VLLM")
	if path == "" {
		t.Fatal("TIERWAY_VLLM is not set: use `make e2e-vllm`")
	}
	return path
}

// makeModel makes a model of which the tokenizer knows the words of this project's docs.
func makeModel(t *testing.T) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "model")
	texts, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(python(t), append([]string{"model.py", dir}, texts...)...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// newEngine starts an engine. It returns before the engine is ready.
func newEngine(t *testing.T, name, model string, own options) *engine {
	t.Helper()
	e := &engine{name: name, t: t, model: model, own: own, url: "http://" + gateway.Address(t)}
	var err error
	if e.log, err = os.Create(filepath.Join(t.TempDir(), name+".log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		e.kill()
		if text, err := os.ReadFile(e.log.Name()); err == nil && t.Failed() {
			t.Logf("the last lines of %s:\n%s", name, text[max(0, len(text)-4000):])
		}
	})
	e.start()
	return e
}

func (e *engine) start() {
	e.t.Helper()
	e.process = exec.Command(python(e.t), append([]string{"-m", "vllm.entrypoints.openai.api_server",
		"--model", e.model, "--served-model-name", "tiny", "--seed", "7",
		"--host", loopback.Host(), "--port", portOf(e.url), "--dtype", "bfloat16", "--enforce-eager",
		"--max-model-len", "4096", "--max-num-seqs", "8", "--block-size", fmt.Sprint(blockTokens),
		"--num-gpu-blocks-override", fmt.Sprint(cacheBlocks), "--enable-prefix-caching", "--enable-prompt-tokens-details",
		"--enable-auto-tool-choice", "--tool-call-parser", "hermes"}, e.own.arguments...)...)
	e.process.Env = append(os.Environ(), "VLLM_CPU_KVCACHE_SPACE=1", "VLLM_SERVER_DEV_MODE=1", "VLLM_NO_USAGE_STATS=1",
		"HF_HUB_OFFLINE=1", "TRANSFORMERS_OFFLINE=1", "VLLM_CPU_OMP_THREADS_BIND=nobind", "OMP_NUM_THREADS=1",
		"VLLM_HOST_IP=127.0.0.1", "GLOO_SOCKET_IFNAME=lo", "TOKENIZERS_PARALLELISM=false")
	e.process.Env = append(e.process.Env, e.own.environment...)
	e.process.Stdout, e.process.Stderr = e.log, e.log
	e.process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // its core is a process of its own
	if err := e.process.Start(); err != nil {
		e.t.Fatal(err)
	}
}

// encoded returns an argument in JSON.
func encoded(t *testing.T, v map[string]any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// waitUntilReady waits until the engine answers.
func (e *engine) waitUntilReady() {
	e.t.Helper()
	rig.Within(e.t, starting, func() error {
		answer, err := http.Get(e.url + "/health")
		if err != nil {
			return err
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: status %d", e.name, answer.StatusCode)
		}
		return nil
	})
}

// kill ends all processes of the engine at once, as a crash does.
func (e *engine) kill() {
	if e.process.ProcessState == nil {
		syscall.Kill(-e.process.Process.Pid, syscall.SIGKILL) // they may have ended
		e.process.Wait()                                      // it was killed
	}
}

// clear makes the engine drop its cache. Its event comes with the next step of the engine.
func (e *engine) clear() {
	e.t.Helper()
	if _, err := post(e.t.Context(), e.url+"/reset_prefix_cache", nil); err != nil {
		e.t.Fatal(err)
	}
}

// ask sends a chat past the gateway.
func (e *engine) ask(body string) {
	e.t.Helper()
	if _, err := post(e.t.Context(), e.url+"/v1"+chatPath, []byte(body)); err != nil {
		e.t.Fatal(err)
	}
}

// completion is an answer of any dialect, as far as the tests need it.
type completion struct {
	Choices []struct {
		Text    string `json:"text"`
		Message struct {
			Content string `json:"content"`
		} `json:"message"`
		Delta struct {
			Content string `json:"content"`
		} `json:"delta"`
	} `json:"choices"`
	Content []struct { // of messages
		Text string `json:"text"`
	} `json:"content"`
	Output []struct { // of responses
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
	} `json:"output"`
	Usage struct {
		Prompt  int64 `json:"prompt_tokens"`
		Details struct {
			Cached int64 `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
		OfResponse struct {
			Cached int64 `json:"cached_tokens"`
		} `json:"input_tokens_details"`
		OfMessage int64 `json:"cache_read_input_tokens"`
	} `json:"usage"`
	worker string // from the gateway
	id     string // the gateway's id of the request
	raw    []byte
}

// cached returns the cached tokens of an answer.
func (c *completion) cached() int64 {
	return c.Usage.Details.Cached + c.Usage.OfResponse.Cached + c.Usage.OfMessage
}

// text returns the generated text, and of an event the part that it adds.
func (c *completion) text() string {
	var b strings.Builder
	for _, choice := range c.Choices {
		b.WriteString(choice.Text + choice.Message.Content + choice.Delta.Content)
	}
	for _, part := range c.Content {
		b.WriteString(part.Text)
	}
	for _, item := range c.Output {
		for _, part := range item.Content {
			b.WriteString(part.Text)
		}
	}
	return b.String()
}

// post sends a request and returns its answer. Of a stream, only the bytes are returned.
func post(ctx context.Context, url string, body []byte) (c completion, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return c, err
	}
	request.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return c, err
	}
	defer answer.Body.Close()
	if c.raw, err = io.ReadAll(answer.Body); err != nil {
		return c, err
	}
	if answer.StatusCode != http.StatusOK {
		return c, fmt.Errorf("%s: status %d: %s", url, answer.StatusCode, c.raw)
	}
	c.worker, c.id = answer.Header.Get("X-Routed-To"), answer.Header.Get("X-Request-Id")
	if len(c.raw) == 0 || strings.HasPrefix(answer.Header.Get("Content-Type"), "text/event-stream") {
		return c, nil
	}
	return c, json.Unmarshal(c.raw, &c)
}
