package spool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// record is a line of the tests' files.
type record struct {
	ID   string  `json:"request_id"`
	Size float64 `json:"size"`
	Rest string  `json:"rest"`
}

// numbered returns a record of some 200 bytes.
func numbered(id string) *record { return &record{ID: id, Rest: strings.Repeat("r", 150)} }

// logged is a log's output, which several goroutines may write.
type logged struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// letPanic lets a panic end the test.
func letPanic(_ string, step func() error) error { return step() }

// flush writes the waiting records.
func flush(f *File[*record]) { _ = f.Flush(context.Background()) }

// fileOf opens a file of records in a folder of its own.
func fileOf(t *testing.T, maxSize int64, files int) (*File[*record], *logged) {
	t.Helper()
	return fileAt(t, filepath.Join(t.TempDir(), "decisions.jsonl"), maxSize, files)
}

func fileAt(t *testing.T, path string, maxSize int64, files int) (*File[*record], *logged) {
	t.Helper()
	log := &logged{}
	f, err := OpenFile[*record](FileConfig{Key: "decisions.file", Path: path, MaxSize: maxSize, Files: files,
		Log: slog.New(slog.NewJSONHandler(log, nil)), Recover: letPanic})
	must(t, err)
	t.Cleanup(f.Close)
	return f, log
}

// recordsIn returns the request ids in a file, and the number of lines that are not records.
func recordsIn(t *testing.T, path string) (ids []string, bad int) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var d record
		if json.Unmarshal(line, &d) != nil || !bytes.HasSuffix(line, []byte("\n")) {
			bad++
			continue
		}
		ids = append(ids, d.ID)
	}
	return ids, bad
}

func numberedIDs(from, to int) (out []string) {
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprintf("r%04d", i))
	}
	return out
}

// TestFileHasRecordsInOrderAndComplete: soon after they are written, the last of
// them when the gateway ends.
func TestFileHasRecordsInOrderAndComplete(t *testing.T) {
	var f *File[*record]
	path := filepath.Join(t.TempDir(), "d")
	synctest.Test(t, func(t *testing.T) {
		f, _ = fileAt(t, path, 100<<20, 5)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { f.Run(ctx) })
		for _, id := range numberedIDs(0, 100) {
			f.Add(numbered(id))
		}
		time.Sleep(recordDelay)
		synctest.Wait()
		if got, bad := recordsIn(t, f.to.path); len(got) != 100 || bad != 0 {
			t.Errorf("after %v there are %d, and %d that are none", recordDelay, len(got), bad)
		}
		for _, id := range numberedIDs(100, 120) {
			f.Add(numbered(id))
		}
		stop()
		running.Wait()
	})
	got, bad := recordsIn(t, f.to.path)
	if diff := cmp.Diff(numberedIDs(0, 120), got); diff != "" || bad != 0 || f.Stats().Written != 120 ||
		f.Stats().Dropped != 0 {
		t.Errorf("%d written, %d dropped, %d bad lines (-want +got):\n%s", f.Stats().Written, f.Stats().Dropped, bad, diff)
	}
	if info, err := os.Stat(f.to.path); err != nil || info.Mode() != 0o600 {
		t.Errorf("its mode is %v (%v)", info.Mode(), err)
	}
}

// TestFullFileIsRotated: no file is longer than it may be, there are no more than
// there may be, and together they are the last records, whole.
func TestFullFileIsRotated(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "rotation")
		if err != nil {
			rt.Fatal(err)
		}
		files := rapid.IntRange(1, 4).Draw(rt, "files")
		f, err := OpenFile[*record](FileConfig{Key: "decisions.file", Path: filepath.Join(dir, "d"), MaxSize: 4000,
			Files: files, Log: slog.New(slog.DiscardHandler), Recover: letPanic})
		if err != nil {
			rt.Fatal(err)
		}
		defer f.Close()
		n := 0
		for range rapid.IntRange(1, 30).Draw(rt, "flushes") {
			for range rapid.IntRange(0, 20).Draw(rt, "records") {
				f.Add(numbered(fmt.Sprintf("r%04d", n)))
				n++
			}
			flush(f)
		}
		var got []string
		for i := files; i >= 0; i-- {
			path := f.to.path
			if i > 0 {
				path = f.to.older(i)
			}
			info, err := os.Stat(path)
			if err != nil {
				continue
			}
			ids, bad := recordsIn(t, path)
			if i == files || info.Size() > 4000 || bad > 0 {
				rt.Fatalf("%s of %d has %d bytes, %d bad lines", path, files, info.Size(), bad)
			}
			got = append(got, ids...)
		}
		if diff := cmp.Diff(numberedIDs(n-len(got), n), got); diff != "" || f.Stats().Written != int64(n) {
			rt.Fatalf("of %d (-want +got):\n%s", n, diff)
		}
		if perFile := 4000 / 200; n > files*perFile && len(got) < (files-1)*perFile/2 {
			rt.Fatalf("of %d only %d are left", n, len(got))
		}
	})
}

// TestMovedFileIsReplacedByANewOne: as logrotate moves it, removes it, or cuts it short. The
// very next record is in the new one.
func TestMovedFileIsReplacedByANewOne(t *testing.T) {
	f, _ := fileOf(t, 100<<20, 5)
	later := func(id string) {
		f.Add(numbered(id))
		flush(f)
	}
	later("a")
	must(t, os.Rename(f.to.path, f.to.path+".moved"))
	later("b")
	must(t, os.Remove(f.to.path))
	later("c")
	must(t, os.Truncate(f.to.path, 0))
	later("d")
	must(t, os.Truncate(f.to.path, 40)) // within a line
	later("e")
	moved, _ := recordsIn(t, f.to.path+".moved")
	here, bad := recordsIn(t, f.to.path)
	if diff := cmp.Diff([][]string{{"a"}, {"e"}}, [][]string{moved, here}); diff != "" || bad != 1 ||
		f.Stats().Dropped != 0 {
		t.Errorf("%d bad lines, %d dropped (-want +got):\n%s", bad, f.Stats().Dropped, diff)
	}
}

// TestLinkedFileRotatesBesideItsTarget: all files stay on the volume that an
// operator has chosen, also where nothing is there yet.
func TestLinkedFileRotatesBesideItsTarget(t *testing.T) {
	dir, volume := t.TempDir(), t.TempDir()
	path := filepath.Join(dir, "d")
	must(t, os.Symlink("next", path))
	must(t, os.Symlink(filepath.Join(volume, "real"), filepath.Join(dir, "next")))
	r := &rotated{path: path, maxSize: 100, files: 3}
	for range 8 {
		if _, err := r.write(append(bytes.Repeat([]byte("x"), 60), '\n')); err != nil {
			t.Fatal(err)
		}
		if r.checkMoved() {
			t.Fatal("it is taken for another file")
		}
	}
	r.close()
	var there []string
	for _, in := range []string{dir, volume} {
		files, err := os.ReadDir(in)
		must(t, err)
		for _, f := range files {
			there = append(there, f.Name())
		}
	}
	if diff := cmp.Diff([]string{"d", "next", "real", "real.1", "real.2"}, there); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	must(t, os.Symlink("round", filepath.Join(dir, "round")))
	if err := (&rotated{path: filepath.Join(dir, "round")}).open(); err == nil {
		t.Error("a link to itself is opened")
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestPartialLineIsNotContinued: after a crash in the middle of a write, the next
// record stands on a line of its own.
func TestPartialLineIsNotContinued(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d")
	whole, err := json.Marshal(numbered("a"))
	must(t, err)
	for torn := range len(whole) {
		must(t, os.WriteFile(path, append(append(whole, '\n'), whole[:torn]...), 0o600))
		f, err := OpenFile[*record](FileConfig{Key: "decisions.file", Path: path, MaxSize: 1 << 20, Files: 2,
			Log: slog.New(slog.DiscardHandler), Recover: letPanic})
		must(t, err)
		f.Add(numbered("b"))
		flush(f)
		f.Close()
		if got, bad := recordsIn(t, path); strings.Join(got, "") != "ab" || bad != min(torn, 1) {
			t.Fatalf("after %d bytes of a line: %v and %d bad lines", torn, got, bad)
		}
	}
}

// EX-05: a file that cannot be written delays no request. Lost records are counted, the log has one
// line a minute, and writing resumes when the file is writable.
func TestUnwritableFileIsLoggedOnceAMinute(t *testing.T) {
	var f *File[*record]
	var log *logged
	path := filepath.Join(t.TempDir(), "logs", "d")
	must(t, os.Mkdir(filepath.Dir(path), 0o700))
	synctest.Test(t, func(t *testing.T) {
		f, log = fileAt(t, path, 100<<20, 5)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { f.Run(ctx) })
		must(t, os.RemoveAll(filepath.Dir(f.to.path)))
		for range 150 { // seconds
			f.Add(numbered("lost"))
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if n := strings.Count(log.String(), `"level":"WARN"`); n != 3 || f.Stats().Dropped < 145 {
			t.Errorf("%d warnings and %d dropped in 150 s: %s", n, f.Stats().Dropped, log)
		}
		must(t, os.Mkdir(filepath.Dir(f.to.path), 0o700))
		f.Add(numbered("found"))
		time.Sleep(time.Second)
		stop()
		running.Wait()
	})
	if got, _ := recordsIn(t, f.to.path); strings.Join(got, "") != "found" ||
		!strings.Contains(log.String(), "accepts records again") {
		t.Errorf("afterwards it has %v: %s", got, log)
	}
	if f.Stats().Written+f.Stats().Dropped != 151 {
		t.Errorf("%d written and %d dropped of 151", f.Stats().Written, f.Stats().Dropped)
	}
}

// EX-05: a full disk, here a limit of the process, takes a part of a line back.
func TestPartialLineIsRemoved(t *testing.T) {
	f, _ := fileOf(t, 100<<20, 5)
	f.Add(numbered("a"))
	flush(f)
	part := []byte(`{"schema_version":1,"request_`)
	n, err := f.to.file.Write(part)
	must(t, err)
	f.to.size += int64(n)
	lines := append([]byte("whole\n"), part...)
	if whole := f.to.dropPartialLine(lines, len(lines)); whole != len("whole\n") {
		t.Errorf("%d bytes of whole lines", whole)
	}
	f.Add(numbered("b"))
	flush(f)
	if got, bad := recordsIn(t, f.to.path); strings.Join(got, "") != "ab" || bad != 0 {
		t.Errorf("%v and %d bad lines", got, bad)
	}
}

// TestFullSpoolDropsAndNeverWaits: Run is not started, so nothing empties the spool.
func TestFullSpoolDropsAndNeverWaits(t *testing.T) {
	f, _ := fileOf(t, 100<<20, 5)
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() {
			for range maxWaitingRecords/4 + 100 {
				f.Add(numbered("r"))
			}
		})
	}
	writers.Wait()
	if f.Stats().Dropped != 400 {
		t.Errorf("%d dropped, want 400", f.Stats().Dropped)
	}
	flush(f)
	if f.Stats().Written != maxWaitingRecords {
		t.Errorf("%d written", f.Stats().Written)
	}
	f.Add(numbered("r"))
	if flush(f); f.Stats().Written != maxWaitingRecords+1 {
		t.Errorf("afterwards %d written", f.Stats().Written)
	}
}

// TestOpenFileFailsOnAnUnwritablePath: with its name and the cause.
func TestOpenFileFailsOnAnUnwritablePath(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Join(dir, "none", "d"), os.DevNull} {
		f, err := OpenFile[*record](FileConfig{Key: "decisions.file", Path: path, MaxSize: 1 << 20, Files: 2,
			Log: slog.New(slog.DiscardHandler), Recover: letPanic})
		if err == nil || f != nil || !strings.Contains(err.Error(), "opening decisions.file "+path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// TestUnencodableRecordIsLostAlone: the records beside it are written.
func TestUnencodableRecordIsLostAlone(t *testing.T) {
	f, log := fileOf(t, 1<<20, 2)
	f.Add(&record{Size: math.NaN()})
	f.Add(numbered("a"))
	flush(f)
	if got, bad := recordsIn(t, f.to.path); len(got) != 1 || bad != 0 || f.Stats().Dropped != 1 || f.Stats().Written != 1 {
		t.Errorf("%v, %d bad lines, %+v: %s", got, bad, f.Stats(), log)
	}
}

// TestPanickingRecordIsLostAlone: a panic while one record is encoded takes nothing
// else with it.
func TestPanickingRecordIsLostAlone(t *testing.T) {
	f, _ := fileOf(t, 1<<20, 2)
	encoded := 0
	f.config.Recover = func(_ string, step func() error) (err error) {
		defer func() {
			if recover() != nil {
				err = errors.New("recovered")
			}
		}()
		if encoded++; encoded%2 == 0 {
			panic("a fault of the program")
		}
		return step()
	}
	for _, id := range []string{"a", "lost", "b", "lost"} {
		f.Add(numbered(id))
	}
	flush(f)
	if ids, bad := recordsIn(t, f.to.path); strings.Join(ids, " ") != "a b" || bad != 0 || f.Stats().Written != 2 ||
		f.Stats().Dropped != 2 {
		t.Errorf("the file has %q and %d bad lines: %+v", ids, bad, f.Stats())
	}
}

// BenchmarkFile is what a record of 5 KB costs: the request, which queues it, and the file's goroutine, which
// writes it.
func BenchmarkFile(b *testing.B) {
	d := &record{ID: "r", Rest: strings.Repeat("r", 5000)}
	f, err := OpenFile[*record](FileConfig{Key: "decisions.file", Path: filepath.Join(b.TempDir(), "d"),
		MaxSize: 100 << 20, Files: 2, Log: slog.New(slog.DiscardHandler), Recover: letPanic})
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	b.Run("add", func(b *testing.B) {
		ctx, stop := context.WithCancel(b.Context())
		var running sync.WaitGroup
		running.Go(func() { f.Run(ctx) })
		b.ReportAllocs()
		for b.Loop() {
			f.Add(d)
		}
		stop()
		running.Wait()
	})
	b.Run("write", func(b *testing.B) {
		b.ReportAllocs()
		records := slices.Repeat([]*record{d}, 50)
		for i := 0; b.Loop(); i++ {
			if i%len(records) == 0 {
				if lost, _ := f.write(b.Context(), records); lost > 0 {
					b.Fatal("records are lost")
				}
			}
		}
	})
}
