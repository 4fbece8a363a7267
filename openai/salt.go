package openai

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// saltLabel keeps salts apart from every other hash of a tenant's name.
const saltLabel = "tierway cache_salt 1\n"

// CacheSalt returns the cache_salt that an engine gets in place of the client's
// own, of which empty is none: 64 hexadecimal digits that no other tenant's
// request has, whatever it sends. It holds only where every salt that reaches an
// engine comes from here, because it can be computed from the two names.
func CacheSalt(tenant, client string) string {
	b := make([]byte, 0, len(saltLabel)+8+len(tenant)+len(client))
	b = append(b, saltLabel...)
	// The length tells ("ab", "c") from ("a", "bc").
	b = binary.BigEndian.AppendUint64(b, uint64(len(tenant)))
	b = append(append(b, tenant...), client...)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
