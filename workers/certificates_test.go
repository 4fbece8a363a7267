package workers

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// writePEM writes a certificate, with its key if there is one, and returns their paths.
func writePEM(t *testing.T, der []byte, key *ecdsa.PrivateKey) (cert, keyPath string) {
	t.Helper()
	dir := t.TempDir()
	cert, keyPath = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	write := func(path, kind string, der []byte) {
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(cert, "CERTIFICATE", der)
	if key != nil {
		pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			t.Fatal(err)
		}
		write(keyPath, "PRIVATE KEY", pkcs8)
	}
	return cert, keyPath
}

// clientCertificate returns a self-signed certificate of a client.
func clientCertificate(t *testing.T, serial int64) (der []byte, key *ecdsa.PrivateKey) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	if der, err = x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key); err != nil {
		t.Fatal(err)
	}
	return der, key
}

// TestCertificatesOfAWorker: a server with a private authority is trusted if the worker names it, and a server that
// asks for a certificate gets the worker's, in the form that the files have at the connection.
func TestCertificatesOfAWorker(t *testing.T) {
	der, key := clientCertificate(t, 1)
	second, secondKey := clientCertificate(t, 2)
	clients := x509.NewCertPool()
	for _, d := range [][]byte{der, second} {
		parsed, err := x509.ParseCertificate(d)
		if err != nil {
			t.Fatal(err)
		}
		clients.AddCert(parsed)
	}
	engine := loopback.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.TLS.PeerCertificates[0].SerialNumber.String())
	}))
	engine.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: clients}
	engine.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	engine.StartTLS()
	t.Cleanup(engine.Close)
	ca, _ := writePEM(t, engine.Certificate().Raw, nil)
	cert, keyPath := writePEM(t, der, key)
	try := func(own *TLS) (body, failure string) {
		t.Helper()
		send := newSender(Spec{Config: Config{URL: engine.URL, TLS: own}}, loopback.Dial, slog.New(slog.DiscardHandler))
		defer send.Close()
		answer, err := send.Send(t.Context(), postRequest("/", "x"))
		if err != nil {
			return "", err.Error()
		}
		return readAll(t, answer, nil), ""
	}
	for _, c := range []struct {
		own           *TLS
		body, failure string
	}{
		{nil, "", "certificate signed by unknown authority"},
		{&TLS{Cert: cert, Key: keyPath}, "", "certificate signed by unknown authority"},
		// The server closes the connection after its alert, so the rest of the request may fail first.
		{&TLS{CA: ca}, "", "certificate required|broken pipe|connection reset"},
		{&TLS{CA: ca, Cert: cert, Key: keyPath}, "1", ""},
		{&TLS{CA: cert, Cert: cert, Key: keyPath}, "", "certificate signed by unknown authority"},
		{&TLS{CA: "gone", Cert: cert, Key: keyPath}, "", "certificate signed by unknown authority"},
		{&TLS{CA: ca, Cert: "gone", Key: keyPath}, "", "the gateway's certificate for the worker: open gone"},
	} {
		body, failure := try(c.own)
		if expected, err := regexp.MatchString(c.failure, failure); body != c.body || err != nil || !expected {
			t.Errorf("%+v: %q, %q, want %q, %q", c.own, body, failure, c.body, c.failure)
		}
	}
	renewed, renewedKey := writePEM(t, second, secondKey)
	for from, to := range map[string]string{renewed: cert, renewedKey: keyPath} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	if body, failure := try(&TLS{CA: ca, Cert: cert, Key: keyPath}); body != "2" {
		t.Errorf("after a renewal: %q, %q", body, failure)
	}
}

// TestKeyFileIsReadAgain when it changes. While it cannot be read, the last key applies.
func TestKeyFileIsReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
	}
	for engine, header := range map[string]string{"vllm": "Authorization", "anthropic": "X-Api-Key"} {
		synctest.Test(t, func(t *testing.T) {
			write("first-key\n")
			f := new(fakeSender)
			fleet := NewFleet(Options{send: func(Spec) Sender { return f }})
			fleet.Sync([]Spec{{Config: Config{Name: "w", URL: "http://h:1", APIKeyFile: path}, Engine: engine}})
			w := fleet.Get("w")
			prefix := map[string]string{"vllm": "Bearer "}[engine]
			check := func(want string) {
				t.Helper()
				h := w.link.Load().header(http.Header{header: {"of-the-client"}}, nil)
				if got := h.Get(header); got != prefix+want {
					t.Errorf("%s: %s is %q, want %q", engine, header, got, want)
				}
			}
			check("first-key")
			later := func() {
				l := w.link.Load()
				fleet.Sync([]Spec{w.Spec()}) // keeps the link
				if w.link.Load() != l {
					t.Error("a reload without a change replaced the link")
				}
				time.Sleep(keyFileEvery)
			}
			write("second-key")
			later()
			check("second-key")
			if !w.RepeatsKey([]byte("the first-key is wrong")) || !w.RepeatsKey([]byte("second-key")) ||
				w.RepeatsKey([]byte("of-the-client")) {
				t.Error("a key that an answer may repeat is unknown")
			}
			write("two\nlines")
			later()
			check("second-key")
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			later()
			check("second-key")
			write("third-key\r\n")
			later()
			check("third-key")
			fleet.Close()
		})
	}
}

// TestReloadKeepsTheLastKeyOfAFile that cannot be read: a changed connection or header does not lose it.
func TestReloadKeepsTheLastKeyOfAFile(t *testing.T) {
	for name, change := range map[string]func(*Spec){
		"connect_timeout": func(s *Spec) { s.ConnectTimeout = 7 * time.Second },
		"tls":             func(s *Spec) { s.TLS = &TLS{CA: "ca.pem"} },
		"headers":         func(s *Spec) { s.Headers = Headers{"X-Team": "a"} },
	} {
		path := filepath.Join(t.TempDir(), "key")
		if err := os.WriteFile(path, []byte("first-key\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		fleet := NewFleet(Options{send: func(Spec) Sender { return new(fakeSender) }})
		spec := Spec{Config: Config{Name: "w", URL: "https://h:1", APIKeyFile: path}}
		fleet.Sync([]Spec{spec})
		w := fleet.Get("w")
		key := func() string { return w.link.Load().header(http.Header{}, nil).Get("Authorization") }
		before := key()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		change(&spec)
		fleet.Sync([]Spec{spec})
		if after := key(); fleet.Get("w") != w || before != "Bearer first-key" || after != before {
			t.Errorf("%s: the key was %q and is %q", name, before, after)
		}
		fleet.Close()
	}
}

// TestSlowFileDelaysOneRequest: while it is read, the others use the last key and the last authorities.
func TestSlowFileDelaysOneRequest(t *testing.T) {
	keyPath := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(keyPath, []byte("first-key"), 0o600); err != nil {
		t.Fatal(err)
	}
	der, _ := clientCertificate(t, 1)
	ca, _ := writePEM(t, der, nil)
	file := &keyFile{path: keyPath, log: slog.New(slog.DiscardHandler)}
	_, _ = file.keys()
	file.current.Store(&fileKey{key: "first-key"}) // due
	to, err := parseAddress("https://h")
	if err != nil {
		t.Fatal(err)
	}
	send := newStandard(standardConfig{address: to, tls: TLS{CA: ca}, log: file.log})
	defer send.Close()
	send.current.Load().since = time.Now().Add(-connectionMaxAge)
	for path, use := range map[string]func(){keyPath: func() { _, _ = file.keys() }, ca: func() { send.transports() }} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
		slow, other := make(chan struct{}), make(chan struct{})
		go func() {
			use()
			close(slow)
		}()
		reading, err := os.OpenFile(path, os.O_WRONLY, 0) // returns once the file is read
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			use()
			close(other)
		}()
		select {
		case <-other:
		case <-slow:
			t.Errorf("%s was not read", path)
		case <-time.After(30 * time.Second):
			t.Errorf("a request waits for another one's reading of %s", path)
		}
		reading.Close()
		<-slow
	}
}
