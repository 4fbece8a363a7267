package learning

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"tierway/tierscore"
	"tierway/tierscore/report"
	"tierway/tierscore/training"
)

const (
	// reportSeed makes the resamples of a report repeatable.
	reportSeed = 1
	// reportPause is the minimum pause between two readings of the files, as a multiple of the duration of the last one,
	// so that readings take less than 5 % of the time.
	reportPause = 20
	// minReportPause is the minimum pause after a short reading.
	minReportPause = time.Minute
)

// Reporter makes the report of the lines that a gateway has written. It keeps the last report. It is safe for
// concurrent use.
type Reporter struct {
	features, labels func() []string // files, oldest first

	mu    sync.Mutex // held while the files are read
	of    reported
	last  *report.Report
	err   error
	until time.Time // the last report is returned until then
}

// reported is what a report is about.
type reported struct {
	tiers training.Tiers
	model *tierscore.Model
}

// Reporter returns the reporter of the store.
func (s *Store) Reporter() *Reporter {
	return &Reporter{features: s.features.Files, labels: s.labels.Files}
}

// Report returns the report of two tiers, and of a model unless it is nil. It may be minReportPause old, or older if a
// reading takes more than 3 s: reportPause times the duration of the reading.
func (r *Reporter) Report(tiers training.Tiers, model *tierscore.Model) (*report.Report, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	began, of := time.Now(), reported{tiers, model}
	if of != r.of || !began.Before(r.until) {
		r.last, r.err = r.read(of)
		r.of = of
		r.until = time.Now().Add(max(minReportPause, reportPause*time.Since(began)))
	}
	if r.err != nil {
		return nil, r.err
	}
	copied := *r.last // the caller adds the cost
	return &copied, nil
}

// read reads all files.
func (r *Reporter) read(of reported) (*report.Report, error) {
	var open []*os.File
	defer func() {
		for _, f := range open {
			f.Close()
		}
	}()
	files := func(names []string) (all []report.File, err error) {
		for _, name := range names {
			f, err := os.Open(name)
			if errors.Is(err, fs.ErrNotExist) { // rotated meanwhile
				continue
			}
			if err != nil {
				return nil, err
			}
			open = append(open, f)
			whole, err := wholeLines(f)
			if err != nil {
				return nil, err
			}
			all = append(all, report.File{Name: name, In: whole})
		}
		return all, nil
	}
	features, err := files(r.features())
	if err != nil {
		return nil, err
	}
	labels, err := files(r.labels())
	if err != nil {
		return nil, err
	}
	return report.Read(features, labels, of.tiers, of.model, rand.New(rand.NewPCG(reportSeed, 0)).IntN)
}

// wholeLines returns the file up to the end of its last whole line: the next one may be in the middle of being written.
func wholeLines(f *os.File) (io.Reader, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	end, chunk := info.Size(), make([]byte, 64<<10)
	for end > 0 {
		n := min(end, int64(len(chunk)))
		if _, err := f.ReadAt(chunk[:n], end-n); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		if i := bytes.LastIndexByte(chunk[:n], '\n'); i >= 0 {
			end += int64(i) + 1 - n
			break
		}
		end -= n
	}
	return io.LimitReader(f, end), nil
}
