package openai

import (
	"unicode"
	"unicode/utf8"
)

// runeClass says what the split patterns of the encodings ask of a character.
// A character without a bit is a symbol, a control or unassigned.
type runeClass uint8

const (
	upperRune  runeClass = 1 << iota // Lu, Lt, and what has no case: Lm, Lo
	lowerRune                        // Ll, and what has no case: Lm, Lo
	markRune                         // M
	numberRune                       // N
	spaceRune                        // White_Space
	breakRune                        // CR and LF, which are spaceRune too

	letterRune = upperRune | lowerRune
)

// classedRunes is how many code points stand in the table: the two planes that
// hold all but rare ideographs.
const classedRunes = 0x20000

// splitter cuts text into the pieces within which tokens are merged. It does by
// hand what the published patterns of the encodings say; \w stands for a letter:
//
//	cl100k_base: (?i:'s|'t|'re|'ve|'m|'ll|'d)
//	             [^\r\n\w\p{N}]?\w+
//	             \p{N}{1,3}
//	              ?[^\s\w\p{N}]+[\r\n]*
//	             \s*[\r\n]+
//	             \s+(?!\S)
//	             \s+
//
// o200k_base has no first line, cuts its words as cased says, and takes slashes
// along with the line breaks of the fourth.
type splitter struct {
	classes []runeClass // of the first classedRunes
	cased   bool        // o200k_base
}

// runeClasses makes the table of a splitter.
func runeClasses() []runeClass {
	classes := make([]runeClass, classedRunes)
	for _, c := range []struct {
		table *unicode.RangeTable
		class runeClass
	}{
		{unicode.Lu, upperRune}, {unicode.Lt, upperRune}, {unicode.Ll, lowerRune},
		{unicode.Lm, letterRune}, {unicode.Lo, letterRune},
		{unicode.M, markRune}, {unicode.N, numberRune}, {unicode.White_Space, spaceRune},
	} {
		for _, r := range c.table.R16 {
			for at := uint32(r.Lo); at <= uint32(r.Hi); at += uint32(r.Stride) {
				classes[at] |= c.class
			}
		}
		for _, r := range c.table.R32 {
			for at := r.Lo; at <= r.Hi && at < classedRunes; at += r.Stride {
				classes[at] |= c.class
			}
		}
	}
	classes['\r'] |= breakRune
	classes['\n'] |= breakRune
	return classes
}

// at returns the class of the character at byte i and the bytes it takes; at
// the end of the text neither.
func (s *splitter) at(text []byte, i int) (runeClass, int) {
	if i >= len(text) {
		return 0, 0
	}
	if b := text[i]; b < utf8.RuneSelf {
		return s.classes[b], 1
	}
	r, size := utf8.DecodeRune(text[i:])
	if r < classedRunes {
		return s.classes[r], size
	}
	// Beyond the table there are ideographs, private use and variation selectors.
	switch {
	case unicode.IsLetter(r):
		return letterRune, size
	case unicode.IsMark(r):
		return markRune, size
	case unicode.IsNumber(r):
		return numberRune, size
	}
	return 0, size
}

// run returns where the characters that have one of the bits end, from byte i.
func (s *splitter) run(text []byte, i int, bits runeClass) int {
	for {
		class, size := s.at(text, i)
		if class&bits == 0 {
			return i
		}
		i += size
	}
}

// next returns how many bytes the first piece of text has; text is not empty.
func (s *splitter) next(text []byte) int {
	first, size := s.at(text, 0)
	if !s.cased {
		if n := contraction(text); n > 0 {
			return n
		}
	}
	if first&(numberRune|breakRune) == 0 {
		if end := s.word(text, first, size); end > 0 {
			return end
		}
	}
	if first&numberRune != 0 {
		return s.digits(text, size)
	}
	if end := s.symbols(text); end > 0 {
		return end
	}
	return s.spaces(text)
}

// word returns the end of a word at the front, with at most one character
// before it that is no letter; 0 when there is none.
func (s *splitter) word(text []byte, first runeClass, size int) int {
	from := size
	if first&letterRune != 0 {
		from = 0
	}
	if !s.cased {
		if end := s.run(text, from, letterRune); end > from {
			return end
		}
		return 0
	}
	end := s.casedWord(text, from)
	if end == 0 && first&markRune != 0 {
		// A mark that leads no word is one itself.
		end = size
	}
	// Capitals are a word alone where nothing better is found.
	if end == 0 {
		if end = s.run(text, from, upperRune|markRune); end == from {
			return 0
		}
	}
	return end + contraction(text[end:])
}

// casedWord returns where a word that begins at byte from ends when it is
// capitals, perhaps none, and then at least one letter that is no capital: 0
// when it is not. Letters without case, and marks, are either.
func (s *splitter) casedWord(text []byte, from int) int {
	last := 0 // the end of the last character that may also stand among the small
	i := from
	for {
		class, size := s.at(text, i)
		if class&(upperRune|markRune) == 0 {
			break
		}
		i += size
		if class&(lowerRune|markRune) != 0 {
			last = i
		}
	}
	if end := s.run(text, i, lowerRune|markRune); end > i {
		return end
	}
	return last
}

// digits returns the end of up to three numbers, the first of which has size
// bytes.
func (s *splitter) digits(text []byte, size int) int {
	end := size
	for range 2 {
		class, size := s.at(text, end)
		if class&numberRune == 0 {
			break
		}
		end += size
	}
	return end
}

// symbols returns the end of symbols at the front, with a blank before and the
// line breaks after them; 0 when there is none.
func (s *splitter) symbols(text []byte) int {
	from := 0
	if text[0] == ' ' {
		from = 1
	}
	end := from
	for end < len(text) {
		class, size := s.at(text, end)
		if class&(letterRune|numberRune|spaceRune) != 0 {
			break
		}
		end += size
	}
	if end == from {
		return 0
	}
	for end < len(text) && (text[end] == '\r' || text[end] == '\n' || s.cased && text[end] == '/') {
		end++
	}
	return end
}

// spaces returns the end of the white space at the front: after its last line
// break; without one before its last character, which belongs to the word that
// follows; all of it when nothing follows, or when it is one character.
func (s *splitter) spaces(text []byte) int {
	broken, before, end := 0, 0, 0
	for {
		class, size := s.at(text, end)
		if class&spaceRune == 0 {
			break
		}
		before = end
		end += size
		if class&breakRune != 0 {
			broken = end
		}
	}
	switch {
	case broken > 0:
		return broken
	case end < len(text) && before > 0:
		return before
	}
	return end
}

// contraction returns how many bytes of an English contraction ('s, 'LL) text
// begins with, 0 when with none.
func contraction(text []byte) int {
	if len(text) < 2 || text[0] != '\'' {
		return 0
	}
	switch text[1] | 0x20 { // small; what is no letter becomes none of these
	case 's', 't', 'm', 'd':
		return 2
	case 'r', 'v':
		if len(text) > 2 && text[2]|0x20 == 'e' {
			return 3
		}
	case 'l':
		if len(text) > 2 && text[2]|0x20 == 'l' {
			return 3
		}
	}
	return 0
}
