package state

import (
	"bytes"
	"context"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"tierway/e2e/backends"
	"tierway/e2e/gateway"
	"tierway/e2e/rig"
	"tierway/engines"
)

// TestSmokeConcurrentMigrationsCreateTheSchemaOnce: one of four processes creates the schema, and all
// succeed.
func TestSmokeConcurrentMigrationsCreateTheSchemaOnce(t *testing.T) {
	sql := backends.Database(t)
	file := commandFile(t, sql)
	var all []*exec.Cmd
	var said [4]bytes.Buffer
	for i := range said {
		c := exec.Command(gateway.Binary(t), "migrate", "up", "-c", file)
		c.Stdout, c.Stderr = &said[i], &said[i]
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	made := 0
	for i, c := range all {
		if err := c.Wait(); err != nil {
			t.Errorf("one of four: %v: %s", err, &said[i])
		}
		if strings.Contains(said[i].String(), "schema 0 →") {
			made++
		}
	}
	if made != 1 {
		t.Errorf("%d of four processes report that they created the schema: %s", made, all[0].Stdout)
	}
	if out := gateway.RunCommand(t, "migrate", "status", "-c", file); !strings.Contains(out, "schema") {
		t.Errorf("the status is %q", out)
	}
}

// TestANewerSchemaIsNotTouched: if the schema is of a later release, the program reports this and
// exits.
func TestANewerSchemaIsNotTouched(t *testing.T) {
	sql := backends.Database(t)
	file := commandFile(t, sql)
	gateway.RunCommand(t, "migrate", "up", "-c", file)
	ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
	defer cancel()
	c, err := pgx.Connect(ctx, sql)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	if _, err := c.Exec(ctx, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, true)"); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"migrate", "up"}, {"keys", "list"},
		{"serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"}} {
		ctx, cancel := context.WithTimeout(context.Background(), rig.Patience)
		out, err := exec.CommandContext(ctx, gateway.Binary(t), append(args, "-c", file)...).CombinedOutput()
		cancel()
		if err == nil || !strings.Contains(string(out), "newer") {
			t.Errorf("tierway %s on a newer schema: %v: %s", strings.Join(args, " "), err, out)
		}
	}
}

// TestSQLiteKeepsKeysAcrossARestart: without PostgreSQL and Redis, an SQLite file stores keys, and
// commands change it while the gateway runs.
func TestSQLiteKeepsKeysAcrossARestart(t *testing.T) {
	r := newRig(t, 1, engines.Config{})
	sql := "sqlite://" + t.TempDir() + "/tierway.db"
	p := r.serve(rig.Settings{"store": stores(sql, "")})
	key := newKey(t, sql, "fox", "--rpm", "600")
	ask := func() (status int) {
		t.Helper()
		got, err := r.post(context.Background(), p.BaseURL, chatPath, key, chatBody)
		if err != nil {
			t.Fatal(err)
		}
		return got.Status
	}
	took := rig.Within(t, rig.Patience, func() error {
		if status := ask(); status != 200 {
			return errorf("a new key gets %d", status)
		}
		return nil
	})
	p = r.addGateway(p.StartAgain())
	p.WaitUntilReady()
	if status := ask(); status != 200 {
		t.Errorf("after a restart, a key gets %d", status)
	}
	t.Logf("a key created while the gateway runs works after %v", took)
}
