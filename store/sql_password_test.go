package store

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgproto3"
)

// TestPasswordFileOfPostgreSQLIsReadForEachConnection. The server here refuses every login.
func TestPasswordFileOfPostgreSQLIsReadForEachConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "password")
		var sent []string
		dial := func(context.Context, string, string) (net.Conn, error) {
			client, server := net.Pipe()
			go func() {
				defer server.Close()
				b := pgproto3.NewBackend(server, server)
				if _, err := b.ReceiveStartupMessage(); err != nil {
					return
				}
				b.Send(&pgproto3.AuthenticationCleartextPassword{})
				if b.Flush() != nil || b.SetAuthType(pgproto3.AuthTypeCleartextPassword) != nil {
					return
				}
				if m, err := b.Receive(); err == nil {
					sent = append(sent, m.(*pgproto3.PasswordMessage).Password)
				}
				b.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "28P01", Message: "no"})
				_ = b.Flush() // the client has left
			}()
			return client, nil
		}
		s, err := OpenSQL(SQLConfig{URL: "postgres://u@" + postgresAddress + "/db?sslmode=disable", Dial: dial,
			PasswordFile: file})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for _, password := range []string{"first", "second/?#%"} {
			if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := s.Ping(t.Context()); err == nil {
				t.Error("it is logged in")
			}
		}
		synctest.Wait()
		if diff := cmp.Diff([]string{"first", "second/?#%"}, sent); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}
