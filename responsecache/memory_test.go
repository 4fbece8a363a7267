package responsecache

import (
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"tierway/openai/answers"
	"tierway/tenants"
)

func at(second int) time.Time { return time.Unix(int64(second), 0) }

// entry returns an answer of that many bytes.
func entry(bytes int) Entry {
	return Entry{Content: &answers.Content{Text: strings.Repeat("x", bytes)}, At: at(0)}
}

func key(tenant string, body byte) *Key {
	return &Key{Partition: Partition{Owner: Owner{Name: tenant}}, Body: [sha256.Size]byte{body}}
}

// TestAnswersExpireAndArePurged: an answer is found until its time, and until its tenant is purged. An answer whose
// request was read before a purge is not kept after it.
func TestAnswersExpireAndArePurged(t *testing.T) {
	var m Memory
	m.SetMax(1 << 20)
	k := key("a", 1)
	if _, ok := m.Get(k, at(0)); ok {
		t.Error("an empty memory has an answer")
	}
	m.Put(k, entry(10), time.Minute, 0)
	if _, ok := m.Get(k, at(59)); !ok {
		t.Error("the answer is lost")
	}
	if _, ok := m.Get(k, at(60)); ok || m.Stats() != (Stats{}) {
		t.Errorf("the answer is still there: %+v", m.Stats())
	}
	m.Put(k, entry(10), time.Minute, 0)
	m.Put(key("b", 1), entry(10), time.Minute, 0)
	if n := m.Purge("a"); n != 1 {
		t.Errorf("%d answers were purged", n)
	}
	if kept := m.Put(k, entry(10), time.Minute, 0); kept {
		t.Error("the answer of a request before the purge is kept")
	}
	_, ok := m.Get(k, at(1))
	generation := m.Generation("a")
	if ok || generation != 1 || !m.Put(k, entry(10), time.Minute, generation) {
		t.Error("the tenant cannot use the cache after the purge")
	}
	if _, ok := m.Get(key("b", 1), at(1)); !ok {
		t.Error("another tenant was purged too")
	}
}

// TestUnknownTenantsAreForgotten: the answers of tenants that no longer exist are removed, and no others.
func TestUnknownTenantsAreForgotten(t *testing.T) {
	var m Memory
	m.SetMax(1 << 20)
	for _, tenant := range []string{"a", "b", "c"} {
		for i := range 3 {
			m.Put(key(tenant, byte(i)), entry(1), time.Minute, 0)
		}
	}
	m.Forget(func(tenant string) bool { return tenant == "b" })
	if _, ok := m.Get(key("b", 2), at(1)); !ok || m.Stats().Entries != 3 {
		t.Errorf("%+v is left", m.Stats())
	}
}

// TestMemoryIsBounded: the memory stays within its bound, and a tenant that fills it does not push out the answers of
// the others.
func TestMemoryIsBounded(t *testing.T) {
	var m Memory
	const most = 100 * (1000 + itemOverhead)
	m.SetMax(most)
	for i := range 10 {
		m.Put(key("quiet", byte(i)), entry(1000), time.Minute, 0)
	}
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 10_000 {
		k := key("busy", 0)
		k.Body = sha256.Sum256([]byte(fmt.Sprint(i)))
		m.Put(k, entry(random.IntN(2000)), time.Minute, 0)
		if s := m.Stats(); s.Bytes > most {
			t.Fatalf("%d bytes are used", s.Bytes)
		}
	}
	for i := range 10 {
		if _, ok := m.Get(key("quiet", byte(i)), at(1)); !ok {
			t.Fatalf("answer %d of the other tenant is lost", i)
		}
	}
	if m.Put(key("quiet", 99), entry(most), time.Minute, 0) {
		t.Error("an answer larger than the memory is kept")
	}
	for m.SetMax(0); m.Stats().Bytes > 0; {
		t.Fatalf("%+v is left", m.Stats())
	}
}

// TestEqualHashesDoNotCrossPartitions: the hash of a body is no key without its partition. vLLM Router's fork has
// hashes of 64 bits, and compares nothing else.
func TestEqualHashesDoNotCrossPartitions(t *testing.T) {
	var m Memory
	m.SetMax(1 << 20)
	own := Partition{Owner: Owner{Name: "a", Since: 1}, Pool: "p", Model: "m", Path: "/v1/chat/completions", Extras: "x"}
	m.Put(&Key{Partition: own}, entry(1), time.Minute, 0)
	for _, other := range []Partition{
		{Owner{"b", 1}, "p", "m", "/v1/chat/completions", "x"}, {Owner{"a", 2}, "p", "m", "/v1/chat/completions", "x"},
		{Owner{"a", 1}, "q", "m", "/v1/chat/completions", "x"}, {Owner{"a", 1}, "p", "n", "/v1/chat/completions", "x"},
		{Owner{"a", 1}, "p", "m", "/v1/completions", "x"}, {Owner{"a", 1}, "p", "m", "/v1/chat/completions", ""},
		{Owner{"ap", 1}, "", "m", "/v1/chat/completions", "x"},
		{Owner{GroupName("a", nil), 1}, "p", "m", "/v1/chat/completions", "x"},
	} {
		if _, ok := m.Get(&Key{Partition: other}, at(0)); ok {
			t.Errorf("%+v gets the answer of %+v", other, own)
		}
	}
}

// TestGroupsHaveNoNamesOfTenants: no tenant owns the answers of a group, whatever their names.
func TestGroupsHaveNoNamesOfTenants(t *testing.T) {
	for _, name := range []string{"a", "anonymous", ""} {
		if tenants.Slug(GroupName(name, nil)) {
			t.Errorf("a tenant may have the name %s", GroupName(name, nil))
		}
	}
}
