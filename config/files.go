package config

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"tierway/workers"
)

// fileText returns the content of a file that the key at path names. It reports a file that cannot be read.
func (d *decoder) fileText(path, file string) (text []byte, ok bool) {
	text, err := readFile(file)
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("longer than %v", Size(maxFile))
	}
	if err == nil {
		return text, true
	}
	d.report(path, fmt.Sprintf("cannot read %s: %v", d.shown(path, file), withoutPath(err)),
		"relative paths start at the working directory of the process")
	return nil, false
}

// withoutPath returns the cause of a file's error, for messages that name the file themselves.
func withoutPath(err error) error {
	if wrapped, ok := errors.AsType[*fs.PathError](err); ok {
		return wrapped.Err
	}
	return err
}

// checkKeyFile checks the file of the key of a worker or hook. variable is its api_key_env.
func (d *decoder) checkKeyFile(path, file, variable string) {
	at := path + ".api_key_file"
	switch {
	case file == "" || d.draft: // a draft may not read files
		return
	case variable != "":
		d.report(at, "has no effect beside api_key_env", "keep one of the two")
		return
	}
	key, err := workers.ReadKeyFile(file)
	if err != nil {
		d.report(at, fmt.Sprintf("cannot read %s: %v", d.shown(at, file), withoutPath(err)),
			"write the key alone into the file; relative paths start at the working directory of the process")
		return
	}
	d.checkLength(at, "the key in "+d.shown(at, file), key)
	d.checkSecrecy(at, file)
}

// checkCertificates checks the certificates of connections to workers. secure reports whether some worker has https.
func (d *decoder) checkCertificates(path string, t *workers.TLS, secure bool) {
	if t == nil || *t == (workers.TLS{}) {
		return
	}
	if !secure {
		d.warn(path, "has no effect: no worker has a URL with https",
			"change the worker's url to https://…, or remove the section")
	}
	if (t.Cert == "") != (t.Key == "") {
		d.report(path, "has only one of cert and key", "set both to PEM files of the same pair")
		return
	}
	if d.draft { // a draft may not read files
		return
	}
	if t.CA != "" {
		if text, ok := d.fileText(path+".ca", t.CA); ok && !x509.NewCertPool().AppendCertsFromPEM(text) {
			d.report(path+".ca", d.shown(path+".ca", t.CA)+" has no certificate in PEM form",
				"name a PEM file with the certificates of the authorities")
		}
	}
	if t.Cert != "" {
		d.checkTLS(path, TLS{Cert: t.Cert, Key: t.Key})
	}
}

// checkSecrecy warns of a file with a secret that every user can read.
func (d *decoder) checkSecrecy(path, file string) {
	if info, err := os.Stat(file); err == nil && info.Mode().Perm()&0o004 != 0 {
		d.warn(path, fmt.Sprintf("every user of this machine can read %s (mode %04o)", d.shown(path, file),
			info.Mode().Perm()), "chmod 640, or 600 for the gateway's user alone")
	}
}
