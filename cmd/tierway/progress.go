package main

import (
	"fmt"
	"io"
	"strings"
)

// progressBar shows how much of a long command is done, on a terminal only.
type progressBar struct {
	out   io.Writer // nil: not a terminal
	shown int       // filled places; -1 before the first call
}

// progressPlaces is the width of a full bar.
const progressPlaces = 40

func newProgressBar(out io.Writer) *progressBar {
	b := &progressBar{shown: -1}
	if terminal(out) {
		b.out = out
	}
	return b
}

func (b *progressBar) show(done, total int) {
	filled := progressPlaces * done / max(1, total)
	if b.out == nil || filled == b.shown {
		return
	}
	b.shown = filled
	fmt.Fprintf(b.out, "\r[%s%s] %d of %d", strings.Repeat("#", filled), strings.Repeat(".", progressPlaces-filled), done,
		total)
}

// clear removes the bar until it is shown again.
func (b *progressBar) clear() {
	if b.out != nil && b.shown >= 0 {
		fmt.Fprint(b.out, "\r\x1b[K")
	}
	b.shown = -1
}
