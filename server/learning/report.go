package learning

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"tierway/tierscore"
	"tierway/tierscore/report"
	"tierway/tierscore/training"
)

const (
	// reportSeed makes the resamples of a report repeatable.
	reportSeed = 1
	// Limits of what a report reads of the features, and of the labels, in bytes. The newest lines are read: some 20,000
	// requests and 110,000 labels.
	reportFeatures = 64 << 20
	reportLabels   = 16 << 20
	// reportEvery is the least time between two readings of the files, in multiples of the time that the last one took:
	// reports take at most 5 % of a processor.
	reportEvery = 20
	// reportLeast is the least time between two readings.
	reportLeast = time.Minute
)

// Reporter makes the report of the newest lines that a gateway has written. It keeps the last report. It is safe for
// concurrent use.
type Reporter struct {
	features, labels func() []string // files, oldest first
	limits           [2]int64        // bytes of the features, and of the labels

	reading chan struct{} // has room for one: guards all below, and is full while the files are read
	of      reported
	last    *report.Report
	err     error
	until   time.Time // when the files may be read again
}

// reported is what a report is about.
type reported struct {
	tiers training.Tiers
	model *tierscore.Model
}

// Reporter returns the reporter of the store.
func (s *Store) Reporter() *Reporter {
	return &Reporter{features: s.features.Files, labels: s.labels.Files, limits: [2]int64{reportFeatures, reportLabels},
		reading: make(chan struct{}, 1)}
}

// Report returns the report of two tiers, and of a model unless it is nil. It may be old: of reportLeast, or longer if
// reading takes long. It returns the error of ctx if ctx ends first, and another caller may then read the files.
func (r *Reporter) Report(ctx context.Context, tiers training.Tiers, model *tierscore.Model) (*report.Report, error) {
	select {
	case r.reading <- struct{}{}:
		defer func() { <-r.reading }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	began, of := time.Now(), reported{tiers, model}
	if of != r.of || !began.Before(r.until) {
		last, err := r.read(ctx, of)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		r.of, r.last, r.err = of, last, err
		r.until = time.Now().Add(max(reportLeast, reportEvery*time.Since(began)))
	}
	if r.err != nil {
		return nil, r.err
	}
	copied := *r.last // the caller adds the cost
	return &copied, nil
}

func (r *Reporter) read(ctx context.Context, of reported) (*report.Report, error) {
	features, err := openNewest(ctx, r.features(), r.limits[0])
	defer features.close()
	if err != nil {
		return nil, err
	}
	labels, err := openNewest(ctx, r.labels(), r.limits[1])
	defer labels.close()
	if err != nil {
		return nil, err
	}
	// Nothing is known about which answers get feedback, so it does not evaluate.
	in := report.Input{Features: features.parts, Labels: labels.parts, Tiers: of.tiers, Model: of.model}
	return report.Read(in, rand.New(rand.NewPCG(reportSeed, 0)).IntN)
}

// openFiles are parts of open files, oldest first.
type openFiles struct {
	files []*os.File
	parts []report.File
}

func (o openFiles) close() {
	for _, f := range o.files {
		f.Close()
	}
}

// openNewest opens files, which are named oldest first, and returns their newest whole lines of at most limit bytes.
// Readings fail after ctx has ended. The caller closes the files, also after an error.
func openNewest(ctx context.Context, names []string, limit int64) (o openFiles, err error) {
	for _, name := range slices.Backward(names) {
		if limit <= 0 {
			break
		}
		f, err := os.Open(name)
		if errors.Is(err, fs.ErrNotExist) { // rotated meanwhile
			continue
		}
		if err != nil {
			return o, err
		}
		o.files = append(o.files, f)
		from, end, err := wholeLines(f, limit)
		if err != nil {
			return o, err
		}
		if limit -= end - from; from > 0 {
			limit, name = 0, fmt.Sprintf("%s after byte %d", name, from)
		}
		part := io.NewSectionReader(f, from, end-from)
		o.parts = append(o.parts, report.File{Name: name, In: readerFunc(func(p []byte) (int, error) {
			if err := ctx.Err(); err != nil {
				return 0, err
			}
			return part.Read(p)
		})})
	}
	slices.Reverse(o.parts)
	return o, nil
}

// readerFunc is an io.Reader.
type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// wholeLines returns the range of the last whole lines of a file, of at most limit bytes: the next line may be in the
// middle of being written.
func wholeLines(f *os.File, limit int64) (from, end int64, err error) {
	info, err := f.Stat()
	if err != nil {
		return 0, 0, err
	}
	chunk := make([]byte, 64<<10)
	for end = info.Size(); end > 0; {
		n := min(end, int64(len(chunk)))
		if err := readAt(f, chunk[:n], end-n); err != nil {
			return 0, 0, err
		}
		if i := bytes.LastIndexByte(chunk[:n], '\n'); i >= 0 {
			end += int64(i) + 1 - n
			break
		}
		end -= n
	}
	if end <= limit {
		return 0, end, nil
	}
	for from = end - limit - 1; from < end; { // a line that begins at the limit follows a line break
		n := min(end-from, int64(len(chunk)))
		if err := readAt(f, chunk[:n], from); err != nil {
			return 0, 0, err
		}
		if i := bytes.IndexByte(chunk[:n], '\n'); i >= 0 {
			return from + int64(i) + 1, end, nil
		}
		from += n
	}
	return end, end, nil
}

// readAt reads a part of a file. Another program may have made the file shorter: the rest is then empty.
func readAt(f *os.File, part []byte, at int64) error {
	n, err := f.ReadAt(part, at)
	clear(part[n:])
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
