package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"tierway/decisions"
)

// maxDecision limits a line in bytes. A record with 128 candidates and ten attempts has about
// 400 KB.
const maxDecision = 4 << 20

// readCount counts the lines of decision files.
type readCount struct {
	decisions int
	malformed int  // lines that are not decision records, for example after a crash
	torn      bool // the last line is incomplete
}

func (n readCount) report(c *cobra.Command) {
	switch {
	case n.malformed == 1:
		printMessage(c, "skipped 1 line that is not a decision record")
	case n.malformed > 1:
		printMessage(c, "skipped %d lines that are not decision records", n.malformed)
	}
	if n.torn {
		printMessage(c, "skipped the last line because it is incomplete")
	}
}

// readDecisionFiles calls add for each record of the files; - is standard input.
func readDecisionFiles(c *cobra.Command, paths []string, add func(*decisions.Decision)) (readCount, error) {
	var all readCount
	for _, path := range paths {
		if all.torn { // a file before another one is no longer written
			all.malformed, all.torn = all.malformed+1, false
		}
		n, err := readDecisionFile(c, path, add)
		all.decisions += n.decisions
		all.malformed += n.malformed
		all.torn = n.torn
		if err != nil {
			return all, err
		}
	}
	if all.decisions == 0 {
		return all, fmt.Errorf("--decisions %s: no decision records (%d other lines): %s", strings.Join(paths, ", "),
			all.malformed, decisionSources)
	}
	return all, nil
}

// decisionSources names the sources of whole decision records, in messages.
const decisionSources = "pass files that decisions.file names, or the output of GET /admin/decisions with " +
	"Accept: application/x-ndjson"

func readDecisionFile(c *cobra.Command, path string, add func(*decisions.Decision)) (readCount, error) {
	in, name, err := openInput(c, path)
	var n readCount
	if err == nil {
		defer in.Close()
		n, err = readDecisions(in, add)
	}
	if err != nil {
		return n, fmt.Errorf("--decisions %s: %w", name, withoutPath(err))
	}
	return n, nil
}

// errNewer means that a newer gateway wrote the records: their fields may have another meaning.
var errNewer = errors.New("the decision records have a newer version than this release supports")

// readDecisions calls add for each decision record of a text with one per line. It counts and
// skips other lines, and stops at a record of a newer version.
func readDecisions(r io.Reader, add func(*decisions.Decision)) (n readCount, err error) {
	in := bufio.NewReaderSize(r, 64<<10)
	for at := 1; ; at++ {
		line, whole, err := readLine(in)
		if err != nil && !errors.Is(err, io.EOF) {
			return n, err
		}
		ended := err != nil
		if len(line) > 0 || !ended {
			d, version := decisionOf(line)
			switch {
			case version > decisions.SchemaVersion:
				return n, fmt.Errorf("line %d: %w: schema_version is %d, the latest supported is %d", at, errNewer, version,
					decisions.SchemaVersion)
			case d != nil && whole:
				n.decisions++
				add(d)
			case ended:
				n.torn = true
			default:
				n.malformed++
			}
		}
		if ended {
			return n, nil
		}
	}
}

// readLine reads a line without its line break. Of an overlong line it returns a part, and
// whole is false.
func readLine(in *bufio.Reader) (line []byte, whole bool, err error) {
	whole = true
	for {
		part, err := in.ReadSlice('\n')
		if len(line)+len(part) > maxDecision {
			whole = false
		} else {
			line = append(line, part...)
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if n := len(line); n > 0 && line[n-1] == '\n' {
			line = line[:n-1]
		}
		return line, whole, err
	}
}

// decisionOf decodes one line; nil if it is not a decision record. It returns the version even
// of records that it cannot decode otherwise.
func decisionOf(line []byte) (d *decisions.Decision, version int) {
	d = &decisions.Decision{}
	if err := json.Unmarshal(line, d); err == nil {
		if d.SchemaVersion < 1 {
			return nil, 0
		}
		return d, d.SchemaVersion
	}
	var head struct {
		Version int `json:"schema_version"`
	}
	if json.Unmarshal(line, &head) != nil {
		return nil, 0
	}
	return nil, head.Version
}
