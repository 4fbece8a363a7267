package tenants

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

const alphabet = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

func drawKey(rt *rapid.T) string {
	secret := rapid.SliceOfN(rapid.Byte(), secretBytes, secretBytes).Draw(rt, "secret")
	key, err := NewKey(bytes.NewReader(secret),
		rapid.SampledFrom([]string{TenantPrefix, AdminPrefix, BootstrapPrefix}).Draw(rt, "prefix"))
	if err != nil {
		rt.Fatal(err)
	}
	return key
}

func TestKeyFormatIsFixed(t *testing.T) {
	for name, c := range map[string]struct {
		secret, prefix, want string
	}{
		"lowest":  {strings.Repeat("\x00", 20), TenantPrefix, "tw-000000000000000000000000000"},
		"one":     {strings.Repeat("\x00", 19) + "\x01", AdminPrefix, "tw-adm-000000000000000000000000001"},
		"highest": {strings.Repeat("\xff", 20), TenantPrefix, "tw-AwGeptL1TMEBFSqZfp4BXWGY80v"},
	} {
		key, err := NewKey(strings.NewReader(c.secret), c.prefix)
		if err != nil || !strings.HasPrefix(key, c.want+"_") || len(key) != len(c.want)+7 {
			t.Errorf("%s: %q, %v, want %s_ and 6 digits", name, key, err, c.want)
		}
	}
}

// 0xCBF43926 is the published check value of CRC-32.
func TestChecksumIsTheCRC32OfTheRest(t *testing.T) {
	if got := checksum("123456789"); string(got[:]) != base62Of(0xCBF43926) {
		t.Errorf("the checksum of 123456789 is %s", got)
	}
}

// base62Of returns n in six digits of the alphabet, by long division.
func base62Of(n uint64) string {
	var digits [6]byte
	for i := range digits {
		digits[len(digits)-1-i] = alphabet[n%62]
		n /= 62
	}
	return string(digits[:])
}

func TestEachKeyIsWellFormedAndFoundByScanners(t *testing.T) {
	scanner := regexp.MustCompile(Pattern)
	rapid.Check(t, func(rt *rapid.T) {
		key := drawKey(rt)
		if !WellFormed(key) {
			rt.Errorf("%s is not well formed", key)
		}
		for _, text := range []string{key, "key=" + key + "\n", `{"k":"` + key + `"}`, "Bearer " + key + "."} {
			if got := scanner.FindString(text); got != key {
				rt.Errorf("in %q a scanner finds %q", text, got)
			}
		}
	})
}

func TestTypingErrorInAKeyIsDetected(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		key := drawKey(rt)
		at := rapid.IntRange(0, len(key)-1).Draw(rt, "at")
		wrong := string(rapid.SampledFrom([]byte(alphabet+"-_ é")).Draw(rt, "character"))
		for what, slip := range map[string]string{
			"replaced": key[:at] + wrong + key[at+1:],
			"left out": key[:at] + key[at+1:],
			"added":    key[:at] + wrong + key[at:],
			"cut":      key[:at],
			"swapped":  key[:at] + swapped(key[at:]),
			"doubled":  key + key,
		} {
			if slip != key && WellFormed(slip) {
				rt.Errorf("%s at %d: %s passes for %s", what, at, slip, key)
			}
		}
	})
}

func swapped(s string) string {
	if len(s) < 2 {
		return s
	}
	return s[1:2] + s[:1] + s[2:]
}

func TestKeyOfOneKindIsNotValidAsAnother(t *testing.T) {
	admin, err := NewKey(rand.Reader, AdminPrefix)
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []string{strings.Replace(admin, AdminPrefix, TenantPrefix, 1),
		strings.Replace(admin, AdminPrefix, BootstrapPrefix, 1), strings.TrimPrefix(admin, "tw-")} {
		if WellFormed(other) {
			t.Errorf("%s passes", other)
		}
	}
}

func TestNewKeyNeedsRandomnessAndAKnownPrefix(t *testing.T) {
	if _, err := NewKey(strings.NewReader("short"), TenantPrefix); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("with too little randomness: %v", err)
	}
	if _, err := NewKey(iotest.ErrReader(io.ErrClosedPipe), TenantPrefix); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("without randomness: %v", err)
	}
	for _, prefix := range []string{"", "sk-", "tw", "tw-root-"} {
		if _, err := NewKey(rand.Reader, prefix); err == nil {
			t.Errorf("prefix %q was taken", prefix)
		}
	}
}

func FuzzWellFormed(f *testing.F) {
	good, err := NewKey(bytes.NewReader(make([]byte, secretBytes)), TenantPrefix)
	if err != nil {
		f.Fatal(err)
	}
	for _, seed := range []string{good, "", "tw-", "tw-adm-", "tw-_", good + "\x00", strings.ToUpper(good),
		"tw-" + strings.Repeat("é", 17)} {
		f.Add(seed)
	}
	scanner := regexp.MustCompile(`\A` + Pattern + `\z`)
	f.Fuzz(func(t *testing.T, key string) {
		if WellFormed(key) && !scanner.MatchString(key) {
			t.Errorf("%q is well formed and no scanner would find it", key)
		}
		if printed := fmt.Sprint(WellFormed(key)); strings.HasPrefix(key, TenantPrefix) && printed == "false" {
			if c, err := (&Directory{}).Authenticate(key, noon()); c != nil || err == nil {
				t.Errorf("%q got in", key)
			}
		}
	})
}
