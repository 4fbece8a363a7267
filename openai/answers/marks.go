package answers

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Lengths of the texts in characters that are compared by their meaning. Shorter ones have too little of it, and longer
// ones differ in details that an embedding does not show.
const (
	leastNear = 16
	mostNear  = 2000
)

// closing has the characters that end a quotation, by the one that begins it.
var closing = map[rune]string{
	'"': `"`, '“': "”", '”': "”", '„': "“”", '«': "»", '»': "«", '\'': "'", '‘': "’", '’': "’", '‚': "‘’", '‹': "›",
	'›': "‹", '「': "」", '『': "』", '《': "》", '〈': "〉", '`': "`",
}

// mark is a part of a text that no similarity outweighs.
type mark struct {
	at   int // in the text
	kind byte
	text string
}

// Kinds of marks.
const (
	exactMark  = '='
	quotedMark = '"'
)

// Marks returns the parts of a text that must be equal before two texts are compared by their meaning, in order:
// quotations, words with digits or symbols, and number words. ok is false for a text that is too short or too long.
func Marks(text string) (marks string, ok bool) {
	if n := utf8.RuneCountInString(text); n < leastNear || n > mostNear {
		return "", false
	}
	all := append(exactWords(text), quotations(text)...)
	slices.SortStableFunc(all, func(a, b mark) int { return cmp.Compare(a.at, b.at) })
	var b []byte
	for _, m := range all {
		b = append(append(strconv.AppendInt(b, int64(len(m.text)), 10), m.kind), m.text...)
	}
	return string(b), true
}

// ending is the punctuation that may end a word without being a part of it. A "!" after a number may be a factorial.
const ending = ".,;:?"

// harmless is the punctuation that changes little in a word of letters.
const harmless = ending + "!¡¿…-‐‑–—'’‘\"“”„«»"

// exactWords returns the words with digits or symbols, such as -5, 1,5, 5%, 17+4, <, (x and C#, and the number words.
func exactWords(text string) (all []mark) {
	start := 0
	for at, r := range text + " " {
		if !separates(r) {
			continue
		}
		word := strings.TrimRight(text[start:at], ending)
		switch lower := strings.ToLower(word); {
		case isExact(word):
			all = append(all, mark{start, exactMark, word})
		case lower != "":
			for part := range strings.FieldsFuncSeq(lower, func(r rune) bool { return !unicode.IsLetter(r) }) {
				if numberWords[part] || numberWords[strings.TrimSuffix(part, "s")] || isNumeral(part) {
					all = append(all, mark{start, exactMark, part})
				}
			}
		}
		start = at + utf8.RuneLen(r)
	}
	return all
}

// separates reports whether a character ends a word: a space, or a letter or punctuation of a script without upper and
// lower case. Some of them have no spaces.
func separates(r rune) bool {
	return unicode.IsSpace(r) || unicode.Is(unicode.Lo, r) || strings.ContainsRune("。，；：？、！", r)
}

// isExact reports whether a word has a digit, a symbol, or a dash as its first or last character, or is a Roman
// numeral.
func isExact(word string) bool {
	if word == "" {
		return false
	}
	first, _ := utf8.DecodeRuneInString(word)
	last, _ := utf8.DecodeLastRuneInString(word)
	return unicode.Is(unicode.Pd, first) || unicode.Is(unicode.Pd, last) || isRoman(word) ||
		strings.ContainsFunc(word, func(r rune) bool {
			return !unicode.IsLetter(r) && !unicode.IsMark(r) && !strings.ContainsRune(harmless, r)
		})
}

// isRoman reports whether a word is a Roman numeral of several capitals. One letter is more often a pronoun or a name.
func isRoman(word string) bool { return len(word) > 1 && strings.Trim(word, "IVXLCDM") == "" }

// numeral is the form of Roman numerals in lower case. It excludes words such as did, mild and civic.
var numeral = regexp.MustCompile(`^m{0,4}(cm|cd|d?c{0,4})(xc|xl|l?x{0,4})(ix|iv|v?i{0,4})$`)

// isNumeral reports whether a word in lower case is a Roman numeral of several letters. The exceptions are frequent
// words of some languages, and rare as numbers: 1009, 501 and 1001.
func isNumeral(word string) bool {
	return len(word) > 1 && strings.Trim(word, "ivxlcdm") == "" && word != "mix" && word != "di" && word != "mi" &&
		numeral.MatchString(word)
}

// numberWords are English words for numbers and calculations, without the "s" of a plural.
var numberWords = func() map[string]bool {
	all := map[string]bool{}
	for word := range strings.FieldsSeq(`zero one two three four five six seven eight nine ten eleven twelve thirteen
		fourteen fifteen sixteen seventeen eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred
		thousand million billion trillion dozen half halve quarter first second third fourth fifth sixth seventh eighth ninth
		tenth eleventh twelfth thirteenth fourteenth fifteenth sixteenth seventeenth eighteenth nineteenth twentieth
		thirtieth fortieth fiftieth sixtieth seventieth eightieth ninetieth hundredth thousandth millionth billionth once
		twice thrice single double triple plus minus times divided multiplied squared cubed percent`) {
		all[word] = true
	}
	return all
}()

// single has the quotation marks that may be apostrophes.
const single = "'’‘‚"

// quotations returns the quotations of a text without their quotation marks. If one that is no apostrophe has no end,
// nobody knows which parts are quoted: the result is the text from the first quotation on.
func quotations(text string) (all []mark) {
	before, quotedTo := ' ', 0
	unclosed := "" // single marks that begin no quotation in the rest
	for at, r := range text {
		if at >= quotedTo && closing[r] != "" && !strings.ContainsRune(unclosed, r) && !isApostrophe(r, before) {
			inside, size := quotation(text[at:])
			if size == 0 && !strings.ContainsRune(single, r) {
				first := append(all, mark{at: at})[0].at
				return []mark{{first, quotedMark, text[first:]}}
			}
			if size == 0 {
				unclosed += string(r)
			} else {
				all = append(all, mark{at, quotedMark, inside})
				quotedTo = at + size
			}
		}
		before = r
	}
	return all
}

func isWord(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// isApostrophe reports whether a quotation mark after a character is an apostrophe.
func isApostrophe(r, before rune) bool { return (r == '\'' || r == '’') && isWord(before) }

// quotation returns what is inside the quotation that a text begins with, and its size with both quotation marks: 0
// without an end.
func quotation(text string) (inside string, size int) {
	if run := len(text) - len(strings.TrimLeft(text, "`")); run > 1 { // code, or ``TeX''
		return quotationTo(text, run, text[:run], "''")
	}
	open, begin := utf8.DecodeRuneInString(text)
	return quotationTo(text, begin, strings.Split(closing[open], "")...)
}

// quotationTo returns the quotation that begins after so many bytes of a text and ends with the first of some ends.
func quotationTo(text string, begin int, ends ...string) (inside string, size int) {
	for at, r := range text[begin:] {
		rest := text[begin+at:]
		i := slices.IndexFunc(ends, func(end string) bool { return strings.HasPrefix(rest, end) })
		if i < 0 {
			continue
		}
		after, _ := utf8.DecodeRuneInString(rest[len(ends[i]):])
		if (r == '\'' || r == '’') && isWord(after) { // an apostrophe inside
			continue
		}
		return text[begin : begin+at], begin + at + len(ends[i])
	}
	return "", 0
}
