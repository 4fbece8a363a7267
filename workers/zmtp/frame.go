package zmtp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"
)

// greetingSize is the size of a greeting: signature 10, version 2, mechanism 20, as-server 1,
// filler 31 bytes.
const greetingSize = 64

// maxCommand bounds the body of a command, in bytes. A READY with an identity has fewer than 400.
const maxCommand = 4 << 10

func appendFrame(b []byte, flags byte, body []byte) []byte {
	if len(body) <= 255 {
		b = append(b, flags, byte(len(body)))
	} else {
		b = append(b, flags|flagLong)
		b = binary.BigEndian.AppendUint64(b, uint64(len(body)))
	}
	return append(b, body...)
}

func appendMessage(b []byte, parts ...[]byte) []byte {
	for i, p := range parts {
		var flags byte
		if i < len(parts)-1 {
			flags = flagMore
		}
		b = appendFrame(b, flags, p)
	}
	return b
}

// appendCommand appends a command frame: the length of the name, the name, the data.
func appendCommand(b []byte, name string, data []byte) []byte {
	body := append([]byte{byte(len(name))}, name...)
	return appendFrame(b, flagCommand, append(body, data...))
}

// appendGreeting appends the greeting of version 3.0 with the NULL mechanism. With version 3.0 a
// subscription is a message, which all peers accept.
func appendGreeting(b []byte) []byte {
	b = append(b, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0x7f, 3, 0)
	b = append(b, "NULL"...)
	return append(b, make([]byte, greetingSize-16)...)
}

// greet exchanges greeting and READY. It sends its greeting before it reads the peer's, because a peer
// may send its signature first and wait.
func (c *Conn) greet(socket Socket) error {
	c.out = appendGreeting(c.out[:0])
	if _, err := c.conn.Write(c.out); err != nil {
		return err
	}
	var g [greetingSize]byte
	if _, err := io.ReadFull(c.in, g[:]); err != nil {
		return unexpectedEnd(err)
	}
	if g[0] != 0xff || g[9]&1 == 0 {
		return fmt.Errorf("%w: the peer does not speak ZMTP", ErrProtocol)
	}
	if g[10] < 3 {
		return fmt.Errorf("%w: the peer speaks ZMTP %d, version 3 is needed", ErrProtocol, g[10])
	}
	if mechanism := string(bytes.TrimRight(g[12:32], "\x00")); mechanism != "NULL" {
		return fmt.Errorf("%w: the peer requires the mechanism %q, only NULL is supported", ErrProtocol, mechanism)
	}
	const property = "Socket-Type"
	data := append([]byte{byte(len(property))}, property...)
	data = binary.BigEndian.AppendUint32(data, uint32(len(socket)))
	c.out = appendCommand(c.out[:0], "READY", append(data, socket...))
	if _, err := c.conn.Write(c.out); err != nil {
		return err
	}
	return c.readReady(socket)
}

// readReady reads the peer's READY and checks that the socket types match.
func (c *Conn) readReady(socket Socket) error {
	var head [9]byte
	if _, err := io.ReadFull(c.in, head[:2]); err != nil {
		return unexpectedEnd(err)
	}
	size := uint64(head[1])
	if head[0] == flagCommand|flagLong {
		if _, err := io.ReadFull(c.in, head[2:]); err != nil {
			return unexpectedEnd(err)
		}
		size = binary.BigEndian.Uint64(head[1:])
	} else if head[0] != flagCommand {
		return fmt.Errorf("%w: frame flags %#x instead of READY", ErrProtocol, head[0])
	}
	if size > maxCommand {
		return fmt.Errorf("%w: a command of %d bytes", ErrLimit, size)
	}
	body := make([]byte, size)
	if _, err := io.ReadFull(c.in, body); err != nil {
		return unexpectedEnd(err)
	}
	name, data, err := splitCommand(body)
	switch {
	case err != nil:
		return err
	case name == "ERROR":
		return fmt.Errorf("%w: the peer refused the connection", ErrProtocol)
	case name != "READY":
		return fmt.Errorf("%w: command %q instead of READY", ErrProtocol, name)
	}
	peer, err := socketType(data)
	if err != nil {
		return err
	}
	if may := socket.peers(); !slices.Contains(may[:], peer) {
		return fmt.Errorf("%w: the peer is a %q socket; %s needs %s or %s", ErrProtocol, peer, socket, may[0], may[1])
	}
	return nil
}

// splitCommand returns the name and the data of a command.
func splitCommand(body []byte) (name string, data []byte, err error) {
	if len(body) == 0 || len(body) < 1+int(body[0]) {
		return "", nil, fmt.Errorf("%w: a command without a name", ErrProtocol)
	}
	n := 1 + int(body[0])
	return string(body[1:n]), body[n:], nil
}

// socketType returns the Socket-Type of READY's properties. Their names are case-insensitive.
func socketType(data []byte) (string, error) {
	for len(data) > 0 {
		name, rest, err := splitCommand(data)
		if err != nil || len(rest) < 4 {
			return "", fmt.Errorf("%w: a property of READY is cut", ErrProtocol)
		}
		size := binary.BigEndian.Uint32(rest)
		rest = rest[4:]
		if uint64(size) > uint64(len(rest)) {
			return "", fmt.Errorf("%w: a property of READY is cut", ErrProtocol)
		}
		if strings.EqualFold(name, "Socket-Type") {
			return string(rest[:size]), nil
		}
		data = rest[size:]
	}
	return "", fmt.Errorf("%w: READY without Socket-Type", ErrProtocol)
}

// command reads a command between messages: it answers PING, records PONG and ignores the rest,
// as the protocol requires.
func (c *Conn) command(flags byte, size uint64) error {
	if size > maxCommand {
		return fmt.Errorf("%w: a command of %d bytes", ErrLimit, size)
	}
	var err error
	if c.body, err = c.appendBody(c.body[:0], int(size)); err != nil {
		return err
	}
	name, data, err := splitCommand(c.body)
	if err != nil {
		return err
	}
	switch name {
	case "PING": // TTL (2 bytes), then a context of up to 16 bytes that PONG returns
		if len(data) < 2 || len(data) > 18 {
			return fmt.Errorf("%w: a PING of %d bytes", ErrProtocol, len(data))
		}
		return c.sendCommand("PONG", data[2:])
	case "PONG":
		c.heartbeats = heartbeatsAnswered
	}
	return nil
}

func (c *Conn) sendPing() error {
	return c.sendCommand("PING", []byte{0, 0}) // TTL 0: the peer starts no timer
}
