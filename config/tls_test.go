package config

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// writePair writes a fresh self-signed certificate and its key.
func writePair(t *testing.T, dir, name string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	cert, key = filepath.Join(dir, name+".crt"), filepath.Join(dir, name+".key")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der},
		key: {Type: "PRIVATE KEY", Bytes: pkcs8}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}

func TestTLSOpensAnAddressWithoutAWarning(t *testing.T) {
	dir := t.TempDir()
	cert, key := writePair(t, dir, "a")
	_, other := writePair(t, dir, "b")
	src := keys + small + `listen: ":443"
admin: {listen: "%s"%s}
tls: {cert: "${CERT}", key: "${KEY}"}
`
	cases := map[string]struct{ admin, more, key, want string }{
		"one address":        {":443", "", key, ""},
		"its own plane only": {":444", "", key, `admin.listen: ":444" is not loopback and has no TLS`},
		"a certificate each": {":444", `, tls: {cert: "${CERT}", key: "${KEY}"}`, key, ""},
		"two for one address": {":443", `, tls: {cert: "${CERT}", key: "${KEY}"}`, key,
			`admin.tls: both planes share ":443" and its certificate`},
		"the key of another one": {":443", "", other, `tls.cert: the certificate "${CERT}" does not load with its key`},
		"a key that is not there": {":443", "", filepath.Join(dir, "gone"),
			`tls.key: cannot read "${KEY}": no such file or directory`},
	}
	for name, c := range cases {
		got := strings.Join(problemsOf(t, fmt.Sprintf(src, c.admin, c.more), map[string]string{"CERT": cert, "KEY": c.key}),
			"\n")
		if !strings.Contains(got, c.want) || (c.want == "") != (got == "") || strings.Contains(got, dir) {
			t.Errorf("%s: want %q, got %q", name, c.want, got)
		}
	}
}
