package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
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
	if wrapped, ok := errors.AsType[*fs.PathError](err); ok {
		err = wrapped.Err // the message names the file already
	}
	d.report(path, fmt.Sprintf("cannot read %s: %v", d.shown(path, file), err),
		"relative paths start at the working directory of the process")
	return nil, false
}

// checkSecrecy warns of a file with a secret that every user can read.
func (d *decoder) checkSecrecy(path, file string) {
	if info, err := os.Stat(file); err == nil && info.Mode().Perm()&0o004 != 0 {
		d.warn(path, fmt.Sprintf("every user of this machine can read %s (mode %04o)", d.shown(path, file),
			info.Mode().Perm()), "chmod 640, or 600 for the gateway's user alone")
	}
}
