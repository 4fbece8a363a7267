// Command path counts what one chat completion executes, from the client's connection to its record: the functions of
// this module, their packages, and the locks. It runs BenchmarkChat of package server with counters in all statements,
// once with few and once with many requests. The difference leaves out the start. Work behind the requests counts too,
// per request.
package main

import (
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
	flag.Parse()
	if err := run(*bench, *all); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(bench string, all bool) error {
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
	var counts [2]profile
	for i, n := range []int{few, many} {
		name := filepath.Join(dir, strconv.Itoa(n))
		if err := execute("server", program, "-test.run=^$", "-test.bench="+bench, "-test.benchtime="+strconv.Itoa(n)+"x",
			"-test.coverprofile="+name); err != nil {
			return err
		}
		if counts[i], err = readProfile(name); err != nil {
			return err
		}
	}
	seen, err := executed(counts[1].perRequest(counts[0], many-few))
	if err != nil {
		return err
	}
	report(seen, all)
	return nil
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
