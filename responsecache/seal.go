package responsecache

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
)

// Sealer encrypts the answers of one owner. The zero Sealer leaves them as they are.
type Sealer struct{ aead cipher.AEAD }

// errSealed means that a value was encrypted with another key, or changed.
var errSealed = errors.New("the answer was encrypted with another key")

// NewSealer returns the Sealer of an owner, whose key is derived from a secret. Without a secret it is the zero Sealer.
func NewSealer(secret, owner string) (Sealer, error) {
	if secret == "" {
		return Sealer{}, nil
	}
	key, err := hkdf.Key(sha256.New, []byte(secret), nil, "tierway answers of "+owner, 32)
	if err != nil {
		return Sealer{}, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return Sealer{}, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	return Sealer{aead}, err
}

// Seal encrypts a value that Open reads with the same name only.
func (s Sealer) Seal(value, name []byte) []byte {
	if s.aead == nil {
		return value
	}
	return s.aead.Seal(nil, nil, value, name)
}

// Open decrypts a value.
func (s Sealer) Open(value, name []byte) ([]byte, error) {
	if s.aead == nil {
		return value, nil
	}
	plain, err := s.aead.Open(nil, nil, value, name)
	if err != nil {
		return nil, errSealed
	}
	return plain, nil
}
