package server

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"tierway/config"
	"tierway/decisions"
	"tierway/routing"
)

// fileOf opens a file of decisions in a folder of its own.
func fileOf(t *testing.T, maxSize config.Size, files int) (*decisionFile, *lines) {
	t.Helper()
	log := &lines{}
	f, err := openDecisionFile(config.Decisions{File: filepath.Join(t.TempDir(), "decisions.jsonl"), MaxSize: maxSize, MaxFiles: files}, slog.New(slog.NewJSONHandler(log, nil)), letPanic)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.close)
	return f, log
}

// recordsIn returns the request ids in a file, and how many lines are no record.
func recordsIn(t *testing.T, path string) (ids []string, bad int) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var d decisions.Decision
		if json.Unmarshal(line, &d) != nil || !bytes.HasSuffix(line, []byte("\n")) {
			bad++
			continue
		}
		ids = append(ids, d.RequestID)
	}
	return ids, bad
}

func numberedIDs(from, to int) (out []string) {
	for i := from; i < to; i++ {
		out = append(out, fmt.Sprintf("r%04d", i))
	}
	return out
}

// TestRecordsComeToTheFileInOrderAndWhole: soon after they are written, the last of
// them when the gateway ends.
func TestRecordsComeToTheFileInOrderAndWhole(t *testing.T) {
	f, _ := fileOf(t, 100<<20, 5)
	synctest.Test(t, func(t *testing.T) {
		done := make(chan struct{})
		var running sync.WaitGroup
		running.Go(func() { f.run(done) })
		for _, id := range numberedIDs(0, 100) {
			f.write(record(id))
		}
		time.Sleep(recordDelay)
		synctest.Wait()
		if got, bad := recordsIn(t, f.to.path); len(got) != 100 || bad != 0 {
			t.Errorf("after %v there are %d, and %d that are none", recordDelay, len(got), bad)
		}
		for _, id := range numberedIDs(100, 120) {
			f.write(record(id))
		}
		close(done)
		running.Wait()
	})
	got, bad := recordsIn(t, f.to.path)
	if diff := cmp.Diff(numberedIDs(0, 120), got); diff != "" || bad != 0 || f.written.Load() != 120 || f.dropped.Load() != 0 {
		t.Errorf("%d written, %d dropped, %d bad lines (-want +got):\n%s", f.written.Load(), f.dropped.Load(), bad, diff)
	}
	if info, err := os.Stat(f.to.path); err != nil || info.Mode() != 0o600 {
		t.Errorf("its mode is %v (%v)", info.Mode(), err)
	}
}

// TestAFullFileMakesRoom: no file is longer than it may be, there are no more than
// there may be, and together they are the last records, whole.
func TestAFullFileMakesRoom(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir, err := os.MkdirTemp(t.TempDir(), "rotation")
		if err != nil {
			rt.Fatal(err)
		}
		files := rapid.IntRange(1, 4).Draw(rt, "files")
		f, err := openDecisionFile(config.Decisions{File: filepath.Join(dir, "d"), MaxSize: 4000, MaxFiles: files}, slog.New(slog.DiscardHandler), letPanic)
		if err != nil {
			rt.Fatal(err)
		}
		defer f.close()
		n := 0
		for range rapid.IntRange(1, 30).Draw(rt, "flushes") {
			for range rapid.IntRange(0, 20).Draw(rt, "records") {
				f.write(record(fmt.Sprintf("r%04d", n)))
				n++
			}
			f.flush()
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
		if diff := cmp.Diff(numberedIDs(n-len(got), n), got); diff != "" || f.written.Load() != int64(n) {
			rt.Fatalf("of %d (-want +got):\n%s", n, diff)
		}
		if perFile := 4000 / 200; n > files*perFile && len(got) < (files-1)*perFile/2 {
			rt.Fatalf("of %d only %d are left", n, len(got))
		}
	})
}

// TestAMovedFileIsBegunAnew: as logrotate moves it, removes it, or cuts it short. The
// very next record is in the new one.
func TestAMovedFileIsBegunAnew(t *testing.T) {
	f, _ := fileOf(t, 100<<20, 5)
	later := func(id string) {
		f.write(record(id))
		f.flush()
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
	if diff := cmp.Diff([][]string{{"a"}, {"e"}}, [][]string{moved, here}); diff != "" || bad != 1 || f.dropped.Load() != 0 {
		t.Errorf("%d bad lines, %d dropped (-want +got):\n%s", bad, f.dropped.Load(), diff)
	}
}

// TestALinkedFileRotatesWhereItsLinkLeads: all files stay on the volume that an
// operator has chosen, also where nothing is there yet.
func TestALinkedFileRotatesWhereItsLinkLeads(t *testing.T) {
	dir, volume := t.TempDir(), t.TempDir()
	path := filepath.Join(dir, "d")
	must(t, os.Symlink("next", path))
	must(t, os.Symlink(filepath.Join(volume, "real"), filepath.Join(dir, "next")))
	r := &rotated{path: path, maxSize: 100, files: 3}
	for range 8 {
		if _, err := r.write(append(bytes.Repeat([]byte("x"), 60), '\n')); err != nil {
			t.Fatal(err)
		}
		if r.look() {
			t.Fatal("it is found to be another file")
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

// TestATornLineIsNotContinued: after a crash in the middle of a write, the next
// record stands on a line of its own.
func TestATornLineIsNotContinued(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d")
	whole, err := json.Marshal(record("a"))
	must(t, err)
	for torn := range len(whole) {
		must(t, os.WriteFile(path, append(append(whole, '\n'), whole[:torn]...), 0o600))
		f, err := openDecisionFile(config.Decisions{File: path, MaxSize: 1 << 20, MaxFiles: 2}, slog.New(slog.DiscardHandler), letPanic)
		must(t, err)
		f.write(record("b"))
		f.flush()
		f.close()
		if got, bad := recordsIn(t, path); strings.Join(got, "") != "ab" || bad != min(torn, 1) {
			t.Fatalf("after %d bytes of a line: %v and %d bad lines", torn, got, bad)
		}
	}
}

// EX-05: a file that cannot be written costs nobody anything: what is lost is
// counted, the log has one line a minute, and it goes on when it can.
func TestAFileThatCannotBeWrittenIsToldOnceAMinute(t *testing.T) {
	f, log := fileOf(t, 100<<20, 5)
	synctest.Test(t, func(t *testing.T) {
		done := make(chan struct{})
		var running sync.WaitGroup
		running.Go(func() { f.run(done) })
		must(t, os.RemoveAll(filepath.Dir(f.to.path)))
		for range 150 { // seconds
			f.write(record("lost"))
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if n := strings.Count(log.String(), `"level":"WARN"`); n != 3 || f.dropped.Load() < 145 {
			t.Errorf("%d warnings and %d dropped in 150 s: %s", n, f.dropped.Load(), log)
		}
		must(t, os.Mkdir(filepath.Dir(f.to.path), 0o700))
		f.write(record("found"))
		time.Sleep(time.Second)
		close(done)
		running.Wait()
	})
	if got, _ := recordsIn(t, f.to.path); strings.Join(got, "") != "found" || !strings.Contains(log.String(), "written to their file again") {
		t.Errorf("afterwards it has %v: %s", got, log)
	}
	if f.written.Load()+f.dropped.Load() != 151 {
		t.Errorf("%d written and %d dropped of 151", f.written.Load(), f.dropped.Load())
	}
}

// EX-05: a full disk, here a limit of the process, takes a part of a line back.
func TestAPartOfALineIsTakenBack(t *testing.T) {
	f, _ := fileOf(t, 100<<20, 5)
	f.write(record("a"))
	f.flush()
	part := []byte(`{"schema_version":1,"request_`)
	n, err := f.to.file.Write(part)
	must(t, err)
	f.to.size += int64(n)
	lines := append([]byte("whole\n"), part...)
	if whole := f.to.untear(lines, len(lines)); whole != len("whole\n") {
		t.Errorf("%d bytes of whole lines", whole)
	}
	f.write(record("b"))
	f.flush()
	if got, bad := recordsIn(t, f.to.path); strings.Join(got, "") != "ab" || bad != 0 {
		t.Errorf("%v and %d bad lines", got, bad)
	}
}

// TestAQueueThatIsFullLosesAndNeverWaits: nobody empties it here.
func TestAQueueThatIsFullLosesAndNeverWaits(t *testing.T) {
	f, _ := fileOf(t, 100<<20, 5)
	var writers sync.WaitGroup
	for range 4 {
		writers.Go(func() {
			for range maxWaitingRecords/4 + 100 {
				f.write(record("r"))
			}
		})
	}
	writers.Wait()
	if f.dropped.Load() != 400 {
		t.Errorf("%d dropped, want 400", f.dropped.Load())
	}
	f.flush()
	if f.written.Load() != maxWaitingRecords {
		t.Errorf("%d written", f.written.Load())
	}
	f.write(record("r"))
	if f.flush(); f.written.Load() != maxWaitingRecords+1 {
		t.Errorf("afterwards %d written", f.written.Load())
	}
}

// TestAPathThatCannotBeWrittenStopsTheStart: with its name and the cause.
func TestAPathThatCannotBeWrittenStopsTheStart(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{dir, filepath.Join(dir, "none", "d"), os.DevNull} {
		f, err := openDecisionFile(config.Decisions{File: path, MaxSize: 1 << 20, MaxFiles: 2}, slog.New(slog.DiscardHandler), letPanic)
		if err == nil || f != nil || !strings.Contains(err.Error(), "opening decisions.file "+path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

// BenchmarkDecisionLine is what the file's goroutine spends on a record of a pool
// with 16 workers and a prompt of 81 blocks; the request only queues it.
func BenchmarkDecisionLine(b *testing.B) {
	f, err := openDecisionFile(config.Decisions{File: filepath.Join(b.TempDir(), "d"), MaxSize: 100 << 20, MaxFiles: 2}, slog.New(slog.DiscardHandler), letPanic)
	if err != nil {
		b.Fatal(err)
	}
	defer f.close()
	d := wholeDecision()
	d.Attempts[1].Choice = &routing.Choice{Policy: "chwbl", Candidates: make([]routing.Candidate, 16)}
	d.Features.Chain = make([]routing.Link, 81)
	b.Run("write", func(b *testing.B) {
		done := make(chan struct{})
		var running sync.WaitGroup
		running.Go(func() { f.run(done) })
		b.ReportAllocs()
		for b.Loop() {
			f.write(d)
		}
		close(done)
		running.Wait()
	})
	b.Run("encode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			f.gather(d)
		}
		b.SetBytes(int64(len(f.line)))
	})
}
