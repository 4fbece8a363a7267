package admin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"tierway/config"
	"tierway/server/control"
)

const (
	// stableAfter is the age from which on a modification time identifies the content of the file. A
	// younger file may be written again within the resolution of the file system's clock.
	stableAfter = 2 * time.Second
	// unreadableRetry is the interval between two reads of a file that cannot be read. Its permissions
	// may change without its modification time.
	unreadableRetry = 10 * time.Second
)

// fileCheck compares the configuration file with the configuration in force. It reads the file only
// after its modification time, its size or the configuration in force has changed. It needs external
// locking; the zero fileCheck has read nothing.
type fileCheck struct {
	seen  fileStamp
	items []AttentionItem
	until time.Time // the file is read again then; zero: only after another stamp
}

// fileStamp identifies the content of the file and the configuration that it was compared with.
type fileStamp struct {
	modified   time.Time
	size       int64
	hash       string
	generation int64
}

// attention returns what is wrong with the file. read reads and checks it.
func (c *fileCheck) attention(path string, snap *control.Snapshot, now time.Time,
	read func() (*config.File, error)) []AttentionItem {
	if path == "" {
		return nil
	}
	info, err := os.Stat(path)
	if err != nil {
		*c = fileCheck{}
		return []AttentionItem{fileProblem("The configuration file cannot be read: " + causeOf(err) + ".")}
	}
	stamp := fileStamp{info.ModTime(), info.Size(), snap.Hash, snap.Generation}
	if stamp == c.seen && (c.until.IsZero() || now.Before(c.until)) {
		return c.items
	}
	file, err := read()
	if errors.Is(err, control.ErrNoSource) {
		return nil
	}
	*c = fileCheck{seen: stamp, items: compareFile(snap.Base, file, err)}
	if _, listed := errors.AsType[config.Problems](err); err != nil && !listed {
		c.until = now.Add(unreadableRetry)
	} else if stable := stamp.modified.Add(stableAfter); now.Before(stable) {
		c.until = stable
	}
	return c.items
}

// causeOf returns an error without the path of its file.
func causeOf(err error) string {
	if file, ok := errors.AsType[*fs.PathError](err); ok {
		return file.Err.Error()
	}
	return err.Error()
}

func fileProblem(message string) AttentionItem {
	return AttentionItem{Severity: severityError, Subject: "configuration", Message: message, Link: "config"}
}

// compareFile compares the configuration in force with the file on disk. err is the error of reading it.
func compareFile(base, file *config.File, err error) []AttentionItem {
	if problems, listed := errors.AsType[config.Problems](err); listed {
		return []AttentionItem{fileProblem(fmt.Sprintf("The file on disk has errors; the configuration in force stays. "+
			"The first one: %s", firstError(problems)))}
	}
	if err != nil {
		return []AttentionItem{fileProblem("The configuration file cannot be read: " + causeOf(err) + ".")}
	}
	var items []AttentionItem
	var restart []string
	live := 0
	for _, c := range config.Changes(base, file) {
		if c.Effect == "restart" {
			restart = append(restart, c.Path)
		} else {
			live++
		}
	}
	if live > 0 {
		items = append(items, AttentionItem{Severity: severityWarning, Subject: "configuration", Link: "config",
			Message: fmt.Sprintf("Changes in the file that are not in force: %d. Reload to apply them.", live)})
	}
	if len(restart) > 0 {
		items = append(items, AttentionItem{Severity: severityWarning, Subject: "configuration", Link: "config",
			Message: "These keys of the file take effect after a restart: " + strings.Join(restart, ", ") + "."})
	}
	return items
}

func firstError(problems config.Problems) string {
	for _, p := range problems {
		if !p.Warning {
			return p.String()
		}
	}
	return problems.Error()
}
