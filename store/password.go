package store

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
)

// maxPassword is the longest password of a file in bytes. A longer file is the wrong one.
const maxPassword = 4096

// CheckPasswordFile returns why a password cannot be read from a file now.
func CheckPasswordFile(name string) error {
	_, err := readPassword(name)
	return err
}

// readPassword returns the password in a file, without the end of its line. It is called for each connection, so that
// a new password needs no restart.
func readPassword(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", fmt.Errorf("reading the password file: %w", err)
	}
	defer f.Close() // it was only read
	text, err := io.ReadAll(io.LimitReader(f, maxPassword+1))
	switch text = bytes.TrimRight(text, "\r\n"); {
	case err != nil:
	case len(text) == 0:
		err = errors.New("it is empty: write the password into it")
	case len(text) > maxPassword:
		err = fmt.Errorf("it is longer than %d bytes: name a file that contains only the password", maxPassword)
	case bytes.ContainsAny(text, "\r\n\x00"):
		err = errors.New("it has several lines: name a file that contains only the password")
	}
	if err != nil {
		return "", fmt.Errorf("reading the password file %s: %w", name, err)
	}
	return string(text), nil
}
