package tenants

import (
	"crypto/sha256"
	"fmt"
	"hash/crc32"
	"io"
	"math/big"
	"strings"
)

// Prefixes of generated keys. The body of a key has no hyphen, so
// that a key of one kind is never valid as another kind.
const (
	TenantPrefix    = "tw-"
	AdminPrefix     = "tw-adm-"
	BootstrapPrefix = "tw-boot-"
)

// Pattern is a regular expression (RE2) for secret scanners. A match is a generated key if
// WellFormed agrees.
const Pattern = `\btw-(?:adm-|boot-)?[0-9A-Za-z]{27}_[0-9A-Za-z]{6}\b`

const (
	secretBytes = 20 // 160 bits cannot be guessed, so that a fast hash is enough to store a key
	bodyLen     = 27 // base62 digits of 160 bits
	sumLen      = 6  // base62 digits of 32 bits
)

// NewKey returns a new key: the prefix, the secret, `_` and a checksum. random must be
// cryptographically strong; prefix must be one of the three above.
func NewKey(random io.Reader, prefix string) (string, error) {
	if prefix != TenantPrefix && prefix != AdminPrefix && prefix != BootstrapPrefix {
		return "", fmt.Errorf("making a key: unknown prefix %q: use %q, %q or %q",
			prefix, TenantPrefix, AdminPrefix, BootstrapPrefix)
	}
	var secret [secretBytes]byte
	if _, err := io.ReadFull(random, secret[:]); err != nil {
		return "", fmt.Errorf("making a key: reading randomness: %w", err)
	}
	head := prefix + base62(new(big.Int).SetBytes(secret[:]), bodyLen)
	sum := checksum(head)
	return head + "_" + string(sum[:]), nil
}

// checksum returns the CRC-32 (IEEE) of prefix and body. It covers the prefix, so that a typing
// error does not turn one kind of key into another.
func checksum(head string) (sum [sumLen]byte) {
	const digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" // the digits of big.Int.Text
	crc := ^uint32(0)
	for i := range len(head) { // crc32.ChecksumIEEE would allocate
		crc = crc32.IEEETable[byte(crc)^head[i]] ^ crc>>8
	}
	n := ^crc
	for i := sumLen - 1; i >= 0; i-- {
		sum[i], n = digits[n%62], n/62
	}
	return sum
}

// base62 returns n in the digits 0-9, a-z, A-Z, padded with zeros to width.
func base62(n *big.Int, width int) string {
	digits := n.Text(62)
	return strings.Repeat("0", width-len(digits)) + digits
}

// WellFormed reports whether key has the form and the checksum of a generated key. It detects
// typing errors without a lookup. It says nothing about whether the key is in use.
func WellFormed(key string) bool {
	head, end, _ := strings.Cut(key, "_")
	for _, prefix := range [...]string{AdminPrefix, BootstrapPrefix, TenantPrefix} {
		if body, ours := strings.CutPrefix(head, prefix); ours {
			if len(body) != bodyLen || strings.ContainsFunc(body, notBase62) {
				return false
			}
			sum := checksum(head)
			return end == string(sum[:])
		}
	}
	return false
}

func notBase62(r rune) bool {
	return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
}

// Digest returns the SHA-256 of a key, the form in which keys are stored. A fast hash suits 160
// random bits; it would not suit a password.
func Digest(key string) [sha256.Size]byte { return sha256.Sum256([]byte(key)) }
