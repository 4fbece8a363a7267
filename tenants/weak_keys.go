package tenants

import "crypto/sha256"

// weakDigests has the digests of keys from documentation, examples and lists of common
// passwords.
var weakDigests = digestsOf( //nolint:gochecknoglobals // a table
	"0", "1", "123", "1234", "12345", "123456", "12345678", "123456789", "1234567890", "abc123", "admin", "anything",
	"api-key",
	"api_key", "apikey", "changeit", "changeme", "change-me", "change_me", "default", "dummy", "dummy-key", "empty",
	"EMPTY", "example",
	"fake", "fake-key", "foo", "foobar", "key-1234", "letmein", "lm-studio", "local", "localhost", "master-key", "no-key",
	"no-key-required", "none", "None", "not-needed", "null", "ollama", "openai", "pass", "password", "placeholder",
	"qwerty", "root",
	"sk-1", "sk-123", "sk-1234", "sk-12345", "sk-123456", "sk-12345678", "sk-1234567890", "sk-changeme", "sk-dummy",
	"sk-fake", "sk-key",
	"sk-local", "sk-no-key-required", "sk-none", "sk-not-needed", "sk-placeholder", "sk-proxy", "sk-test", "sk-xxx",
	"sk-xxxx",
	"tierway", "token-abc123", "undefined", "vllm", "xxx", "your-api-key", "your-key", "your_api_key", "YOUR_API_KEY",
	"YOUR_KEY",
)

func digestsOf(keys ...string) map[[sha256.Size]byte]bool {
	digests := map[[sha256.Size]byte]bool{}
	for _, key := range keys {
		digests[Digest(key)] = true
	}
	return digests
}
