package config

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"tierway/tenants"
)

// makeDigest is the way to a key's digest.
const makeDigest = `printf %s "$KEY" | sha256sum`

// checkTLS checks that certificate and key are both there, load and belong
// together.
func (d *decoder) checkTLS(path string, t TLS) {
	switch {
	case !t.On():
		return
	case t.Cert == "":
		d.fault(path+".cert", "missing beside key", "name the certificate's PEM file")
		return
	case t.Key == "":
		d.fault(path+".key", "missing beside cert", "name the private key's PEM file")
		return
	case d.draft: // it reads no file
		return
	}
	cert, certErr := os.ReadFile(t.Cert)
	key, keyErr := os.ReadFile(t.Key)
	d.unreadable(path+".cert", t.Cert, certErr)
	d.unreadable(path+".key", t.Key, keyErr)
	if certErr != nil || keyErr != nil {
		return
	}
	if _, err := tls.X509KeyPair(cert, key); err != nil {
		d.fault(path+".cert", fmt.Sprintf("the certificate %s does not load with its key: %v", d.shown(path+".cert", t.Cert), err), "both are PEM files and belong together")
	}
}

// unreadable notes that a file could not be read, if err says so.
func (d *decoder) unreadable(path, file string, err error) {
	if err == nil {
		return
	}
	var cause *fs.PathError
	if errors.As(err, &cause) {
		err = cause.Err
	}
	d.fault(path, fmt.Sprintf("cannot read %s: %v", d.shown(path, file), err), "paths are relative to where the program was started")
}

// checkAuth checks the keys of both planes.
func (d *decoder) checkAuth(f *File) {
	digests := map[string]string{}
	checkDigest := func(path, digest string) {
		digest = strings.ToLower(digest)
		if first := digests[digest]; first != "" && digest != "" {
			d.fault(path+".sha256", "the same key as "+first, "every key has one place; give this one its own").hide = true
			return
		}
		digests[digest] = path
	}
	for i, k := range f.Auth.Keys {
		checkDigest(fmt.Sprintf("auth.keys[%d]", i), k.SHA256)
	}
	names, adminKeys := map[string]string{}, []tenants.KeyConfig{}
	for i, k := range f.Admin.Keys {
		path := fmt.Sprintf("admin.keys[%d]", i)
		checkDigest(path, k.SHA256)
		d.checkTwice(names, path+".name", k.Name)
		adminKeys = append(adminKeys, tenants.KeyConfig{Name: "admin", SHA256: k.SHA256})
	}
	if len(f.Admin.Keys) > 0 && !slices.ContainsFunc(f.Admin.Keys, func(k AdminKey) bool { return k.Role == "" || k.Role == roleAdmin }) {
		d.caution("admin.keys", "there are viewers only: unless the database has an admin, nobody can change anything before the first one is made",
			"give one of them role: admin, or make one with `tierway keys create --admin`")
	}
	_, _, err := tenants.FromConfig(f.Auth.Keys)
	d.adopt(err, func(path string) string { return path })
	_, _, err = tenants.FromConfig(adminKeys)
	d.adopt(err, func(path string) string { return strings.Replace(path, "auth.", "admin.", 1) })
	if f.Auth.Required && len(f.Auth.Keys) == 0 && f.Store.SQL == "" {
		d.fault("auth.keys", "keys are required, and there are none here and no database to hold any, so that nobody could ask",
			"add - {name: me, sha256: …} with the output of "+makeDigest+", set store.sql, or write auth.required: false on loopback")
	}
}
