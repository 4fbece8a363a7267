package control

import (
	"testing"
	"time"
)

func TestUseOfAKeyIsKnownUntilTheDatabaseHasIt(t *testing.T) {
	var used lastUsed
	noon := time.Unix(1_700_000_000, 0)
	used.RecordUse("k1", noon)
	used.RecordUse("k2", noon)
	written := used.all()
	if len(written) != 2 || !written["k1"].Equal(noon) || !used.At("k1").Equal(noon) {
		t.Errorf("the first write has %v, and the use is %v", written, used.At("k1"))
	}
	used.RecordUse("k2", noon.Add(time.Second)) // during the write
	used.forget(written)
	if left := used.all(); len(left) != 1 || !used.At("k1").IsZero() || !used.At("k2").Equal(noon.Add(time.Second)) {
		t.Errorf("after the write the memory has %v", left)
	}
}
