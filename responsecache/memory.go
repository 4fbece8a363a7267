package responsecache

import (
	"container/list"
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"tierway/openai/answers"
)

// Owner is a tenant, or a group of tenants that share their answers.
type Owner struct {
	Name string // of the tenant, or by GroupName
	// Since distinguishes tenants that have one name in succession, as Since of tenants.Caller. It is 0 for a group.
	Since int64
}

// Groups is how the names of groups as owners begin. No tenant has such a name.
const Groups = "shared:"

// GroupName returns the name of a group as an owner. Another list of tenants is another owner.
func GroupName(group string, tenants []string) string {
	sum := sha256.Sum256([]byte(strings.Join(slices.Sorted(slices.Values(tenants)), "\n")))
	return Groups + group + ":" + hex.EncodeToString(sum[:])
}

// PurgedBy returns the name under which an owner is purged where its name is not known to a purge. It is Groups for
// every group, because a purged tenant may have been in it once.
func PurgedBy(owner string) string {
	if strings.HasPrefix(owner, Groups) {
		return Groups
	}
	return owner
}

// Partition identifies the requests that may get an answer. Requests of different partitions never share an answer.
type Partition struct {
	Owner
	Pool   string
	Model  string // as the worker received it
	Path   string // of the worker's endpoint
	Extras string // other parts of the request that change an answer: its query, and headers for the model's API
}

// Key identifies an answer. Body is the hash of the request's members.
type Key struct {
	Partition
	Body [sha256.Size]byte
}

// Entry is a kept answer.
type Entry struct {
	Content *answers.Content
	Prompt  int64     // tokens of the prompt
	Output  int64     // tokens of the answer
	At      time.Time // when it was kept
}

// Memory keeps answers in memory, within a number of bytes. When it is full, the answers that were not used for
// longest are removed: those of the owner itself if it has more than its equal share, else those of any owner. The
// zero Memory keeps nothing. It is safe for concurrent use.
type Memory struct {
	mu     sync.Mutex
	max    int64
	used   int64
	all    list.List // of *item, the last used first
	items  map[Key]*item
	groups map[Key]*group      // items with vectors
	owners map[string]*holding // by name
	// purged counts purges by the name of the owner. It grows only with requests of admins, so nothing removes entries.
	purged  map[string]uint64
	evicted int64
}

// item is an entry in the lists of its Memory.
type item struct {
	key     Key
	entry   Entry
	expires time.Time
	size    int64
	vector  []segment // of length 1, rotated; nil without a group
	dims    int       // dimensions of the vector before its rotation
	group   Key       // of the item's group, if it has a vector
	gone    atomic.Bool
	inAll   *list.Element
	inOwn   *list.Element
}

// holding is the answers of one owner, and their memory.
type holding struct {
	used int64
	own  list.List // of *item, the last used first
}

// itemOverhead is the memory of an item without its texts: the structs, list elements and the entry of the map.
const itemOverhead = 600

// rowOverhead is the memory of a row without its vector: the struct, spare capacity, and rows that are gone.
const rowOverhead = 900

// sizeOf returns the memory of a vector, with a fifth for those of rows that are gone.
func sizeOf(vector []segment) int64 {
	return int64(len(vector)) * int64(unsafe.Sizeof(segment{})) * 6 / 5
}

// SetMax sets the bound in bytes.
func (m *Memory) SetMax(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.max = bytes
	for m.used > m.max {
		m.evict(m.all.Back().Value.(*item))
	}
}

// Generation returns the number of purges of an owner, and of Groups if it is one. An answer is kept only under the
// generation in which its request was read.
func (m *Memory) Generation(owner string) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.generation(owner)
}

func (m *Memory) generation(owner string) uint64 {
	n := m.purged[owner]
	if by := PurgedBy(owner); by != owner {
		n += m.purged[by]
	}
	return n
}

// Get returns the answer of a key.
func (m *Memory) Get(k *Key, now time.Time) (e Entry, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	it := m.items[*k]
	if it == nil {
		return e, false
	}
	if !now.Before(it.expires) {
		m.remove(it)
		return e, false
	}
	m.all.MoveToFront(it.inAll)
	m.owners[k.Name].own.MoveToFront(it.inOwn)
	return it.entry, true
}

// Peek returns the answer of a key without using it.
func (m *Memory) Peek(k *Key, now time.Time) (e Entry, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	it := m.items[*k]
	if it == nil || !now.Before(it.expires) {
		return e, false
	}
	return it.entry, true
}

// Put keeps an answer for a time, unless its owner was purged since generation. It reports whether it is kept.
func (m *Memory) Put(k *Key, e Entry, ttl time.Duration, generation uint64) bool {
	return m.put(&item{key: *k, entry: e, expires: e.At.Add(ttl)}, generation)
}

// put keeps an item without a size.
func (m *Memory) put(it *item, generation uint64) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := &it.key
	size := int64(it.entry.Content.Len()+len(k.Extras)) + sizeOf(it.vector) + itemOverhead
	if it.vector != nil {
		size += rowOverhead
	}
	if m.generation(k.Name) != generation || size > m.max {
		return false
	}
	if was := m.items[*k]; was != nil {
		m.remove(was)
	}
	if m.items == nil {
		m.items, m.owners = map[Key]*item{}, map[string]*holding{}
	}
	it.size = size
	own := m.owners[k.Name]
	if own == nil {
		own = &holding{}
		m.owners[k.Name] = own
	}
	it.inAll, it.inOwn = m.all.PushFront(it), own.own.PushFront(it)
	m.items[*k] = it
	own.used, m.used = own.used+size, m.used+size
	if it.vector != nil {
		m.join(it)
	}
	for m.used > m.max {
		last := m.all.Back()
		if own.used*int64(len(m.owners)) > m.max {
			last = own.own.Back()
		}
		m.evict(last.Value.(*item))
	}
	return m.items[*k] == it
}

// Purge removes the answers of an owner, also those that are still being generated. It returns their number. A purge
// of Groups is about those that are being generated for any group.
func (m *Memory) Purge(owner string) (removed int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.purged == nil {
		m.purged = map[string]uint64{}
	}
	m.purged[owner]++
	for own := m.owners[owner]; own != nil && own.own.Len() > 0; removed++ {
		m.remove(own.own.Back().Value.(*item))
	}
	return removed
}

// Forget removes the answers of all owners for which known returns false.
func (m *Memory) Forget(known func(owner string) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for owner, own := range m.owners {
		if known(owner) {
			continue
		}
		for own.own.Len() > 0 {
			m.remove(own.own.Back().Value.(*item))
		}
	}
}

// Stats are the contents of a Memory.
type Stats struct {
	Entries   int
	Bytes     int64
	Evictions int64 // answers that were removed before their time, for lack of memory
}

// Stats returns the contents.
func (m *Memory) Stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Stats{Entries: len(m.items), Bytes: m.used, Evictions: m.evicted}
}

// evict removes an answer for lack of memory.
func (m *Memory) evict(it *item) {
	m.evicted++
	m.remove(it)
}

func (m *Memory) remove(it *item) {
	own := m.owners[it.key.Name]
	m.all.Remove(it.inAll)
	own.own.Remove(it.inOwn)
	delete(m.items, it.key)
	if it.vector != nil {
		m.leave(it)
	}
	m.used -= it.size
	if own.used -= it.size; own.own.Len() == 0 {
		delete(m.owners, it.key.Name)
	}
}
