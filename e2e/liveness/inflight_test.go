package liveness

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// inBubble runs a test in a bubble with a gateway before two usual engines and the default policy.
func inBubble(t *testing.T, run func(t *testing.T, c *cluster)) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "", usualEngine(), usualEngine())
		time.Sleep(firstChecks)
		run(t, c)
	})
}

// hang makes the busiest worker hang as soon as it has a request.
func (c *cluster) hang() *process {
	sick := c.busiest(time.Time{})
	if err := faultNamed("hang-busy").begin(sick); err != nil {
		c.t.Error(err)
	}
	return sick
}

// stopTarget makes the worker hang to which the last request was sent.
func (c *cluster) stopTarget() {
	all := c.wire.all()
	for _, w := range c.workers {
		if w.address == all[len(all)-1].address {
			w.stop(nil)
		}
	}
}

// TestStreamWithContentEndsSoonAfterItsWorkerHangs: no other worker can continue it. Patient clients would
// wait for timeouts.idle.
func TestStreamWithContentEndsSoonAfterItsWorkerHangs(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		l := usualLoad(true, sharedPrefix, 1)
		l.patient, l.length = true, func() int { return 100 }
		l.driveFor(c, warmUp)
		c.hang()
		hung := time.Now()
		l.driveFor(c, faultTime)
		cut := 0
		for _, s := range l.wait() {
			if s.contentAt.IsZero() || !s.contentAt.Before(hung) || s.err == nil {
				continue
			}
			cut++
			if late := s.ended.Sub(hung); late > 21*time.Second {
				t.Errorf("a stream with content ended %s after its worker hung", late)
			}
			if !strings.Contains(s.err.Error(), "worker_timeout") {
				t.Errorf("the stream ended without an error frame: %v", s.err)
			}
		}
		if cut == 0 {
			t.Error("no stream had content when its worker hung")
		}
	})
}

// TestStreamWithContentEndsWithoutAProofOfAHang: one other request is overdue.
func TestStreamWithContentEndsWithoutAProofOfAHang(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		l := usualLoad(true, sharedPrefix, 1)
		l.patient = true
		l.driveFor(c, warmUp)
		l.owned.Wait()
		l.length = func() int { return 1000 }
		l.start(c)
		time.Sleep(time.Second)
		c.stopTarget()
		began := time.Now()
		l.length = nil
		l.start(c)
		for _, s := range l.wait() {
			if took := s.ended.Sub(began); took > 30*time.Second {
				t.Errorf("a request ended %s after its worker had stopped, with %v", took, s.err)
			}
		}
	})
}

// TestRequestThatMustNotBeRepeatedEndsAfterItsWorkerHangs reaches no second worker.
func TestRequestThatMustNotBeRepeatedEndsAfterItsWorkerHangs(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		l := usualLoad(false, sharedPrefix, 1)
		l.patient = true
		l.driveFor(c, warmUp)
		l.owned.Wait()
		stored := &load{patient: true}
		body := strings.Replace(chatBody(false, text(0, systemTokens), "keep this"), `{`, `{"store":true,`, 1)
		stored.startBody(c, body, tenantNames[0])
		began := time.Now()
		time.Sleep(100 * time.Millisecond)
		c.stopTarget()
		l.driveFor(c, faultTime)
		s := stored.wait()[0]
		took, timedOut := s.ended.Sub(began), s.err != nil && strings.Contains(s.err.Error(), "worker_timeout")
		if !timedOut || took > 21*time.Second {
			t.Errorf("the request ended after %s with %v", took, s.err)
		}
	})
}

// TestSingleRequestMovesFromAWorkerThatHangs: no other request shows anything. A worker that has answered
// shortly before is left after 8 s of silence, another one after the least time to the first event. Whole answers
// have no such time.
func TestSingleRequestMovesFromAWorkerThatHangs(t *testing.T) {
	for _, k := range []struct {
		name   string
		stream bool
		idle   time.Duration
		most   time.Duration
	}{
		{"a stream", true, 30 * time.Second, 11 * time.Second},
		{"a whole answer", false, 30 * time.Second, 13 * time.Second},
		{"a stream after a long pause", true, 10 * time.Minute, 17 * time.Second},
	} {
		t.Run(k.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *cluster) {
				l := usualLoad(k.stream, sharedPrefix, 1)
				l.patient = true
				l.driveFor(c, warmUp)
				l.owned.Wait()
				time.Sleep(k.idle)
				sick := c.busiest(time.Time{})
				if err := faultNamed("hang-idle").begin(sick); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				l.start(c)
				all := l.wait()
				if s := all[len(all)-1]; s.err != nil || s.ended.Sub(began) > k.most {
					t.Errorf("the request at %s ended after %s with %v", sick.name, s.ended.Sub(began), s.err)
				}
				if log := c.log.String(); k.idle < time.Minute && strings.Count(log, "a worker sends nothing") != 1 {
					t.Errorf("the log names the silent worker not once: %s", log)
				}
			})
		})
	}
}

// TestRequestsOfTheOnlyWorkerWait: nothing is gained by ending them. They are answered when the worker goes on.
func TestRequestsOfTheOnlyWorkerWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, "", usualEngine())
		time.Sleep(firstChecks)
		l := usualLoad(true, sharedPrefix, 2)
		l.patient = true
		l.driveFor(c, warmUp)
		sick := c.hang()
		l.driveFor(c, faultTime)
		if err := faultNamed("hang-busy").end(sick); err != nil {
			t.Fatal(err)
		}
		l.driveFor(c, warmUp)
		failed := 0
		for _, s := range l.wait() {
			if s.err != nil && s.contentAt.IsZero() {
				failed++
			}
		}
		if failed > 0 {
			t.Errorf("%d requests without content failed", failed)
		}
	})
}

// TestWholeAnswersSurviveAShortPauseOfTheirWorker if they may not be sent again, although they have waited for longer
// than the limit before: the limit counts from the beginning of the pause.
func TestWholeAnswersSurviveAShortPauseOfTheirWorker(t *testing.T) {
	inBubble(t, func(t *testing.T, c *cluster) {
		l := usualLoad(false, sharedPrefix, 1)
		l.patient = true
		l.driveFor(c, warmUp)
		l.owned.Wait()
		stored := &load{patient: true}
		question := "keep this" + lengthMark + "1000" // about 25 s
		body := strings.Replace(chatBody(false, text(0, systemTokens), question), `{`, `{"store":true,`, 1)
		stored.startBody(c, body, tenantNames[0])
		l.driveFor(c, 15*time.Second)
		for _, w := range c.workers {
			w.stop(nil)
			w.update(func() { w.asleep = true })
		}
		time.Sleep(8 * time.Second)
		for _, w := range c.workers {
			w.update(func() { w.asleep = false })
			w.resume()
		}
		if s := stored.wait()[0]; s.err != nil {
			t.Errorf("the request ended after %s with %v", s.ended.Sub(s.began), s.err)
		}
	})
}
