package config

import (
	"fmt"
	"path/filepath"
	"strings"
)

// leastDecisionFile is the shortest file of decisions that is worth its turn: a few
// hundred records.
const leastDecisionFile = Size(1 << 20)

// checkDecisions checks which decisions are kept.
func (d *decoder) checkDecisions(f *File) {
	c := f.Decisions
	if c.MaxSize > 0 && c.MaxSize < leastDecisionFile {
		d.fault("decisions.max_size", fmt.Sprintf("%v is less than %v", c.MaxSize, leastDecisionFile),
			fmt.Sprintf("write %v or more", leastDecisionFile))
	}
	if c.File != "" {
		if other := d.sameFile(f); other != "" {
			d.fault("decisions.file", d.shown("decisions.file", c.File)+" is "+other, "write a file of its own, such as decisions.jsonl")
		}
		return
	}
	for _, path := range [...]string{"decisions.max_size", "decisions.max_files"} {
		if d.written(path) {
			d.caution(path, "does nothing without decisions.file",
				"set decisions.file, or remove the key; decisions.keep bounds what is in memory")
		}
	}
}

// sameFile returns which other file of the configuration decisions.file names, as far
// as the texts tell; "" if it is one of its own.
func (d *decoder) sameFile(f *File) string {
	whole := func(file string) string {
		if !filepath.IsAbs(file) {
			file = filepath.Join(filepath.Dir(d.file), file)
		}
		if absolute, err := filepath.Abs(file); err == nil {
			return absolute
		}
		return file
	}
	decisions := whole(f.Decisions.File)
	if decisions == whole(filepath.Base(d.file)) {
		return "the configuration itself"
	}
	if database, ok := strings.CutPrefix(f.Store.SQL, "sqlite://"); ok && database != "" {
		for _, suffix := range [...]string{"", "-wal", "-shm", "-journal"} { // SQLite's own beside the file
			if decisions == whole(database)+suffix {
				return "the file of store.sql"
			}
		}
	}
	return ""
}
