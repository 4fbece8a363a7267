package chaos

import (
	"strings"
	"syscall"
	"testing"

	"tierway/e2e/rig"
	"tierway/engines"
	"tierway/engines/chaos"
)

// The smoke tests check what only the program itself can show: signals, files, descriptors, and pipes. They run
// against the binary in real time, and no result depends on the speed of the machine.

// TestSmokeDrainLosesNoRequest: after SIGTERM, a stream in progress ends normally, and the program exits with
// status 0.
func TestSmokeDrainLosesNoRequest(t *testing.T) {
	rig.RequireBinary(t)
	t.Parallel()
	engine, on := pausingEngine()
	r := newRig(t, 1, rig.Settings{"drain": `{ accept_grace: 1ms, timeout: 10m }`}, engine)
	s := r.stream(chat.path, chat.stream)
	s.ReadUntil("content")
	r.Signal(syscall.SIGTERM)
	r.WaitFor("the drain", func() bool { return strings.Contains(r.Log(), `"draining"`) })
	close(on)
	body, err := s.ReadRest()
	if h := transcriptOfStream(body); err != nil || h.text != answerText || !chat.complete(h) {
		t.Errorf("the stream in progress ended with %v: %s", err, body)
	}
	r.WaitForEnd()
}

// TestSmokeASecondSignalCutsRequestsWithAnError: the same as without the program, and its exit status.
func TestSmokeASecondSignalCutsRequestsWithAnError(t *testing.T) {
	rig.RequireBinary(t)
	t.Parallel()
	cutBySecondSignal(t, syscall.SIGTERM)
}

// TestSmokeNewCertificateIsUsedWithoutARestart: the program reads changed files.
func TestSmokeNewCertificateIsUsedWithoutARestart(t *testing.T) {
	rig.RequireBinary(t)
	t.Parallel()
	replaceCertificates(t)
}

// TestSmokeAFaultOfOneWorkerIsHiddenInEveryDialect: the other worker serves the request.
func TestSmokeAFaultOfOneWorkerIsHiddenInEveryDialect(t *testing.T) {
	rig.RequireBinary(t)
	t.Parallel()
	for _, d := range []dialect{chat, completions, responses, messages} {
		r := newRig(t, 2, nil, engines.Config{})
		if err := r.Workers[0].Set(chaos.Fault{Kind: chaos.Reset}); err != nil {
			t.Fatal(err)
		}
		r.check(t, d, true, r.post(d.path, d.stream), elsewhere)
	}
}
