package chaos

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"tierway/e2e/bubble"
	"tierway/e2e/rig"
	"tierway/engines"
	"tierway/engines/chaos"
)

// authority is a self-signed certificate with its key, in two files.
type authority struct{ cert, key string }

func newAuthority(t *testing.T) authority {
	dir := t.TempDir()
	return authority{filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")}
}

// issue replaces the files with a new certificate with a serial number.
func (a authority) issue(t *testing.T, serial int64) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	der, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	replace(t, a.key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
	replace(t, a.cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

// replace replaces a file atomically, like certificate managers.
func replace(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// section returns the setting tls.
func (a authority) section() string { return fmt.Sprintf("{ cert: %q, key: %q }", a.cert, a.key) }

// trusting returns a client configuration that accepts any certificate.
func trusting() *tls.Config { return &tls.Config{InsecureSkipVerify: true} }

// serial returns the serial number of the certificate in a new handshake.
func (r *chaosRig) serial() (int64, error) {
	c, err := rig.DialTLS(r.T, r.DataAddr, trusting())
	if err != nil {
		return 0, err
	}
	defer c.Close()
	return c.ConnectionState().PeerCertificates[0].SerialNumber.Int64(), nil
}

// TestNewCertificateIsUsedWithoutARestart: the gateway ignores a broken file, and connections with
// the old certificate stay open.
func TestNewCertificateIsUsedWithoutARestart(t *testing.T) { bubble.Test(t, replaceCertificates) }

// replaceCertificates replaces the certificate of a gateway several times.
func replaceCertificates(t *testing.T) {
	t.Helper()
	a := newAuthority(t)
	a.issue(t, 1)
	r := newRig(t, 1, rig.Settings{"tls": a.section()}, engines.Config{})
	if n, err := r.serial(); n != 1 {
		t.Fatalf("the certificate is number %d (%v)", n, err)
	}
	kept, err := rig.DialTLS(t, r.DataAddr, trusting())
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()

	a.issue(t, 2)
	rig.Eventually(t, func() error {
		if n, err := r.serial(); n != 2 {
			return fmt.Errorf("the certificate is number %d (%w)", n, err)
		}
		return nil
	})
	replace(t, a.cert, []byte("this is no certificate"))
	broken := time.Now()
	rig.Eventually(t, func() error {
		n, err := r.serial()
		if n != 2 {
			t.Fatalf("with a broken file the certificate is number %d (%v)", n, err)
		}
		if time.Since(broken) < 1500*time.Millisecond { // the gateway checks the files every second
			return fmt.Errorf("the gateway may not have read the broken file yet")
		}
		return nil
	})
	a.issue(t, 3)
	rig.Eventually(t, func() error {
		if n, err := r.serial(); n != 3 {
			return fmt.Errorf("the certificate is number %d (%w)", n, err)
		}
		return nil
	})
	if _, err := io.WriteString(kept, head+fmt.Sprintf("Content-Length: %d\r\nConnection: close\r\n\r\n", len(chat.body))+
		chat.body); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(kept); err != nil || !strings.Contains(string(got), answerText) {
		t.Errorf("the connection of the first certificate got %s (%v)", got, err)
	}
	if c, err := rig.DialTLS(t, r.DataAddr, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS11}); err ==
		nil {
		c.Close()
		t.Error("TLS 1.1 is accepted")
	}
}

// TestHTTP2StreamsAreIndependent: cancelling one of several streams on a connection frees its
// engine and does not affect the others.
func TestHTTP2StreamsAreIndependent(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a := newAuthority(t)
		a.issue(t, 1)
		engine, on := pausingEngine()
		r := newRig(t, 1, rig.Settings{"tls": a.section(), "queue": beating}, engine)
		r.Client = rig.NewHTTP2Client(t)

		const streams = 8
		conns := map[string]bool{}
		ctx := httptrace.WithClientTrace(context.Background(),
			&httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { conns[i.Conn.LocalAddr().String()] = true }})
		var open []*rig.Stream
		for range streams {
			open = append(open, r.Open(r.Request(ctx, http.MethodPost, chat.path, chat.stream)))
		}
		for _, s := range open {
			if s.Resp.ProtoMajor != 2 || s.Resp.StatusCode != http.StatusOK {
				t.Errorf("the answer is %s %s", s.Resp.Proto, s.Resp.Status)
			}
			s.ReadUntil("The ")
		}
		if len(conns) != 1 {
			t.Errorf("%d connections carry the streams", len(conns))
		}
		var took []time.Duration
		for i, s := range open[:streams/2] {
			before := time.Now()
			s.Cancel()
			r.waitForCancels(int64(i + 1))
			took = append(took, r.Workers[0].Engine.Stats().CancelledAt.Sub(before))
			if line := r.AccessLine(s.ID); line["outcome"] != "client_gone" {
				t.Errorf("the log says %v", line)
			}
		}
		report(t, "cancel of an HTTP/2 stream reaches the engine", took)
		for _, s := range open[streams/2:] {
			s.ReadUntil("keep-alive")
		}
		close(on)
		for _, s := range open[streams/2:] {
			body, err := s.ReadRest()
			if h := transcriptOfStream(body); err != nil || h.text != answerText || !chat.complete(h) {
				t.Errorf("a stream that was not cancelled ended with %v: %s", err, body)
			}
		}
		if n := r.cancelled(); n != streams/2 {
			t.Errorf("%d requests were cancelled at the engine, want %d", n, streams/2)
		}
	})
}

// TestCutHTTP2StreamEndsWithAnErrorFrame, as over HTTP/1.1.
func TestCutHTTP2StreamEndsWithAnErrorFrame(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a := newAuthority(t)
		a.issue(t, 1)
		r := newRig(t, 1, rig.Settings{"tls": a.section()}, engines.Config{})
		r.Client = rig.NewHTTP2Client(t)
		if err := r.Workers[0].Set(chaos.Fault{Kind: chaos.Reset, After: 5}); err != nil {
			t.Fatal(err)
		}
		s := r.stream(chat.path, chat.stream)
		body, err := s.ReadRest()
		checkCut(t, chat, rig.Reply{Body: body, Err: err}, want{code: "worker_error"})
	})
}

// TestRapidResetsLeaveNothingBehind: a client opens HTTP/2 streams and resets them at once.
// Afterwards no request is left, and the next request is served.
func TestRapidResetsLeaveNothingBehind(t *testing.T) {
	bubble.Test(t, func(t *testing.T) {
		a := newAuthority(t)
		a.issue(t, 1)
		r := newRig(t, 1, rig.Settings{"tls": a.section()}, hanging(3))
		r.Client = rig.NewHTTP2Client(t)
		var clients sync.WaitGroup
		for range 8 {
			clients.Go(func() {
				for range 50 {
					ctx, cancel := context.WithCancel(context.Background())
					ctx = httptrace.WithClientTrace(ctx,
						&httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { cancel() }})
					req := r.Request(ctx, http.MethodPost, chat.path, chat.stream)
					req.URL.Scheme = "https"
					if resp, err := r.Client.Do(req); err == nil {
						resp.Body.Close()
					}
					cancel()
				}
			})
		}
		clients.Wait()
		r.WaitUntilIdle()
		s := r.stream(chat.path, chat.stream)
		s.ReadUntil("The ")
		s.Cancel()
		if hits, left := r.hits(), r.cancelled(); hits == 0 || hits > 401 {
			t.Errorf("the engine received %d requests, %d of them cancelled", hits, left)
		}
	})
}
