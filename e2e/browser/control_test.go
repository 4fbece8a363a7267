package browser_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"

	"tierway/e2e/gateway"
	"tierway/engines/chaos"
)

// control returns the server of the commands. All commands run on the goroutine of the test,
// because a failed start ends the test.
func (f *fixture) control() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, command func(*http.Request) (string, error)) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			answer, err := f.run(func() (string, error) { return command(r) })
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			_, _ = io.WriteString(w, answer) // the test case may have ended
		})
	}
	handle("POST /reset", func(*http.Request) (string, error) { return "", f.reset() })
	handle("POST /stop", func(*http.Request) (string, error) { f.stop(); return "", nil })
	handle("POST /kill", func(*http.Request) (string, error) { f.gateway.Kill(); return "", nil })
	handle("POST /start", func(*http.Request) (string, error) { f.start(); return "", nil })
	handle("POST /release", func(*http.Request) (string, error) { f.held.release(); return "", nil })
	handle("GET /log", func(*http.Request) (string, error) { return f.gateway.Log(), nil })
	handle("POST /demo", func(*http.Request) (string, error) { return gateway.Demo(f.t).Stdout(), nil })
	handle("POST /engines/{name}/stop", f.stopEngine)
	handle("POST /engines/{name}/start", f.startEngine)
	handle("PUT /engines/{name}/faults", f.setFaults)
	return mux
}

// run runs a command on the goroutine of the test and returns its result.
func (f *fixture) run(command func() (string, error)) (answer string, err error) {
	done := make(chan struct{})
	err = errors.New("the command has ended the test") // unless it returns
	select {
	case f.commands <- func() { defer close(done); answer, err = command() }:
	case <-f.t.Context().Done():
		return "", errors.New("the test has ended")
	}
	<-done
	return answer, err
}

// stop stops the gateway if it runs. Held answers are released, because a drain waits for them.
func (f *fixture) stop() {
	f.held.release()
	if f.gateway.Alive() {
		f.gateway.Stop()
	}
}

// start starts the gateway, with the current file, and waits until it is ready. It stops the gateway
// first if it runs.
func (f *fixture) start() {
	f.stop()
	f.gateway = f.gateway.StartAgain()
	f.gateway.WaitUntilReady()
}

// reset starts what a test case has stopped, removes all faults, releases held answers and applies
// the original configuration file. Live overrides, tenants and keys stay.
func (f *fixture) reset() error {
	f.held.release()
	for _, w := range f.workers {
		if err := errors.Join(w.Set(), w.start()); err != nil {
			return err
		}
	}
	text, err := os.ReadFile(f.gateway.File)
	if err != nil {
		return err
	}
	changed := string(text) != f.text
	if changed {
		if err := os.WriteFile(f.gateway.File, []byte(f.text), 0o600); err != nil {
			return err
		}
	}
	switch {
	case !f.gateway.Alive():
		f.start()
	case changed:
		f.reload()
	}
	return nil
}

// reload makes the gateway read its file and waits until it has done so.
func (f *fixture) reload() {
	reloads := func() float64 {
		m, err := f.gateway.Metrics()
		if err != nil {
			return -1
		}
		return m.Sum("tierway_config_reloads_total")
	}
	before := reloads()
	f.gateway.Signal(syscall.SIGHUP)
	f.gateway.WaitFor("a reload", func() bool { return reloads() > before })
}

// worker returns the engine of a request.
func (f *fixture) worker(r *http.Request) (*worker, error) {
	var names []string
	for _, w := range f.workers {
		if w.Name == r.PathValue("name") {
			return w, nil
		}
		names = append(names, w.Name)
	}
	return nil, fmt.Errorf("no engine is named %q; the engines are %s", r.PathValue("name"), strings.Join(names, ", "))
}

func (f *fixture) stopEngine(r *http.Request) (string, error) {
	w, err := f.worker(r)
	if err == nil {
		w.stop()
	}
	return "", err
}

func (f *fixture) startEngine(r *http.Request) (string, error) {
	w, err := f.worker(r)
	if err != nil {
		return "", err
	}
	return "", w.start()
}

// setFaults replaces the faults of an engine with those of the body, a list of chaos.Fault in JSON.
func (f *fixture) setFaults(r *http.Request) (string, error) {
	w, err := f.worker(r)
	if err != nil {
		return "", err
	}
	var faults []chaos.Fault
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(&faults); err != nil {
		return "", fmt.Errorf("reading the faults: %w", err)
	}
	return "", w.Set(faults...)
}
