package tierscore

// LengthLevel returns the length of the user text as a number of steps, of which each is a factor of √2, from the
// columns of [Features.AppendColumns]: 1 + 2·log2(bytes), rounded down, at most 32.
func LengthLevel(columns []uint32) (level int) {
	for _, c := range columns {
		if c >= WordColumns && c < uint32(WordColumns+runs[0].levels) {
			level++
		}
	}
	return level
}

// Key returns the identity of the extractor's key with which the features of the training were taken.
func (m *Model) Key() uint32 { return m.key }
