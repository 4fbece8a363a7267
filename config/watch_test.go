package config

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func TestContentCountsAfterTwoEqualReads(t *testing.T) {
	const gone = "\x00" // stands for a file that cannot be read
	cases := map[string]struct {
		reads []string // one a second, from the start on; the last one stays. "a" was loaded
		want  []int    // seconds in which a change is reported
	}{
		"nothing":                     {[]string{"a"}, nil},
		"a change":                    {[]string{"a", "b"}, []int{2}},
		"half written":                {[]string{"a", "b", "bc", "bcd"}, []int{4}},
		"gone for a moment":           {[]string{"a", gone, gone, "a"}, nil},
		"replaced":                    {[]string{"a", gone, "b"}, []int{3}},
		"gone between two reads":      {[]string{"a", "b", gone, "b"}, []int{4}},
		"emptied for a moment":        {[]string{"a", "", "a"}, nil},
		"emptied":                     {[]string{"a", ""}, []int{2}},
		"there and back":              {[]string{"a", "b", "b", "a"}, []int{2, 4}},
		"touched and back":            {[]string{"a", "b", "a"}, nil},
		"always another":              {[]string{"a", "b", "c", "d", "e", "e"}, []int{5}},
		"never there":                 {[]string{gone}, nil},
		"changed while it was loaded": {[]string{"b"}, []int{2}},
		"there later":                 {[]string{gone, gone, "b"}, []int{3}},
		"there later, and gone again": {[]string{gone, "b", gone, "b", "b", "c"}, []int{4, 6}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				begun := time.Now()
				second := func() int { return int(time.Since(begun) / time.Second) }
				read := func() ([]byte, error) {
					text := c.reads[min(second(), len(c.reads)-1)]
					if text == gone {
						return nil, errors.New("gone")
					}
					return []byte(text), nil
				}
				var got []int
				done := make(chan struct{})
				go func() {
					defer close(done)
					watch(ctx, WatchConfig{Every: time.Second, Loaded: hashOf([]byte("a")), Wanted: func() bool { return true },
						Changed: func() { got = append(got, second()) }}, read)
				}()
				time.Sleep(20 * time.Second)
				cancel()
				<-done
				if !slices.Equal(got, c.want) {
					t.Errorf("changes were reported in seconds %v, want %v", got, c.want)
				}
			})
		})
	}
}

// While Wanted is false, the file is not read. When it is true again, no change is missed.
func TestAFileIsReadOnlyWhileItIsWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		begun := time.Now()
		second := func() int { return int(time.Since(begun) / time.Second) }
		wanted := func() bool { return second() < 4 || second() >= 10 }
		text := func() string {
			if second() < 5 || second() >= 8 {
				return "a"
			}
			return "b" // loaded manually
		}
		var read, told []int
		done := make(chan struct{})
		go func() {
			defer close(done)
			watch(ctx, WatchConfig{Every: time.Second, Loaded: hashOf([]byte("a")), Wanted: wanted,
				Changed: func() { told = append(told, second()) }}, func() ([]byte, error) {
				read = append(read, second())
				return []byte(text()), nil
			})
		}()
		time.Sleep(13*time.Second + time.Millisecond)
		cancel()
		<-done
		if want := []int{1, 2, 3, 10, 11, 12, 13}; !slices.Equal(read, want) {
			t.Errorf("read in seconds %v, want %v", read, want)
		}
		if want := []int{11}; !slices.Equal(told, want) {
			t.Errorf("changes were reported in seconds %v, want %v", told, want)
		}
	})
}

// A load may find the file missing although Watch never does: the content that is back is loaded.
func TestContentCountsAgainAfterALoadThatCouldNotReadIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		begun := time.Now()
		second := func() int { return int(time.Since(begun) / time.Second) }
		stale := true
		var reported []int
		done := make(chan struct{})
		go func() {
			defer close(done)
			watch(ctx, WatchConfig{Every: time.Second, Loaded: hashOf([]byte("a")), Wanted: func() bool { return true },
				Stale:   func() bool { return stale && second() >= 4 },
				Changed: func() { reported, stale = append(reported, second()), len(reported) == 0 }},
				func() ([]byte, error) {
					if second() == 4 {
						return nil, errors.New("missing")
					}
					return []byte("a"), nil
				})
		}()
		time.Sleep(20 * time.Second)
		cancel()
		<-done
		if want := []int{6, 7}; !slices.Equal(reported, want) {
			t.Errorf("changes were reported in seconds %v, want %v", reported, want)
		}
	})
}

func TestAFileIsFollowedThroughRenamesAndLinks(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "config.yaml")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write := func(name, text string) string {
		t.Helper()
		name = filepath.Join(dir, name)
		must(os.MkdirAll(filepath.Dir(name), 0o755))
		must(os.WriteFile(name, []byte(text), 0o600))
		return name
	}
	// The file changes between loading and the first poll.
	loaded := hashOf([]byte("one"))
	write("config.yaml", "two")

	ctx, cancel := context.WithCancel(t.Context())
	told, done := make(chan string, 100), make(chan struct{})
	go func() {
		defer close(done)
		Watch(ctx, WatchConfig{Path: path, Every: time.Millisecond, Loaded: loaded, Wanted: func() bool { return true },
			Changed: func() {
				text, err := os.ReadFile(path)
				if err != nil {
					text = []byte(err.Error())
				}
				told <- string(text)
			}})
	}()
	next := func(want string) {
		t.Helper()
		select {
		case got := <-told:
			if got != want {
				t.Fatalf("reported %q, want %q", got, want)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("%q was not reported", want)
		}
	}
	next("two")
	must(os.Rename(write("new", "an editor's"), path))
	next("an editor's")
	must(os.Remove(path))
	write("config.yaml", "removed and written")
	next("removed and written")

	// Kubernetes uses two links: config.yaml → ..data/config.yaml, ..data → a folder.
	write("..1/config.yaml", "map 1")
	write("..2/config.yaml", "map 2")
	must(os.Symlink("..1", filepath.Join(dir, "..data")))
	must(os.Symlink("..data/config.yaml", filepath.Join(dir, "link")))
	must(os.Rename(filepath.Join(dir, "link"), path))
	next("map 1")
	must(os.Symlink("..2", filepath.Join(dir, "..data_tmp")))
	must(os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")))
	next("map 2")

	cancel()
	<-done
	if len(told) > 0 {
		t.Errorf("reported again: %q", <-told)
	}
}
