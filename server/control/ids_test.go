package control

import (
	"strings"
	"testing"
)

func TestIDsAreUUIDs(t *testing.T) {
	for _, v := range [][2]uint64{{0, 0}, {^uint64(0), ^uint64(0)}, {0x0123456789abcdef, 0xfedcba9876543210}} {
		id := newUUID(v[0], v[1])
		if !IsUUID(id) || id[14] != '4' || !strings.ContainsRune("89ab", rune(id[19])) {
			t.Errorf("%x: %s", v, id)
		}
	}
	if got := newUUID(0x0123456789abcdef, 0xfedcba9876543210); got != "01234567-89ab-4def-bedc-ba9876543210" {
		t.Errorf("%s", got)
	}
	for _, id := range []string{"", "golden", strings.Repeat("a", 36), "01234567-89ab-4def-bedc-ba987654321g"} {
		if IsUUID(id) {
			t.Errorf("%q is a UUID", id)
		}
	}
}

func TestUnsafeRequestIDIsRejected(t *testing.T) {
	for id, sane := range map[string]bool{"a-B_9.c": true, "": false, strings.Repeat("x", 128): true,
		strings.Repeat("x", 129): false, "a b": false, "a\nb": false, "ä": false} {
		if IsRequestID(id) != sane {
			t.Errorf("%q: %v", id, !sane)
		}
	}
}
