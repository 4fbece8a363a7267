package control

import (
	"testing"
	"time"
)

func TestUseOfAKeyIsKnownUntilTheDirectoryHasIt(t *testing.T) {
	var used lastUsed
	noon := time.Unix(1_700_000_000, 0)
	used.RecordUse("k1", noon)
	if got := used.unwritten(noon); len(got) != 1 || !got["k1"].Equal(noon) {
		t.Errorf("the first write has %v", got)
	}
	if got := used.unwritten(noon.Add(time.Second)); len(got) != 0 || !used.At("k1").Equal(noon) {
		t.Errorf("the second write has %v, and the use is %v", got, used.At("k1"))
	}
	used.RecordUse("k1", noon.Add(time.Minute))
	if got := used.unwritten(noon.Add(time.Minute)); len(got) != 1 {
		t.Errorf("after another use the write has %v", got)
	}
	used.unwritten(noon.Add(time.Hour))
	if !used.At("k1").IsZero() || len(used.uses) != 0 {
		t.Errorf("after an hour the memory has %v", used.uses)
	}
}
