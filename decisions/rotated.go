package decisions

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// rotated is a file of lines that makes room for another one when it is full:
// file, file.1 … , of which the last is the oldest. It is found again where another
// program has moved it or cut it short. Where a link leads to it, all of them stand
// where that leads, as its volume has the room. One goroutine uses it, and one process.
type rotated struct {
	path    string
	maxSize int64 // of one file; a single longer line is written all the same
	files   int   // the one that is written included; 1: a full one is begun anew

	file *os.File // nil while it cannot be opened
	real string   // its path without links
	size int64
	torn bool // its last line is not whole
}

// errNoFile is the cause where the file is no file.
var errNoFile = errors.New("it is no regular file")

// open opens the file, and makes it where there is none, for its user alone.
func (r *rotated) open() (err error) {
	if was, statErr := os.Stat(r.path); statErr == nil && !was.Mode().IsRegular() {
		err = errNoFile // opening a pipe without a reader would wait for ever
	} else if r.file, err = os.OpenFile(r.path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600); err == nil {
		r.real, err = filepath.EvalSymlinks(r.path)
	}
	if err != nil {
		r.close()
		return fmt.Errorf("opening decisions.file %s: %w", r.path, err)
	}
	r.size = 0
	if info, err := r.file.Stat(); err == nil {
		r.size = info.Size()
	}
	r.torn = !endsWhole(r.file, r.size)
	return nil
}

// endsWhole tells whether the file ends with a newline, or is empty. A crash may
// have left a part of a line, which the next line must not continue.
func endsWhole(file *os.File, size int64) bool {
	last := []byte{'\n'}
	if size > 0 {
		if _, err := file.ReadAt(last, size-1); err != nil {
			return false
		}
	}
	return last[0] == '\n'
}

func (r *rotated) close() {
	r.file.Close() //nolint:errcheck // of a nil file too; what was written is with the kernel
	r.file = nil
}

// look finds out whether the file is still the one of its name, and how long it is.
// It is asked before each write: what a removed file is given is lost. It tells
// whether the file was moved or removed, so that the next write begins another.
func (r *rotated) look() (moved bool) {
	if r.file == nil {
		return false
	}
	mine, err := r.file.Stat()
	if err != nil {
		return false // the next write says what is wrong
	}
	named, err := os.Stat(r.path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(named, mine) {
		r.close()
		return true
	}
	if mine.Size() < r.size { // cut short: what it ends with now is not ours to know
		r.torn = !endsWhole(r.file, mine.Size())
	}
	r.size = mine.Size()
	return false
}

// fits tells whether so many bytes more are not too many for the file.
func (r *rotated) fits(n int) bool { return r.size == 0 || r.size+int64(n) <= r.maxSize }

// write appends whole lines, and returns how many bytes of whole lines are there.
func (r *rotated) write(lines []byte) (int, error) {
	if r.file == nil {
		if err := r.open(); err != nil {
			return 0, err
		}
	}
	var stuck error
	if !r.fits(len(lines)) {
		if stuck = r.rotate(); r.file == nil {
			return 0, stuck
		}
	}
	if r.torn {
		if _, err := r.file.Write([]byte{'\n'}); err != nil {
			return 0, fmt.Errorf("writing decisions.file %s: %w", r.path, err)
		}
		r.size++
		r.torn = false
	}
	n, err := r.file.Write(lines)
	r.size += int64(n)
	if err == nil {
		return n, stuck
	}
	return r.untear(lines, n), fmt.Errorf("writing decisions.file %s: %w", r.path, err)
}

// untear takes back the part of a line that was written before the disk was full,
// and returns the length of the whole lines.
func (r *rotated) untear(lines []byte, n int) int {
	whole := n
	for whole > 0 && lines[whole-1] != '\n' {
		whole--
	}
	part := int64(n - whole)
	if part == 0 {
		return whole
	}
	info, err := r.file.Stat()
	if err == nil && info.Size() == r.size && r.file.Truncate(r.size-part) == nil {
		r.size -= part
		return whole
	}
	r.torn = true
	return whole
}

// rotate moves the files one place on and begins a new one. Where a file cannot be
// moved, the full one is written on: a record is worth more than its bound.
func (r *rotated) rotate() error {
	if r.files <= 1 {
		if err := r.file.Truncate(0); err != nil {
			return fmt.Errorf("beginning decisions.file %s anew: %w", r.path, err)
		}
		r.size, r.torn = 0, false
		return nil
	}
	for i := r.files - 1; i > 1; i-- {
		if err := os.Rename(r.older(i-1), r.older(i)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("rotating decisions.file: %w", err)
		}
	}
	if err := os.Rename(r.real, r.older(1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("rotating decisions.file: %w", err)
	}
	r.close()
	return r.open()
}

func (r *rotated) older(i int) string { return r.real + "." + strconv.Itoa(i) }
