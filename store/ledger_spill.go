package store

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The names of files with spilled rows: the prefix, the database's id, a dash, random digits and the suffix. A file is
// complete once it has no suffix spillPartial.
const (
	spillPrefix  = "tierway-ledger-"
	spillSuffix  = ".jsonl"
	spillPartial = ".partial"
	spillBad     = ".unreadable"
)

// spillPause is the time between two tries to write spilled rows while the database does not accept them.
const spillPause = time.Second

// spillRows writes the rows that still wait to a file, from which the next start writes them.
func (l *Ledger) spillRows() {
	rows := l.Waiting()
	if len(rows) == 0 {
		return
	}
	name, err := l.spill(rows)
	if err != nil {
		l.log.Error("ledger rows lost; the database was unavailable until shutdown", "rows", len(rows), "cause", err)
		return
	}
	l.log.Warn("the database was unavailable until shutdown; the next start writes the ledger rows of this file", "rows",
		len(rows), "file", name)
}

// spill writes rows to a new file and returns its name. After a loss of power, the file has all rows or does not exist.
func (l *Ledger) spill(rows []Row) (name string, err error) {
	if l.dir == "" {
		return "", errors.New("no directory for spilled ledger rows: set store.spill_dir")
	}
	// The file is for its owner only: rows name tenants and models.
	f, err := os.CreateTemp(l.dir, spillPrefix+l.database+"-*"+spillPartial)
	if err != nil {
		return "", fmt.Errorf("spilling ledger rows: %w (set store.spill_dir to a writable directory)", err)
	}
	w := bufio.NewWriter(f)
	for i, enc := 0, json.NewEncoder(w); i < len(rows) && err == nil; i++ {
		err = enc.Encode(&rows[i])
	}
	if err == nil {
		err = w.Flush()
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		name = strings.TrimSuffix(f.Name(), spillPartial) + spillSuffix
		err = errors.Join(os.Rename(f.Name(), name), syncDir(l.dir))
	}
	if err != nil {
		_ = os.Remove(f.Name()) // it is incomplete
		return "", fmt.Errorf("spilling ledger rows: %w", err)
	}
	return name, nil
}

// syncDir makes the names in a directory survive a loss of power.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// writeSpilled writes the rows that earlier processes have spilled for this database, until ctx ends. Gateways may
// share the directory: a row that is written twice counts once.
func (l *Ledger) writeSpilled(ctx context.Context) {
	if l.dir == "" {
		return
	}
	names, err := filepath.Glob(filepath.Join(globLiteral(l.dir), spillPrefix+"*"+spillSuffix))
	if err != nil {
		l.log.Error("looking for spilled ledger rows", "dir", l.dir, "cause", err)
		return
	}
	own := filepath.Join(l.dir, spillPrefix+l.database+"-")
	for _, name := range names {
		if !strings.HasPrefix(name, own) {
			l.log.Warn("a file in the directory of spilled ledger rows has rows of another database; it stays", "file", name,
				"way_out", "if this is its database under another URL, rename it to "+own+"adopted"+spillSuffix+" and restart")
			continue
		}
		err := l.recover("writing spilled ledger rows", func() error { return l.writeFile(ctx, name) })
		switch {
		case err == nil, errors.Is(err, fs.ErrNotExist): // another gateway has written it
		case ctx.Err() != nil:
			return // the next start continues
		default:
			l.log.Error("spilled ledger rows not written; the next start tries again", "file", name, "cause", err)
		}
	}
}

// globLiteral returns a pattern that matches a path only.
func globLiteral(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}

// writeFile writes the rows of a file to the database, and then removes the file. If the process ends between the two,
// the next start writes the rows again, which changes nothing.
func (l *Ledger) writeFile(ctx context.Context, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close() // it was only read
	written, unreadable := 0, 0
	for r, ended := bufio.NewReader(f), false; !ended; {
		var batch []Row
		for len(batch) < ledgerBatch && !ended {
			line, err := r.ReadBytes('\n')
			if ended = err != nil; ended && !errors.Is(err, io.EOF) {
				return err
			}
			var row Row
			switch {
			case len(bytes.TrimSpace(line)) == 0:
			case json.Unmarshal(line, &row) != nil || row.ID == "":
				unreadable++
			default:
				batch = append(batch, row)
			}
		}
		if err := l.writeUntilDone(ctx, batch); err != nil {
			return err
		}
		written += len(batch)
	}
	if unreadable > 0 {
		l.log.Error("ledger rows lost; some lines of a file of spilled rows cannot be read", "rows", unreadable, "file",
			name+spillBad)
		return os.Rename(name, name+spillBad)
	}
	l.log.Info("ledger rows of an earlier process written", "rows", written, "file", name)
	return errors.Join(os.Remove(name), syncDir(l.dir))
}

// writeUntilDone writes a batch, again and again while the database is unavailable, until ctx ends.
func (l *Ledger) writeUntilDone(ctx context.Context, rows []Row) error {
	if len(rows) == 0 {
		return nil
	}
	for {
		_, err := l.writeBatch(ctx, rows)
		if err == nil {
			return nil
		}
		l.log.Debug("spilled ledger rows wait; the database does not accept them", "rows", len(rows), "cause", err)
		if !wait(ctx, spillPause) {
			return ctx.Err()
		}
	}
}
