package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"

	"tierway/tenants"
)

// varied is a request that differs each time, if it has something to vary.
type varied struct {
	request []byte
	// letters are the digits of a number, from a to j: a semantic cache never compares texts with different numbers.
	letters  []byte
	key      []byte   // in request
	keys     []string // all of the length of key
	session  []byte   // digits in request
	sessions int
	next     uint64 // number of the next request
	step     uint64
	left     int // requests to send; 0: no limit
}

// newVaried returns a copy of a request. body is the length of its body in bytes, and vary the index of letters to vary
// in the body; 0: none.
func newVaried(request []byte, body, vary int, keys []string, sessions int) *varied {
	v := &varied{request: bytes.Clone(request), keys: keys, sessions: sessions}
	if vary > 0 {
		v.letters = v.request[len(request)-body+vary:][:varyLetters]
	}
	if len(keys) > 0 {
		v.key = v.request[bytes.Index(request, []byte(keys[0])):][:len(keys[0])]
	}
	if sessions > 0 {
		v.session = v.request[bytes.Index(request, []byte(sessionHeader))+len(sessionHeader):][:sessionDigits]
	}
	return v
}

// stride is the distance between the keys and sessions of consecutive requests. It is prime, so that all have a turn.
const stride = 7919

// bytes returns the next request.
func (v *varied) bytes() []byte {
	if len(v.letters) > 0 {
		for i, c := range fmt.Appendf(nil, "%0*d", varyLetters, v.next%1e16) {
			v.letters[i] = c - '0' + 'a'
		}
	}
	turn := v.next % (1 << 32) * stride
	if len(v.keys) > 0 {
		copy(v.key, v.keys[turn%uint64(len(v.keys))])
	}
	if v.sessions > 0 {
		copy(v.session, fmt.Appendf(nil, "%0*d", sessionDigits, turn%uint64(v.sessions)))
	}
	v.next += v.step
	return v.request
}

const (
	sessionHeader = "X-Session-ID: session-"
	sessionDigits = 8
)

// sessionHeaders returns the header of the first of n sessions; none without sessions.
func sessionHeaders(n int) []string {
	if n == 0 {
		return nil
	}
	return []string{sessionHeader + fmt.Sprintf("%0*d", sessionDigits, 0)}
}

// keysOf returns n tenants' keys, the same ones in each process.
func keysOf(n int) (keys []string, err error) {
	for i := range n {
		var seed [32]byte
		copy(seed[:], strconv.Itoa(i))
		key, err := tenants.NewKey(rand.NewChaCha8(seed), tenants.TenantPrefix)
		if err != nil {
			return nil, fmt.Errorf("making key %d: %w", i, err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}
