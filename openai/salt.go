package openai

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
)

// saltLabel separates salts from all other hashes of tenant names.
const saltLabel = "tierway cache_salt 1\n"

// CacheSalt returns the cache_salt that an engine receives instead of the client's own, which
// may be empty: 64 hexadecimal digits that no other tenant's request can have. This holds only
// if every salt that reaches the engine comes from this function, because the result can be
// computed from both names.
func CacheSalt(tenant, client string) string {
	b := make([]byte, 0, len(saltLabel)+8+len(tenant)+len(client))
	b = append(b, saltLabel...)
	// The length separates ("ab", "c") from ("a", "bc").
	b = binary.BigEndian.AppendUint64(b, uint64(len(tenant)))
	b = append(append(b, tenant...), client...)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
