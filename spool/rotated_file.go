package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// rotated is a log file with rotation: file, file.1 … , the last being the oldest. It opens the
// file again if another program moves or truncates it. If the path is a link, the older files lie
// next to the link's target, because that volume has the space. It is used by one goroutine of one
// process.
type rotated struct {
	path    string
	key     string // names the file in errors
	maxSize int64  // of one file; a longer single line is written anyway
	files   int    // including the current one; 1: a full file is truncated

	file *os.File // nil while it cannot be opened
	real string   // path of the file without links
	size int64
	torn bool // the last line is incomplete
}

var errNoFile = errors.New("the path is not a regular file; name a regular file or a new one")

// open opens the file, or creates it with access for its owner only.
func (r *rotated) open() (err error) {
	if was, statErr := os.Stat(r.path); statErr == nil && !was.Mode().IsRegular() {
		err = errNoFile // opening a pipe without a reader would block
	} else if r.file, err = os.OpenFile(r.path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600); err == nil {
		r.real, err = filepath.EvalSymlinks(r.path)
	}
	if err != nil {
		r.close()
		return fmt.Errorf("opening %s %s: %w", r.key, r.path, err)
	}
	r.size = 0
	if info, err := r.file.Stat(); err == nil {
		r.size = info.Size()
	}
	r.torn = !endsWhole(r.file, r.size)
	return nil
}

// endsWhole reports whether the file is empty or ends with a newline. A crash may have left a
// partial line, which the next line must not continue.
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
	r.file.Close() // of a nil file too; the kernel has the written lines
	r.file = nil
}

// checkMoved updates the size and reports whether the file was moved or removed, so that the next
// write creates a new one. It is called before each write, because writes to a removed file are
// lost.
func (r *rotated) checkMoved() (moved bool) {
	if r.file == nil {
		return false
	}
	mine, err := r.file.Stat()
	if err != nil {
		return false // the next write returns the cause
	}
	named, err := os.Stat(r.path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(named, mine) {
		r.close()
		return true
	}
	if mine.Size() < r.size { // another program truncated the file, perhaps in the middle of a line
		r.torn = !endsWhole(r.file, mine.Size())
	}
	r.size = mine.Size()
	return false
}

// fits reports whether n more bytes fit in the file.
func (r *rotated) fits(n int) bool { return r.size == 0 || r.size+int64(n) <= r.maxSize }

// write appends whole lines and returns the number of bytes in lines that were written completely.
func (r *rotated) write(lines []byte) (int, error) {
	if r.file == nil {
		if err := r.open(); err != nil {
			return 0, err
		}
	}
	var rotateErr error
	if !r.fits(len(lines)) {
		if rotateErr = r.rotate(); r.file == nil {
			return 0, rotateErr
		}
	}
	if r.torn {
		if _, err := r.file.Write([]byte{'\n'}); err != nil {
			return 0, fmt.Errorf("writing %s %s: %w", r.key, r.path, err)
		}
		r.size++
		r.torn = false
	}
	n, err := r.file.Write(lines)
	r.size += int64(n)
	if err == nil {
		return n, rotateErr
	}
	return r.dropPartialLine(lines, n), fmt.Errorf("writing %s %s: %w", r.key, r.path, err)
}

// dropPartialLine removes a partial line that a failed write has left, and returns the length of the whole
// lines.
func (r *rotated) dropPartialLine(lines []byte, n int) int {
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

// rotate renames the files to the next number and opens a new one. If a rename fails, the full file
// is kept in use: a record is worth more than the size limit.
func (r *rotated) rotate() error {
	if r.files <= 1 {
		if err := r.file.Truncate(0); err != nil {
			return fmt.Errorf("truncating %s %s: %w", r.key, r.path, err)
		}
		r.size, r.torn = 0, false
		return nil
	}
	for i := r.files - 1; i > 1; i-- {
		if err := os.Rename(r.older(i-1), r.older(i)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("rotating %s %s: %w", r.key, r.path, err)
		}
	}
	if err := os.Rename(r.real, r.older(1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("rotating %s %s: %w", r.key, r.path, err)
	}
	r.close()
	return r.open()
}

func (r *rotated) older(i int) string { return olderName(r.real, i) }

// olderName returns the name of the file that was rotated i times.
func olderName(real string, i int) string { return real + "." + strconv.Itoa(i) }
