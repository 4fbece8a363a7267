package responsecache

import (
	"bytes"
	"testing"
)

// TestSealedAnswersAreReadByTheirTenantOnly: a value is read with the secret, tenant and name of its encryption.
func TestSealedAnswersAreReadByTheirTenantOnly(t *testing.T) {
	sealer := func(secret, tenant string) Sealer {
		s, err := NewSealer(secret, tenant)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	value, name := []byte("an answer"), []byte("k")
	sealed := sealer("secret", "a").Seal(value, name)
	if bytes.Contains(sealed, value) || bytes.Equal(sealed, sealer("secret", "a").Seal(value, name)) {
		t.Error("the value is not encrypted")
	}
	if got, err := sealer("secret", "a").Open(sealed, name); err != nil || !bytes.Equal(got, value) {
		t.Error(err)
	}
	for _, c := range []struct{ secret, tenant, name string }{
		{"secret", "b", "k"}, {"other", "a", "k"}, {"secret", "a", "l"},
	} {
		if _, err := sealer(c.secret, c.tenant).Open(sealed, []byte(c.name)); err == nil {
			t.Errorf("%+v reads it", c)
		}
	}
	if got := sealer("", "a").Seal(value, name); !bytes.Equal(got, value) {
		t.Error("without a secret, the value is changed")
	}
}
