package imports

import (
	"bytes"
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

// word is a word of a shell command. Its text is in the syntax of config.yaml: ${NAME} is a variable.
type word struct {
	text string
	line int
}

type command []word

// shell splits a script into commands, as far as a command line of a router needs it.
type shell struct {
	src      []byte
	at, line int
	commands []command
	word     bytes.Buffer
	begun    int // line of the current word; 0: none
}

func readCommands(src []byte) ([]command, error) {
	s := shell{src: src, line: 1, commands: []command{nil}}
	for s.at < len(src) {
		if err := s.step(); err != nil {
			return nil, err
		}
	}
	s.endWord()
	return s.commands, nil
}

func (s *shell) errorf(format string, values ...any) error {
	return fmt.Errorf("line %d: %s", s.line, fmt.Sprintf(format, values...))
}

// step reads one character, or a quoted string, a variable or a comment.
func (s *shell) step() error {
	switch c := s.next(); c {
	case ' ', '\t', '\r':
		s.endWord()
	case '\n', ';', '&', '|':
		s.endWord()
		s.commands = append(s.commands, nil)
	case '<', '>':
		s.word.Reset() // the number of a descriptor
		s.begun = 0
		s.commands = append(s.commands, nil)
	case '#':
		if s.begun > 0 {
			s.write(c)
			return nil
		}
		for s.at < len(s.src) && s.src[s.at] != '\n' {
			s.at++
		}
	case '\\':
		if s.rest("\r\n") || s.rest("\n") {
			s.line++
		} else if s.at < len(s.src) {
			s.literal(s.next())
		}
	case '\'', '"':
		return s.quoted(c)
	case '$', '`':
		return s.expansion(c)
	default:
		s.write(c)
	}
	return nil
}

func (s *shell) next() byte {
	c := s.src[s.at]
	s.at++
	if c == '\n' {
		s.line++
	}
	return c
}

func (s *shell) rest(text string) bool {
	if !bytes.HasPrefix(s.src[s.at:], []byte(text)) {
		return false
	}
	s.at += len(text)
	return true
}

func (s *shell) write(c ...byte) {
	if s.begun == 0 {
		s.begun = s.line
	}
	s.word.Write(c)
}

// literal writes a character that starts no variable.
func (s *shell) literal(c byte) {
	if c == '$' && s.at < len(s.src) && s.src[s.at] == '{' {
		s.write('$')
	}
	s.write(c)
}

func (s *shell) endWord() {
	if s.begun > 0 {
		last := &s.commands[len(s.commands)-1]
		*last = append(*last, word{s.word.String(), s.begun})
	}
	s.word.Reset()
	s.begun = 0
}

// quoted reads a string up to its closing quote.
func (s *shell) quoted(quote byte) error {
	s.write() // an empty string is a word
	begun := s.line
	for s.at < len(s.src) {
		switch c := s.next(); {
		case c == quote:
			return nil
		case quote == '\'':
			s.literal(c)
		case c == '\\' && s.at < len(s.src) && strings.IndexByte("\\\"$`\n", s.src[s.at]) >= 0:
			if c = s.next(); c != '\n' {
				s.literal(c)
			}
		case c == '$' || c == '`':
			if err := s.expansion(c); err != nil {
				return err
			}
		default:
			s.write(c)
		}
	}
	return fmt.Errorf("line %d: the quote %c is not closed", begun, quote)
}

var shellVariable = regexp.MustCompile(`^(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*(?::-[^{}]*)?)\})`)

// expansion reads what follows $, or rejects a command in backquotes.
func (s *shell) expansion(c byte) error {
	name := shellVariable.FindSubmatch(s.src[s.at:])
	switch {
	case c == '`' || s.rest("("):
		return s.errorf("a command inside of the command line; write its output instead")
	case name != nil:
		s.at += len(name[0])
		s.write([]byte("${" + string(name[1]) + string(name[2]) + "}")...)
	case s.at < len(s.src) && s.src[s.at] == '{':
		return s.errorf("only ${NAME} and ${NAME:-default} are supported; write the value instead")
	default:
		s.write(c)
	}
	return nil
}

// flags returns the flags of the first command that has any, and the program before them. The values of a
// repeated flag are one list.
func flags(commands []command) (program string, all []setting) {
	place := map[string]int{} // in all, by the flag's name
	for _, words := range commands {
		program = ""
		current := -1
		for _, w := range words {
			isFlag := strings.HasPrefix(w.text, "--") && w.text != "--"
			name, value, given := strings.Cut(w.text, "=")
			switch at, repeated := place[name]; {
			case isFlag && repeated:
				current = at
			case isFlag:
				current = len(all)
				place[name] = current
				all = append(all, setting{key: name, line: w.line, node: scalar("true")})
			case current < 0:
				program += w.text + " "
			default:
				all[current].add(w.text, w.line)
			}
			if isFlag && given {
				all[current].add(value, w.line)
			}
		}
		if len(all) > 0 {
			break
		}
	}
	return strings.TrimSpace(program), all
}

// add adds a value to a flag.
func (s *setting) add(text string, line int) {
	value := &yaml.Node{Kind: yaml.ScalarNode, Value: text, Line: line}
	switch {
	case s.node.Kind == yaml.SequenceNode:
		s.node.Content = append(s.node.Content, value)
	case s.node.Line == 0: // without a value until now
		s.node = value
	default:
		s.node = &yaml.Node{Kind: yaml.SequenceNode, Content: []*yaml.Node{s.node, value}}
	}
}
