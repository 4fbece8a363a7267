// Command path counts what one chat completion executes, from the client's connection to its record: the functions of
// this module, their packages, and the locks. It runs BenchmarkChat of package server with counters in all statements,
// once with few and once with many requests. The difference leaves out the start. Work behind the requests counts too,
// per request.
//
// With -locks it counts the locks of several kinds of chat that requests of all pools share, and fails if one has more
// than its bound.
package main

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	few  = 1000 // requests of the first run
	many = 3000
	// rarest is the smallest number of executions per request that is shown: a batch of 1,000 records.
	rarest = 0.001
)

func main() {
	bench := flag.String("bench", "BenchmarkChat$/400B$", "the benchmark of package server")
	all := flag.Bool("all", false, "list the functions")
	locks := flag.Bool("locks", false, "check the shared locks of chats: plain, limited, classified and streamed")
	flag.Parse()
	if err := run(*bench, *all, *locks); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(bench string, all, locks bool) error {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "server.test")
	if err := execute("", "go", "test", "-vet=off", "-c", "-covermode=atomic", "-coverpkg=./...", "-o", program,
		"./server"); err != nil {
		return err
	}
	if !locks {
		seen, err := count(program, dir, bench)
		if err == nil {
			report(seen, all)
		}
		return err
	}
	var failed error
	for _, c := range cases() {
		seen, err := count(program, dir, c.bench)
		if err != nil {
			return err
		}
		failed = errors.Join(failed, checkLocks(c, seen))
	}
	return failed
}

// count returns what a request of a benchmark executes.
func count(program, dir, bench string) (seen counts, err error) {
	var profiles [2]profile
	for i, n := range []int{few, many} {
		name := filepath.Join(dir, strconv.Itoa(n))
		if err := execute("server", program, "-test.run=^$", "-test.bench="+bench, "-test.benchtime="+strconv.Itoa(n)+"x",
			"-test.coverprofile="+name); err != nil {
			return seen, err
		}
		if profiles[i], err = readProfile(name); err != nil {
			return seen, err
		}
	}
	return executed(profiles[1].perRequest(profiles[0], many-few))
}

// execute runs a command in a directory of this module, with one processor.
func execute(dir, name string, args ...string) error {
	c := exec.Command(name, args...)
	c.Dir, c.Env = dir, append(os.Environ(), "GOMAXPROCS=1")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, out)
	}
	return nil
}

// report prints the counts per request.
func report(seen counts, all bool) {
	packages := map[string]int{}
	for _, f := range seen.functions {
		packages[f.file[:strings.LastIndexByte(f.file, '/')]]++
		if all {
			fmt.Printf("%9.3f  %s:%d %s\n", f.times, f.file, f.line, f.name)
		}
	}
	fmt.Printf("%d functions of %d packages\n", len(seen.functions), len(packages))
	for _, name := range slices.Sorted(maps.Keys(packages)) {
		fmt.Printf("%9d  %s\n", packages[name], name)
	}
	sum := 0.0
	for _, l := range seen.locks {
		sum += l.times
	}
	fmt.Printf("%.1f locks\n", sum)
	for _, l := range seen.locks {
		fmt.Printf("%9.3f  %s:%d\n", l.times, l.file, l.line)
	}
}
