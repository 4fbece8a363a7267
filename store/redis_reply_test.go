package store

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// scripted is a Redis that answers each command with the same text, without an end of the connection.
func scripted(t *testing.T, answer string) dialFunc {
	return func(context.Context, string, string) (net.Conn, error) {
		client, server := net.Pipe()
		t.Cleanup(func() { client.Close(); server.Close() })
		go func() {
			in := bufio.NewReader(server)
			for {
				if line, err := in.ReadString('\n'); err != nil {
					return
				} else if !strings.HasPrefix(line, "*") {
					continue
				}
				if _, err := io.WriteString(server, answer); err != nil {
					return
				}
			}
		}()
		return client, nil
	}
}

// TestReplyOverTheBoundsEndsTheConnection, before its announced length is allocated: a reply of any kind, nested or
// behind others, of a single server, a node of a cluster and a sentinel.
func TestReplyOverTheBoundsEndsTheConnection(t *testing.T) {
	logging.Disable()
	for name, answer := range map[string]string{
		"a string":               "$268435456\r\n",
		"a string of 2^40":       "$1099511627776\r\n",
		"a string of 2^63-1":     "$9223372036854775807\r\n",
		"a string of 2^64":       "$18446744073709551616\r\n",
		"an error":               "!65537\r\n",
		"a text":                 "=268435456\r\n",
		"a list":                 "*16777216\r\n",
		"a set":                  "~16777216\r\n",
		"a push":                 ">16777216\r\n+message\r\n",
		"a map":                  "%16777216\r\n",
		"an attribute":           "|16777216\r\n",
		"a string in a list":     "*2\r\n:1\r\n$268435456\r\n",
		"a list in a map":        "%1\r\n+key\r\n*16777216\r\n",
		"a list in an attribute": "|1\r\n+key\r\n*16777216\r\n+value\r\n",
		"lists in each other":    strings.Repeat("*1\r\n", 100_000),
		"a line without an end":  "+" + strings.Repeat("x", 1<<20),
		"a length in letters":    "$many\r\n",
		"a streamed string":      "$?\r\n;4\r\nabcd\r\n",
	} {
		for kind, url := range map[string]string{"server": "redis://h:1", "cluster": "redis+cluster://h:1,h:2",
			"sentinel": "redis+sentinel://h:1,h:2/main"} {
			o, err := redisOptions(url)
			if err != nil {
				t.Fatal(err)
			}
			c := newClient(*o, time.Minute, scripted(t, answer))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err = c.Get(t.Context(), "key").Err()
			runtime.ReadMemStats(&after)
			if allocated := after.TotalAlloc - before.TotalAlloc; err == nil || errors.Is(err, redis.Nil) || allocated > 64<<20 {
				t.Errorf("%s of a %s: %v, and %d bytes were allocated", name, kind, err, allocated)
			}
			if kind == "server" && !errors.Is(err, errReply) {
				t.Errorf("%s: %v", name, err)
			}
			_ = c.Close()
		}
	}
}

// TestBoundsAreThoseOfOneReply: what one reply has does not count for the next, in any split into reads.
func TestBoundsAreThoseOfOneReply(t *testing.T) {
	long := "$" + strconv.Itoa(maxReplyString) + "\r\n" + strings.Repeat("x", maxReplyString) + "\r\n"
	list := "*" + strconv.Itoa(maxReplyElements/2) + "\r\n" + strings.Repeat(":1\r\n", maxReplyElements/2)
	deep := strings.Repeat("*1\r\n", maxReplyDepth)
	for name, c := range map[string]struct {
		replies string
		allowed bool
	}{
		"long strings":              {strings.Repeat(long, 9), true},
		"long strings in one reply": {"*9\r\n" + strings.Repeat(long, 9), false},
		"lists":                     {strings.Repeat(list, 3), true},
		"lists in one reply":        {"*3\r\n" + strings.Repeat(list, 3), false},
		"lists in each other":       {strings.Repeat(deep+"$-1\r\n", 3), true},
		"one more":                  {deep + "*1\r\n:1\r\n", false},
		"values of every kind": {strings.Repeat("|1\r\n+a\r\n*1\r\n:1\r\n+OK\r\n-ERR no\r\n:-1\r\n,1.5\r\n#t\r\n_\r\n(12345678901234567890123\r\n$0\r\n\r\n"+
			"$3\r\n$9*\r\n!3\r\nERR\r\n=7\r\ntxt:abc\r\n*0\r\n*-1\r\n$-1\r\n%0\r\n~1\r\n:1\r\n>2\r\n+message\r\n+x\r\n"+
			"%1\r\n+k\r\n*2\r\n|1\r\n+ttl\r\n:9\r\n:1\r\n%1\r\n:1\r\n:2\r\n", 20_000), true},
	} {
		for _, step := range []int{1, 7, 32 << 10} {
			if step == 1 && len(c.replies) > 10<<20 {
				continue
			}
			var r replyChecker
			var err error
			for rest := c.replies; len(rest) > 0 && err == nil; {
				n := min(step, len(rest))
				err = r.check([]byte(rest[:n]))
				rest = rest[n:]
			}
			if (err == nil) != c.allowed || err == nil && (len(r.open) > 0 || r.bytes+r.elements != 0) {
				t.Errorf("%s in reads of %d bytes: %v, and %+v is left", name, step, err, r.open)
			}
		}
	}
}

// FuzzReplies: the result does not depend on the split into reads, and no bound is exceeded.
func FuzzReplies(f *testing.F) {
	f.Add([]byte("*2\r\n$3\r\nabc\r\n%1\r\n+a\r\n:1\r\n"), 3)
	f.Add([]byte("|1\r\n+a\r\n$-1\r\n$268435456\r\n"), 1)
	f.Fuzz(func(t *testing.T, text []byte, step int) {
		var whole, split replyChecker
		err := whole.check(text)
		for rest := text; len(rest) > 0 && split.err == nil; {
			n := min(1+max(0, step%64), len(rest))
			_ = split.check(rest[:n])
			rest = rest[n:]
		}
		if fmt.Sprint(err) != fmt.Sprint(split.err) || err == nil && !reflect.DeepEqual(whole, split) {
			t.Errorf("as a whole: %v %+v; in parts: %v %+v", err, whole, split.err, split)
		}
		if err == nil && (whole.rest > maxReplyString+2 || whole.elements > maxReplyElements ||
			len(whole.open) > maxReplyDepth) {
			t.Errorf("%+v is over the bounds", whole)
		}
	})
}

// TestListThatIsNoNoticeEndsTheSubscription, and not the process: the client panics at it.
func TestListThatIsNoNoticeEndsTheSubscription(t *testing.T) {
	logging.Disable()
	for _, answer := range []string{"*2\r\n:1\r\n:1\r\n", "*1\r\n$9\r\nsubscribe\r\n",
		">3\r\n$7\r\nmessage\r\n:1\r\n:2\r\n"} {
		client := redis.NewClient(&redis.Options{Dialer: scripted(t, answer), Protocol: 2, MaxRetries: -1})
		r := &Redis{client: client, log: slog.New(slog.DiscardHandler), recover: func(_ string, f func() error) (err error) {
			defer func() {
				if p := recover(); p != nil {
					err = fmt.Errorf("panic: %v", p)
				}
			}()
			return f()
		}}
		if pause := r.subscribe(t.Context()); pause <= 0 {
			t.Errorf("%q: the next subscription is due at once", answer)
		}
		client.Close()
	}
}
